import dataclasses

import keras
import pytest

import keras_vit
from keras_vit.recipes import RECIPES, recipe
from keras_vit.recipes.paper_sgd import PAPER_SGD


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(
    ("kind", "labels", "metrics"),
    [
        ("integer", [0, 2], {"accuracy"}),
        ("one_hot", [[1.0, 0.0, 0.0], [0.0, 0.25, 0.75]], {"accuracy"}),
        ("multi_hot", [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]], {"pr_auc"}),
    ],
)
def test_compile_arguments_make_a_model_trainable(name, kind, labels, metrics):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    arguments = RECIPES[name].compile_arguments()
    if kind != "integer":  # the default
        arguments = RECIPES[name].compile_arguments(labels=kind)
    model.compile(**arguments)
    logs = model.train_on_batch(keras.ops.ones((2, 4)), keras.ops.array(labels), return_dict=True)
    assert set(logs) == {"loss"} | metrics


def test_losses_agree_where_labels_say_the_same():
    logits = keras.ops.array([[2.0, -1.0, 0.5], [0.0, 1.0, 3.0]])
    integer = PAPER_SGD.compile_arguments()["loss"](keras.ops.array([0, 2]), logits)
    one_hot = keras.ops.one_hot(keras.ops.array([0, 2]), 3)
    mixed = PAPER_SGD.compile_arguments(labels="one_hot")["loss"](one_hot, logits)
    assert float(integer) == pytest.approx(float(mixed))


def test_multi_hot_metrics_take_logits():
    """Every picture right: all above 0 where the class is, and below where it is not."""
    labels = keras.ops.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    logits = keras.ops.array([[0.3, -0.2], [-1.0, 0.1], [2.0, 0.4]])
    for metric in PAPER_SGD.compile_arguments(labels="multi_hot")["metrics"]:
        metric.update_state(labels, logits)
        assert float(metric.result()) == pytest.approx(1.0), metric.name
        metric.reset_state()
        metric.update_state(labels, -logits)
        assert float(metric.result()) < 0.8, metric.name


def test_unknown_labels():
    with pytest.raises(ValueError, match="Unknown `labels`.*Received: 'onehot'.*one_hot"):
        PAPER_SGD.compile_arguments(labels="onehot")


def test_defaults_come_from_the_recipe():
    schedule = PAPER_SGD.compile_arguments()["optimizer"].get_config()["learning_rate"]["config"]
    assert schedule["warmup_target"] == 0.03
    assert schedule["warmup_steps"] == 100
    assert schedule["decay_steps"] == 400


def test_given_values_win():
    optimizer = PAPER_SGD.compile_arguments(0.5, total_steps=10, warmup_steps=0)["optimizer"]
    assert float(optimizer.learning_rate) == 0.5
    assert optimizer.get_config()["learning_rate"]["config"]["decay_steps"] == 10


def test_warmup_is_a_share_with_a_limit():
    assert PAPER_SGD.warmup_steps(3) == 0
    assert PAPER_SGD.warmup_steps(500) == 100
    assert PAPER_SGD.warmup_steps(10_000) == 500


def test_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PAPER_SGD.learning_rate = 1.0


def test_names_are_keys():
    assert all(value.name == name for name, value in RECIPES.items())
    assert recipe("paper_sgd") is RECIPES["paper_sgd"]


def test_public_name_is_the_function():
    """TRAPS 17: no module of that name hides it."""
    assert keras_vit.recipe("paper_sgd") is RECIPES["paper_sgd"]


def test_unknown_name_lists_close_matches():
    with pytest.raises(ValueError, match="Unknown recipe. Received: 'paper_sdg'.*paper_sgd"):
        recipe("paper_sdg")
