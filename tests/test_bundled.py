import json

import numpy as np
import pytest

import keras_vit
from keras_vit import assets, bundled


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(bundled, "STEPS", 2)


def test_compares_both_starts_seed_by_seed(few_steps, tmp_path):
    told = []
    comparison = bundled.compare_with_random(
        tmp_path, seeds=(0, 1), report=lambda *row: told.append(row)
    )
    assert [row[:2] for row in told] == [
        ("pre-trained", 0),
        ("random", 0),
        ("pre-trained", 1),
        ("random", 1),
    ]
    assert tuple(row[2] for row in told[::2]) == comparison.pretrained
    assert tuple(row[2] for row in told[1::2]) == comparison.random
    written = json.loads((tmp_path / "comparison.json").read_text())
    assert written["pretrained"] == list(comparison.pretrained)
    assert written["transfers"] == comparison.transfers
    assert comparison.run.directory == tmp_path / "pretrained"
    assert (tmp_path / "pretrained" / "best.keras").exists()
    assert comparison.run.model.labels == ("coat", "pullover", "sandal", "sneaker")
    with pytest.raises(FileExistsError, match="must not hold another run"):
        bundled.compare_with_random(tmp_path, seeds=(0,))


def test_starts_differ_in_their_weights_only():
    source = keras_vit.from_pretrained(assets.checkpoint(), num_classes=4, reset_head=True)
    tuned, random = (bundled._copy(source, start, seed=3) for start in bundled.STARTS)
    assert tuned.config == random.config == source.config
    assert tuned.preprocessing == random.preprocessing
    kernel = "block_0/attention/qkv/kernel"
    values = [
        {variable.path: variable.numpy() for variable in model.weights}
        for model in (source, tuned, random)
    ]
    np.testing.assert_array_equal(values[1][kernel], values[0][kernel])
    assert not np.array_equal(values[2][kernel], values[0][kernel])
    assert not values[1]["head/kernel"].any() and not values[2]["head/kernel"].any()


@pytest.mark.parametrize(
    ("pretrained", "random", "transfers"),
    [((0.8, 0.9), (0.7, 0.79), True), ((0.8, 0.9), (0.7, 0.8), False)],
)
def test_transfer_means_the_worst_beats_the_best(pretrained, random, transfers):
    assert bundled.Comparison(pretrained, random, run=None).transfers is transfers
