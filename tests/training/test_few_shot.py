"""Few-shot accuracy beside the same computed by hand, and on the bundled pictures."""

import dataclasses
import statistics

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit import assets
from keras_vit.data import index_folder
from keras_vit.data.pipeline import evaluation_dataset
from keras_vit.training import few_shot
from keras_vit.training.few_shot import few_shot_accuracy, few_shot_model
from keras_vit.training.least_squares import least_squares_head

CLASSES = 3


@pytest.fixture
def model(tiny_config, random_weights):
    """Random, of five classes that the pictures do not have."""
    return random_weights(keras_vit.ViT(tiny_config, labels=tuple("abcde")))


def pictures(number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise, brighter for each class, in no order of classes."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(number) % CLASSES)
    noise = rng.integers(0, 160, (number, 16, 16, 3))
    return (noise + 40 * labels[:, None, None, None]).astype("uint8"), labels


TRAIN, TEST = pictures(21, 1), pictures(30, 2)


def features_by_hand(model, images) -> np.ndarray:
    view = model.intermediates(["pooled"])
    return np.asarray(view.predict(images.astype("float32"), verbose=0)["pooled"], "float64")


def test_all_pictures_of_each_class(model):
    """Seven of each: nothing is left to chance."""
    head = least_squares_head(features_by_hand(model, TRAIN[0]), TRAIN[1], CLASSES)
    predictions = head.scores(features_by_hand(model, TEST[0])).argmax(axis=1)
    rows = few_shot_accuracy(model, TRAIN, TEST, shots=[7], seeds=2)
    assert [(row.shots, row.seed) for row in rows] == [(7, 0), (7, 1)]
    assert {row.accuracy for row in rows} == {np.mean(predictions == TEST[1])}


def test_rows_come_by_shots_then_seed_and_again_the_same(model):
    rows = few_shot_accuracy(model, TRAIN, TEST, shots=(5, 1), seeds=3)
    order = [(5, 0), (5, 1), (5, 2), (1, 0), (1, 1), (1, 2)]
    assert [(row.shots, row.seed) for row in rows] == order
    assert few_shot_accuracy(model, TRAIN, TEST, shots=(5, 1), seeds=3) == rows
    assert few_shot_accuracy(model, TRAIN, TEST, shots=1, seeds=3) == rows[3:]
    other = keras_vit.ViT(dataclasses.replace(model.config, num_classes=0))
    other.set_weights(model.get_weights()[:-2])
    assert few_shot_accuracy(other, TRAIN, TEST, shots=(5, 1), seeds=3) == rows


def test_a_dataset_gives_the_same(model):
    data = [tf.data.Dataset.from_tensor_slices(part).batch(8) for part in (TRAIN, TEST)]
    rows = few_shot_accuracy(model, *data, shots=(1, 5), seeds=2)
    assert rows == few_shot_accuracy(model, TRAIN, TEST, shots=(1, 5), seeds=2)


def test_draws():
    """As many of each class, others for each seed, and those of fewer shots among those of more."""
    labels = np.random.default_rng(5).integers(0, 4, 200)
    draws = few_shot._draw(labels, [1, 5, 25, None], range(3))
    assert list(draws) == [(count, seed) for count in (1, 5, 25, None) for seed in range(3)]
    for (count, seed), rows in draws.items():
        assert len(set(rows.tolist())) == len(rows)
        if count is None:
            assert sorted(rows) == list(range(200))
            continue
        np.testing.assert_array_equal(np.bincount(labels[rows]), [count] * 4)
        more = {1: 5, 5: 25, 25: None}[count]
        assert set(rows.tolist()) <= set(draws[more, seed].tolist())
    assert len({tuple(sorted(draws[5, seed])) for seed in range(3)}) == 3


def test_of_arrays_only_what_is_drawn_goes_through_the_model(model, monkeypatch):
    seen = []

    def watched(model, data, *args, **kwargs):
        seen.append(len(data[0]))
        return features_of(model, data, *args, **kwargs)

    features_of = few_shot.features_of
    monkeypatch.setattr(few_shot, "features_of", watched)
    few_shot_accuracy(model, TRAIN, TEST, shots=(1, 2), seeds=1)
    few_shot_model(model, TRAIN, shots=2)
    few_shot_model(model, TRAIN)
    assert seen == [2 * CLASSES, 30, 2 * CLASSES, 21]


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({}, "float32"),
        ({"representation_size": 7}, "float32"),
        ({"representation_size": 7, "representation": "linear"}, "float32"),
        ({"distillation_token": True}, "float32"),
        ({"pool": "token_mean", "num_classes": 0}, "float32"),
        ({}, "mixed_bfloat16"),
    ],
    ids=str,
)
def test_the_classifier_is_the_head_on_the_features(tiny_config, random_weights, fields, dtype):
    """Also of the layer before the head, and of both tokens of a distilled model."""
    config = dataclasses.replace(tiny_config, **fields)
    model = random_weights(keras_vit.ViT(config, dtype=dtype))
    train, labels = few_shot.features_of(model, TRAIN)
    test, _ = few_shot.features_of(model, TEST)
    expected = least_squares_head(train, labels, CLASSES, l2=10.0).scores(test)
    classifier = few_shot_model(model, TRAIN, l2=10.0)
    assert type(classifier) is keras_vit.ViT and classifier.config.num_classes == CLASSES
    assert classifier.get_layer("block_1") is model.get_layer("block_1")
    logits = classifier.predict(TEST[0].astype("float32"), verbose=0)
    np.testing.assert_allclose(logits, expected, atol=1e-4)


