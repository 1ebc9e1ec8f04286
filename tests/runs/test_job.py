"""The parts of a run: whether they fit, and the batches and labels that come of them."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_vit
from keras_vit.augment import as_augmentations
from keras_vit.data.inputs import open_training_data
from keras_vit.recipes.paper_sgd import PAPER_SGD
from keras_vit.recipes.plan import Plan
from keras_vit.runs.job import Job

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 20, 16, 3)).astype("uint8")
LABELS = np.array([0, 1, 2, 0, 1, 2])
SEVERAL = np.array([[1, 1, 0], [0, 0, 0]] * 3)


def make_job(labels=LABELS, augmentation=None, **fields) -> Job:
    config = keras_vit.ViTConfig(
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        mlp_dim=8,
        patch_size=8,
        image_size=16,
        num_classes=3,
    )
    model = keras_vit.ViT(config, include_normalization=fields.pop("include_normalization", True))
    images = (IMAGES, labels)
    return Job(
        model,
        fields.pop("data", None) or open_training_data(images, images),
        PAPER_SGD,
        Plan(total_steps=4, steps_per_epoch=2, batch_size=4, learning_rate=0.1, warmup_steps=1),
        as_augmentations(augmentation),
        **fields,
    )


def first(batches):
    return tuple(part.numpy() for part in next(iter(batches)))


@pytest.mark.parametrize(
    ("labels", "augmentation", "kind", "shape"),
    [
        (LABELS, None, "integer", (4,)),
        (LABELS, "erasing", "integer", (4,)),
        (LABELS, ["erasing", "mixup"], "one_hot", (4, 3)),
        (SEVERAL, None, "multi_hot", (4, 3)),
        (SEVERAL, "mixup", "multi_hot", (4, 3)),
    ],
)
def test_labels_of_batches_are_those_of_the_loss(labels, augmentation, kind, shape):
    job = make_job(labels, augmentation)
    assert job.labels == kind
    job.check()
    job.compile()
    assert job.model.multi_label == (kind == "multi_hot")
    for batches in (job.training_batches(), job.validation_batches()):
        images, found = first(batches)
        assert images.shape == (4, 16, 16, 3) and images.dtype == "float32"
        assert found.shape == shape
        logs = job.model.test_on_batch(images, found, return_dict=True)
        # Zero logits: log 3 by softmax, three times log 2 by sigmoids.
        assert logs["loss"] == pytest.approx(np.log(3) if kind != "multi_hot" else 3 * np.log(2))


def test_validation_is_never_augmented():
    job = make_job(augmentation=lambda images: 0.0 * images)
    assert first(job.training_batches())[0].max() == 0.0
    assert first(job.validation_batches())[0].max() > 0.0


def test_a_dataset_is_augmented_too():
    images = IMAGES[:, :16].astype("float16")
    dataset = tf.data.Dataset.from_tensor_slices((images, LABELS)).batch(4)
    job = make_job(data=open_training_data(dataset, dataset), augmentation="mixup", seed=3)
    job.check()
    batches = [labels.numpy() for _, labels in job.training_batches().take(4)]
    assert [labels.shape for labels in batches] == [(4, 3), (2, 3)] * 2
    later = [labels.numpy() for _, labels in job.training_batches(start_step=2).take(2)]
    np.testing.assert_array_equal(np.concatenate(later), np.concatenate(batches[2:]))
    assert not np.array_equal(batches[0], batches[2])
    assert first(job.validation_batches())[1].shape == (4, 3)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"augmentation": "cutmix", "class_weights": [1.0] * 3}, "`augmentation` that mixes pict"),
        ({"labels": SEVERAL, "class_weights": [1.0] * 3}, "and multi-label pictures"),
        ({"augmentation": keras.layers.RandomCrop(8, 8)}, "`augmentation` must take batches"),
    ],
)
def test_what_does_not_fit(fields, message):
    with pytest.raises(ValueError, match=message):
        make_job(**fields).check()


def test_augmentation_needs_a_model_of_pixels():
    images = (IMAGES[:, :16] / 127.5 - 1.0).astype("float32")
    dataset = tf.data.Dataset.from_tensor_slices((images, LABELS)).batch(4)
    job = make_job(
        data=open_training_data(dataset), augmentation="mixup", include_normalization=False
    )
    with pytest.raises(ValueError, match="include_normalization=False.*or augment in the"):
        job.check()


def test_what_run_json_says():
    job = make_job(augmentation=["colorjitter", tf.abs], class_weights=None, early_stopping=3)
    settings = job.describe()["settings"]
    assert json.loads(json.dumps(settings))["augmentation"] == ["RandomColorJitter", "abs"]
    assert settings["early_stopping"] == 3 and settings["total_steps"] == 4
    plain = dataclasses.replace(job, augmentations=(), class_weights=[1.0, 2.0, 3.0])
    settings = plain.describe()["settings"]
    assert settings["augmentation_settings"] is None
    assert settings["augmentation"] is None and settings["class_weights"] == [1.0, 2.0, 3.0]


def test_settings_of_augmentations_tell_strengths_apart_and_not_layers():
    """Equal layers have other names and seeds; a caller's layer need not have a config."""

    class Own(keras.layers.Layer):
        def __init__(self, strength):
            super().__init__()

    def settings(factor):
        layers = [keras.layers.RandomErasing(factor), Own(object()), tf.abs]
        nested = keras.Sequential([keras.layers.RandomFlip()])
        job = make_job(augmentation=[*layers, nested])
        return json.loads(json.dumps(job.describe()["settings"]["augmentation_settings"]))

    assert settings(0.5) == settings(0.5)
    assert settings(0.5) != settings(0.25)
