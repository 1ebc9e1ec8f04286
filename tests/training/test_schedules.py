import pathlib

import numpy as np
import pytest

from keras_vit.training.schedules import warmup_cosine

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"


def test_equals_the_official_learning_rates():
    official = np.load(GOLDEN / "finetune_vit_token.npz")
    schedule = warmup_cosine(
        float(official["base_learning_rate"]),
        int(official["total_steps"]),
        int(official["warmup_steps"]),
    )
    ours = [float(schedule(step)) for step in range(24)]
    np.testing.assert_allclose(ours, official["learning_rates"], rtol=1e-5, atol=1e-8)


def test_without_warmup_starts_at_the_highest_rate():
    schedule = warmup_cosine(0.1, 10, 0)
    assert float(schedule(0)) == pytest.approx(0.1)
    assert float(schedule(5)) == pytest.approx(0.05)
    assert float(schedule(10)) == pytest.approx(0.0, abs=1e-8)


def test_stays_at_zero_after_the_end():
    schedule = warmup_cosine(0.1, 10, 2)
    assert float(schedule(11)) == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize("warmup_steps", [-1, 10, 11])
def test_warmup_must_end_before_the_run(warmup_steps):
    with pytest.raises(ValueError, match=f"warmup_steps={warmup_steps}, total_steps=10"):
        warmup_cosine(0.1, 10, warmup_steps)


@pytest.mark.parametrize("learning_rate", [0.0, -1.0, float("nan")])
def test_learning_rate_must_be_positive(learning_rate):
    with pytest.raises(ValueError, match="`learning_rate` must be above 0"):
        warmup_cosine(learning_rate, 10, 2)
