"""KerasCV's layers, which are none of ours, in a run: pixels, labels and what is refused."""

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit.augment import as_augmentations, check_augmentations, mixes_labels

pytestmark = pytest.mark.parity

RANGE = (0, 255)


@pytest.fixture(scope="module")
def cv():
    import keras_cv

    return keras_cv.layers


def test_a_pipeline_runs_through_fit(cv, tmp_path):
    """FAULTS H3: RandAugment and MixUp of KerasCV on integer labels."""
    generator = np.random.default_rng(0)
    labels = np.arange(24) % 2
    images = generator.normal(60 + 130 * labels[:, None, None, None], 20, (24, 16, 16, 3))
    images = images.clip(0, 255).astype("uint8")
    keras.utils.set_random_seed(0)
    config = keras_vit.ViTConfig(
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        mlp_dim=32,
        patch_size=4,
        image_size=16,
        num_classes=2,
    )
    run = keras_vit.finetune(
        keras_vit.ViT(config),
        (images, labels),
        (images, labels),
        augmentation=[cv.RandAugment(value_range=RANGE, magnitude=0.2), cv.MixUp(alpha=0.2)],
        directory=tmp_path,
        epochs=6,
        batch_size=12,
        learning_rate=0.05,
        verbose=0,
    )
    assert run.metrics["val_accuracy"] == 1.0
    assert '"RandAugment",\n      "MixUp"' in (tmp_path / "run.json").read_text()


def test_layers_by_name(cv):
    """What KerasCV 0.9.0 has for classification, single and nested, in our graph."""
    pipeline = cv.RandomAugmentationPipeline([cv.GridMask(), cv.ChannelShuffle()], 1)
    changes = [
        cv.AugMix(value_range=RANGE),
        cv.AutoContrast(value_range=RANGE),
        cv.Equalization(value_range=RANGE),
        cv.Posterization(value_range=RANGE, bits=4),
        cv.RandomApply(cv.ChannelShuffle(), rate=0.5),
        cv.RandomCutout(0.3, 0.3),
        cv.RandomHue(0.3, value_range=RANGE),
        cv.RandomChoice([cv.GridMask(), cv.RandomFlip()]),
        pipeline,
    ]
    mixes = [
        cv.CutMix(alpha=1.0),
        cv.FourierMix(),
        cv.Augmenter([cv.RandAugment(value_range=RANGE), cv.MixUp()]),
    ]
    assert not any(map(mixes_labels, changes))
    assert all(map(mixes_labels, mixes))
    check_augmentations(as_augmentations(changes), (16, 24, 3), 5)
    check_augmentations(as_augmentations(mixes), (16, 24, 3), 5)


def test_other_pixels_are_refused(cv):
    with pytest.raises(ValueError, match=r"RandAugment with value_range=\(0, 1\)"):
        as_augmentations(cv.Augmenter([cv.RandAugment(value_range=(0, 1))]))
    # It takes 0..1 only, and has no argument that says so.
    with pytest.raises(ValueError, match="`augmentation` must be pixels 0..255"):
        check_augmentations([cv.RandomJpegQuality((50, 90))], (16, 24, 3), 5)
