import numpy as np
import pytest
import tensorflow as tf

from keras_vit.data.inputs import Arrays
from keras_vit.recipes.paper_sgd import PAPER_SGD
from keras_vit.recipes.plan import Plan, check_counts, make_plan


def arrays(number: int) -> Arrays:
    return Arrays(np.zeros((number, 4, 4, 3), "uint8"), np.zeros(number, "int32"))


def test_what_is_not_given_is_the_recipes():
    plan = make_plan(arrays(70), PAPER_SGD)
    assert plan == Plan(500, 50, 64, 0.03 * 64 / 512, 100)


def test_epochs_are_passes():
    plan = make_plan(arrays(10), PAPER_SGD, epochs=3, batch_size=4)
    assert (plan.total_steps, plan.steps_per_epoch, plan.batch_size) == (9, 3, 4)


def test_never_more_pictures_a_step_than_there_are():
    assert make_plan(arrays(10), PAPER_SGD, batch_size=64).batch_size == 10


def test_validated_ten_times_or_once_a_pass():
    assert make_plan(arrays(10), PAPER_SGD, steps=95, batch_size=5).steps_per_epoch == 10
    assert make_plan(arrays(100), PAPER_SGD, steps=95, batch_size=5).steps_per_epoch == 20
    assert make_plan(arrays(100), PAPER_SGD, steps=7, batch_size=5).steps_per_epoch == 7


def test_given_rates_are_used():
    plan = make_plan(arrays(10), PAPER_SGD, learning_rate=1, warmup_steps=0)
    assert (plan.learning_rate, plan.warmup_steps) == (1.0, 0)


def test_a_dataset_has_its_own_batches():
    batches = tf.data.Dataset.range(3)
    plan = make_plan(batches, PAPER_SGD, epochs=2)
    assert (plan.total_steps, plan.steps_per_epoch, plan.batch_size) == (6, 3, None)
    assert plan.learning_rate == 0.03
    with pytest.raises(ValueError, match="already decided.*batch_size=4"):
        make_plan(batches, PAPER_SGD, batch_size=4)
    with pytest.raises(ValueError, match="never ends.*epochs=2. Use `steps`"):
        make_plan(batches.repeat(), PAPER_SGD, epochs=2)


def test_counts():
    check_counts(steps=None, epochs=3)
    for value in (0, 1.5, True):
        with pytest.raises(ValueError, match=f"positive integer. Received: batch_size={value}"):
            check_counts(batch_size=value)
    with pytest.raises(ValueError, match="exclude each other. Received: steps=1, epochs=2"):
        check_counts(steps=1, epochs=2)