def test_a_mixer_learns_too(tiny_mixer_config, random_weights, tmp_path):
    model = random_weights(keras_vit.Mixer(tiny_mixer_config))
    classifier = few_shot_model(model, TRAIN, shots=3, seed=1)
    [*_, row] = few_shot_accuracy(model, TRAIN, TEST, shots=[3], seeds=2)
    assert keras_vit.evaluate(classifier, TEST).top1 == pytest.approx(row.accuracy, abs=0.04)
    classifier.save(tmp_path / "few.keras")
    again = keras.saving.load_model(tmp_path / "few.keras")
    images = TEST[0].astype("float32")
    np.testing.assert_allclose(again(images), classifier(images), atol=1e-6)


def test_names_of_the_classes(model):
    assert few_shot_model(model, TRAIN).labels is None
    assert few_shot_model(model, TRAIN, labels=("x", "y", "z")).labels == ("x", "y", "z")
    of_three = model.reset_head(CLASSES, ("k", "l", "m"))
    assert few_shot_model(of_three, TRAIN).labels == ("k", "l", "m")
    assert few_shot_model(of_three, TRAIN, labels=["x", "y", "z"]).labels == ("x", "y", "z")


@pytest.mark.parametrize("function", ["accuracy", "model"])
@pytest.mark.parametrize("kind", ["arrays", "dataset"])
def test_too_few_pictures_of_a_class(model, function, kind):
    images, labels = TRAIN
    keep = (labels != 1) | (np.cumsum(labels == 1) <= 4)
    train = (images[keep], labels[keep])
    if kind == "dataset":
        train = tf.data.Dataset.from_tensor_slices(train).batch(8)
    with pytest.raises(ValueError, match="`train` must hold 5 or more.*Received: 4 of class 1"):
        if function == "accuracy":
            few_shot_accuracy(model, train, TEST, shots=(1, 5))
        else:
            few_shot_model(model, train, shots=5)


@pytest.mark.parametrize(("change", "missing"), [(lambda k: 2 * k, 1), (lambda k: k + 10**12, 0)])
def test_a_gap_among_the_classes(model, change, missing):
    with pytest.raises(ValueError, match=f"Received: 0 of class {missing}"):
        few_shot_model(model, (TRAIN[0], change(TRAIN[1])))


def test_what_is_refused(model):
    for changes, said in (
        ({"test": (TEST[0], TEST[1] + 1)}, "Labels in `test` must be from 0 to 2. Received: 3"),
        ({"train": (TRAIN[0], TRAIN[1] * 0)}, "`train` must show two classes.*class 0 alone"),
        ({"shots": ()}, "`shots` must hold a number"),
        ({"shots": (1, 0)}, "`shots` must be a positive integer. Received: shots=0"),
        ({"seeds": 0}, "seeds=0"),
        ({"l2": 0.0}, "`l2` must be above 0"),
        ({"model": "bundled"}, "type str.*from_pretrained"),
    ):
        arguments = {"model": model, "train": TRAIN, "test": TEST, "shots": (1,), **changes}
        with pytest.raises(ValueError, match=said):
            few_shot_accuracy(**arguments)
    for changes, said in (
        ({"shots": 0}, "None or a positive integer. Received: shots=0"),
        ({"seed": -1}, "seed=-1"),
        ({"l2": -1.0}, "`l2` must be above 0"),
        ({"labels": ("a", "b")}, "2 labels, num_classes=3"),
    ):
        with pytest.raises(ValueError, match=said):
            few_shot_model(model, TRAIN, **changes)


def test_the_bundled_model_knows_new_classes_by_few_pictures():
    """Four classes that pre-training has not seen: chance is right in a quarter of them."""
    index = index_folder(assets.pictures())
    model = keras_vit.from_pretrained(assets.checkpoint())
    train, test = (
        evaluation_dataset(
            part, 64, model.config.image_size, model.preprocessing, model.config.num_channels
        )
        for part in (index.train, index.validation)
    )
    rows = few_shot_accuracy(model, train, test)
    means = [
        statistics.mean(row.accuracy for row in rows if row.shots == count)
        for count in few_shot.SHOTS
    ]
    assert len(rows) == 12 and means[0] > 0.4 and means[-1] > 0.6
    assert means[0] < means[-1]
    classifier = few_shot_model(model, train, shots=25, labels=index.class_names)
    top1 = keras_vit.evaluate(classifier, test, index.class_names).top1
    assert top1 == pytest.approx(rows[-3].accuracy, abs=0.01)
