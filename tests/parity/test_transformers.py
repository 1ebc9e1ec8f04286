"""transformers itself, on fresh random models: its logits are ours, and it loads what we save."""

import numpy as np
import pytest

import keras_vit

pytestmark = pytest.mark.parity

SHAPES = {
    "plain": dict(image_size=32, patch_size=8),
    "wide": dict(image_size=(32, 48), patch_size=8, num_labels=3),
    "one_channel_no_bias": dict(image_size=32, patch_size=16, num_channels=1, qkv_bias=False),
    "tanh_gelu": dict(image_size=24, patch_size=4, hidden_act="gelu_new", layer_norm_eps=1e-6),
    "deep_and_narrow": dict(image_size=16, patch_size=4, num_hidden_layers=7, hidden_size=24),
}


def _random_model(kind: str, **fields):
    import torch
    import transformers

    torch.manual_seed(0)
    defaults = dict(
        hidden_size=48,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=96,
        num_labels=7,
        initializer_range=0.3,
    )
    config = transformers.ViTConfig(**{**defaults, **fields})
    return getattr(transformers, kind)(config).eval()


def _images(model) -> np.ndarray:
    height, width = model.config.image_size
    shape = (3, height, width, model.config.num_channels)
    return np.random.default_rng(0).uniform(-1, 1, shape).astype("float32")


def _run(torch_model, images: np.ndarray):
    import torch

    with torch.no_grad():
        pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
        return torch_model(pixels, output_hidden_states=True)


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_of_a_fresh_random_model(shape, tmp_path):
    theirs = _random_model("ViTForImageClassification", **SHAPES[shape])
    theirs.save_pretrained(tmp_path)
    ours = keras_vit.from_pretrained(tmp_path, include_normalization=False)
    images = _images(ours)
    expected = _run(theirs, images)
    names = [f"block_{i}" for i in range(ours.config.num_layers)]
    values = ours.intermediates(["embeddings", *names, "logits"])(images)
    for name, hidden in zip(["embeddings", *names], expected.hidden_states, strict=True):
        scale = max(1.0, float(hidden.abs().max()))
        np.testing.assert_allclose(values[name], hidden.numpy(), atol=2e-5 * scale)
    scale = max(1.0, float(expected.logits.abs().max()))
    np.testing.assert_allclose(values["logits"], expected.logits.numpy(), atol=2e-5 * scale)


def test_pooler_of_a_fresh_random_model(tmp_path):
    theirs = _random_model("ViTModel", image_size=32, patch_size=8)
    theirs.save_pretrained(tmp_path)
    ours = keras_vit.from_pretrained(tmp_path, include_normalization=False)
    images = _images(ours)
    np.testing.assert_allclose(ours(images), _run(theirs, images).pooler_output, atol=2e-5)


def test_positions_interpolated_as_transformers_does(tmp_path):
    """FAULTS A1: `interpolate_pos_encoding` at another size."""
    import torch

    theirs = _random_model("ViTForImageClassification", image_size=32, patch_size=8)
    theirs.save_pretrained(tmp_path)
    ours = keras_vit.from_pretrained(tmp_path, image_size=56, include_normalization=False)
    images = _images(ours)
    with torch.no_grad():
        pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
        expected = theirs(pixels, interpolate_pos_encoding=True).logits
    scale = max(1.0, float(expected.abs().max()))
    np.testing.assert_allclose(ours(images), expected.numpy(), atol=2e-5 * scale)


@pytest.mark.parametrize("shape", SHAPES)
def test_transformers_loads_what_we_save(shape, tmp_path):
    import transformers

    theirs = _random_model("ViTForImageClassification", **SHAPES[shape])
    theirs.save_pretrained(tmp_path / "source")
    ours = keras_vit.from_pretrained(tmp_path / "source", include_normalization=False)
    keras_vit.save_pretrained(ours, tmp_path / "saved")
    again, report = transformers.ViTForImageClassification.from_pretrained(
        tmp_path / "saved", output_loading_info=True
    )
    assert not report["missing_keys"] and not report["unexpected_keys"]
    for name, tensor in theirs.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name], tensor)
    images = _images(ours)
    np.testing.assert_allclose(
        _run(again.eval(), images).logits, _run(theirs, images).logits, atol=1e-5
    )
    assert again.config.id2label == theirs.config.id2label


def test_pixels_prepared_as_transformers_does(tmp_path):
    """FAULTS D2: the PIL backend, to one level of 255, on a picture that is not square."""
    import transformers
    from PIL import Image

    theirs = _random_model("ViTForImageClassification", image_size=32, patch_size=8)
    theirs.save_pretrained(tmp_path)
    ours = keras_vit.from_pretrained(tmp_path)
    noise = np.random.default_rng(0).integers(0, 256, (75, 100, 3)).astype("uint8")
    picture = Image.fromarray(noise)
    processor = transformers.ViTImageProcessorPil(size={"height": 32, "width": 32})
    expected = processor(picture, return_tensors="np")["pixel_values"].transpose(0, 2, 3, 1)
    levels = expected * 127.5 + 127.5
    assert np.abs(ours.preprocess(picture) - levels).max() <= 1.0
