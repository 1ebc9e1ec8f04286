"""FAULTS A5, A6, D6, F7, G1; TRAPS 3, 10, 11, 15."""

import base64
import io
import json
import os
import pathlib
import resource
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow.python.util import _pywrap_util_port

from keras_vit.config import MixerConfig, PreprocessingConfig, ViTConfig
from keras_vit.exporters import EXPORTERS, export, saved_model
from keras_vit.mixer import Mixer
from keras_vit.model import ViT

LABELS = ("bee", "cat", "dog", "élan", "fox")
SERVE = pathlib.Path(__file__).with_name("serve_with_tensorflow.py")


def tiny(seed=0, labels=LABELS, preprocessing=None, dtype=None, include=True, **fields):
    config = ViTConfig(
        **{
            "num_layers": 2,
            "num_heads": 2,
            "hidden_dim": 16,
            "mlp_dim": 32,
            "patch_size": 4,
            "image_size": 16,
            "num_classes": 5,
            **fields,
        }
    )
    keras.utils.set_random_seed(seed)
    model = ViT(config, preprocessing, labels, include, dtype=dtype)
    if config.num_classes:
        kernel = model.get_layer("head").kernel
        kernel.assign(np.random.default_rng(seed).normal(size=kernel.shape))
    return model


def small(seed=0, **fields):
    """Without signatures of encoded pictures, whose graph takes most of an export's time."""
    return tiny(seed, **{"num_channels": 4, "num_layers": 1, **fields})


def pixels(batch=1, height=16, width=16, channels=4):
    shape = (batch, height, width, channels)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def photo(height, width, seed=0):
    noise = np.random.default_rng(seed).integers(0, 256, (9, 11, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC))


def encode(image, form="PNG", **options):
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, form, **options)
    return buffer.getvalue()


def names(directory):
    return sorted(entry.name for entry in directory.iterdir())


def serve(tmp_path, requests):
    """The answers to `(directory, signature, argument, value)`, out of one other process."""
    arrays = {}
    for number, (directory, signature, argument, value) in enumerate(requests):
        if argument == "encoded":
            value = [base64.b64encode(one) for one in value]
        arrays[f"{number}|{directory}|{signature}|{argument}"] = np.asarray(value)
    np.savez(tmp_path / "requests.npz", **arrays)
    command = [sys.executable, str(SERVE), "requests.npz", "answers.npz"]
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ""}, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    answers = [{} for _ in requests]
    for key, value in np.load(tmp_path / "answers.npz").items():
        number, name = key.split("|")
        answers[int(number)][name] = value
    return answers


def check_predictions(answer, logits, labels, top_k):
    np.testing.assert_allclose(answer["logits"], logits, atol=1e-5)
    probabilities = keras.ops.convert_to_numpy(keras.ops.softmax(logits))
    np.testing.assert_allclose(answer["probabilities"], probabilities, atol=1e-5)
    best = np.argsort(-probabilities, axis=-1)[:, :top_k]
    np.testing.assert_allclose(
        answer["scores"], np.take_along_axis(probabilities, best, -1), atol=1e-5
    )
    named = [[name.decode() for name in row] for row in answer["labels"]]
    assert named == [[labels[index] for index in row] for row in best]


def test_with_tensorflow_alone(tmp_path):
    """FAULTS D6, G1; TRAPS 3, 11, 15: another process, other sizes, batches of 1 and 3."""
    model = tiny(preprocessing=PreprocessingConfig(antialias=True))
    path = export(model, tmp_path / "out", top_k=3)
    assert path == tmp_path / "out"
    one, three = photo(20, 31)[None], np.stack([photo(40, 24, seed) for seed in range(3)])
    fractions = one.astype(np.float32) + np.float32(0.4)
    exif = Image.Exif()
    exif[0x0112] = 6
    files = [
        encode(photo(50, 30)),
        encode(photo(16, 48), "WEBP", lossless=True),
        encode(photo(33, 21), "JPEG", quality=90),
        encode(photo(33, 21), "JPEG", exif=exif),
        encode(photo(18, 22), "GIF"),
    ]
    opened = [Image.open(io.BytesIO(file)) for file in files]
    black = np.zeros((1, 16, 16, 3), np.float32)
    served = [
        (path, "serving_default", "images", one, one),
        (path, "serving_default", "images", three, three),
        (path, "serve_float", "images", fractions, fractions),
        (path, "serve_float", "images", three.astype(np.float32), three),
        (path, "serve_float", "images", black, black),
        (path, "serve_bytes", "encoded", files[:1], opened[:1]),
        (path, "serve_bytes", "encoded", files, opened),
    ]
    others = [
        (path, "embed", "images", three),
        (path, "embed_bytes", "encoded", files),
        (path, "serve_float", "images", fractions / 256),
        (path, "serve_float", "images", fractions * np.nan),
        (path, "serve_bytes", "encoded", [b"no picture"]),
    ]
    answers = serve(tmp_path, [request[:4] for request in served] + others)
    for (*_, pictures), answer in zip(served, answers, strict=False):
        logits = model.predict(model.preprocess(pictures), verbose=0)
        check_predictions(answer, logits, LABELS, 3)
    features, file_features, scaled, nan, no_picture = answers[len(served) :]
    pooled = model.intermediates(["pooled"])
    for answer, pictures in ((features, three), (file_features, opened)):
        expected = pooled.predict(model.preprocess(pictures), verbose=0)["pooled"]
        assert answer["features"].shape == (len(pictures), 16)
        np.testing.assert_allclose(answer["features"], expected, atol=1e-5)
    assert b"must be pixels 0..255" in scaled["error"].item()
    assert b"NaN" in nan["error"].item()
    assert "error" in no_picture


def test_description_for_clients(tmp_path):
    rule = PreprocessingConfig(interpolation="bicubic", antialias=True, resize="crop")
    export(small(preprocessing=rule), tmp_path / "out")
    text = (tmp_path / "out" / "assets.extra" / "keras_vit.json").read_text("utf-8")
    assert json.loads(text) == {
        "labels": list(LABELS),
        "multi_label": False,
        "image_size": [16, 16],
        "num_channels": 4,
        "preprocessing": rule.for_channels(4).to_dict(),
    }


def test_weights_are_stored_once(tmp_path):
    model = small(hidden_dim=256, mlp_dim=1024)
    export(model, tmp_path / "out")
    stored = sum(file.stat().st_size for file in (tmp_path / "out" / "variables").iterdir())
    assert 1.0 < stored / (4 * model.count_params()) < 1.1


def reloaded(model, tmp_path):
    model.save(tmp_path / "model.keras")
    return keras.saving.load_model(tmp_path / "model.keras")


def fitted(model, tmp_path):
    model.compile("sgd", "sparse_categorical_crossentropy")
    model.fit(pixels(), np.array([1]), verbose=0)
    return model


def quantized(model, tmp_path):
    model.quantize("int8")
    return model


@pytest.mark.parametrize("change", [fitted, reloaded, quantized])
def test_after(change, tmp_path):
    """FAULTS F7: export after fit, after a `.keras` reload, after quantization."""
    model = change(small(), tmp_path)
    export(model, tmp_path / "out")
    images = pixels(height=20, width=31)
    answer = tf.saved_model.load(tmp_path / "out").signatures["serving_default"](
        images=tf.constant(images)
    )
    expected = model.predict(model.preprocess(images), verbose=0)
    np.testing.assert_allclose(answer["logits"], expected, atol=1e-5)
    assert answer["labels"].shape == (1, 5)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(dtype, tmp_path):
    model = small(dtype=dtype)
    export(model, tmp_path / "out")
    loaded = tf.saved_model.load(tmp_path / "out")
    images = pixels()
    answer = loaded.signatures["serving_default"](images=tf.constant(images))
    assert answer["logits"].dtype == tf.float32
    np.testing.assert_allclose(answer["logits"], model.predict(images, verbose=0), atol=0.05)
    assert loaded.signatures["embed"](images=tf.constant(images))["features"].dtype == tf.float32


def test_features_are_pooled_before_the_tanh_layer(tmp_path):
    model = small(representation_size=8)
    export(model, tmp_path / "out")
    signatures = tf.saved_model.load(tmp_path / "out").signatures
    assert signatures["embed"](images=tf.constant(pixels()))["features"].shape == (1, 16)


def test_model_without_classes(tmp_path):
    model = small(num_classes=0, labels=None)
    export(model, tmp_path / "out")
    signatures = tf.saved_model.load(tmp_path / "out").signatures
    images = pixels()
    for name in ("serving_default", "embed"):
        answer = signatures[name](images=tf.constant(images))
        assert list(answer) == ["features"]
        np.testing.assert_allclose(answer["features"], model.predict(images, verbose=0), atol=1e-5)


def test_signatures_normalise_for_a_model_that_does_not(tmp_path):
    """FAULTS D1, D6: clients send pixels, whatever the model takes."""
    rule = PreprocessingConfig(mean=(0.4, 0.5, 0.6, 0.7), std=(0.2, 0.3, 0.4, 0.5))
    model = small(preprocessing=rule, include=False)
    export(model, tmp_path / "out")
    images = pixels()
    answer = tf.saved_model.load(tmp_path / "out").signatures["serving_default"](
        images=tf.constant(images)
    )
    normalised = (images / 255.0 - np.array(rule.mean)) / np.array(rule.std)
    expected = model.predict(normalised.astype(np.float32), verbose=0)
    np.testing.assert_allclose(answer["logits"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("channels", "image_size"),
    [(1, (16, 32)), (2, (32, 16)), (4, (16, 32)), (13, (32, 16))],
    ids=str,
)
def test_other_channels_and_an_oblong_size(channels, image_size, tmp_path):
    """FAULTS A2, B1: encoded pictures are grey or RGB, so only such models take them."""
    model = tiny(num_channels=channels, image_size=image_size)
    export(model, tmp_path / "out")
    signatures = tf.saved_model.load(tmp_path / "out").signatures
    images = pixels(2, 20, 28, channels)
    expected = model.predict(model.preprocess(images), verbose=0)
    answer = signatures["serving_default"](images=tf.constant(images))
    np.testing.assert_allclose(answer["logits"], expected, atol=1e-5)
    assert ("serve_bytes" in signatures) == ("embed_bytes" in signatures) == (channels == 1)


ARCHITECTURES = [
    {"stem_layers": (2, 1), "stem_width": 32, "patch_size": 1},
    {"pool": "map", "class_token": False, "num_register_tokens": 2, "qk_norm": True},
    {"distillation_token": True, "layer_scale_init": 0.1},
    {"axial": True, "class_token": False, "pool": "mean", "position_embedding": "sincos_2d"},
    {"position_embedding": "relative", "gated_mlp": True, "activation": "silu"},
    {"remat": True, "final_norm": "none", "position_insertion": "every_block"},
]


@pytest.mark.parametrize("fields", ARCHITECTURES, ids=str)
def test_every_architecture_is_exported(fields, tmp_path, random_weights):
    """FAULTS F7."""
    config = ViTConfig(
        **{
            **dict(num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32, patch_size=4),
            **dict(image_size=16, num_channels=4, num_classes=5),
            **fields,
        }
    )
    check_export(random_weights(ViT(config)), tmp_path)


def test_mixer_is_exported(tmp_path, random_weights):
    config = MixerConfig(
        num_layers=2,
        hidden_dim=16,
        tokens_mlp_dim=8,
        channels_mlp_dim=32,
        patch_size=4,
        image_size=16,
        num_channels=4,
        num_classes=5,
    )
    check_export(random_weights(Mixer(config)), tmp_path)


def check_export(model, tmp_path):
    served = tf.saved_model.load(str(export(model, tmp_path / "export")))
    images = pixels(3)
    answer = served.signatures["serving_default"](images=tf.constant(images))
    logits = model.predict(images, verbose=0)
    np.testing.assert_allclose(answer["logits"], logits, atol=1e-5)
    features = served.signatures["embed"](images=tf.constant(images))["features"]
    np.testing.assert_allclose(features, model.reset_head(0)(images), atol=1e-5)


def test_multi_label_probabilities_are_sigmoids(tmp_path):
    model = small()
    model.multi_label = True
    served = tf.saved_model.load(str(export(model, tmp_path / "export")))
    answer = served.signatures["serving_default"](images=tf.constant(pixels(2)))
    np.testing.assert_allclose(
        answer["probabilities"], 1 / (1 + np.exp(-answer["logits"])), atol=1e-6
    )
    description = json.loads((tmp_path / "export/assets.extra/keras_vit.json").read_text("utf-8"))
    assert description["multi_label"] is True


def test_labels_and_top_k(tmp_path):
    export(small(labels=None), tmp_path / "numbers", top_k=99)
    export(small(), tmp_path / "given", labels=list("vwxyz"), top_k=1)
    images = pixels()
    for name, width, known in (("numbers", 5, "01234"), ("given", 1, "vwxyz")):
        answer = tf.saved_model.load(tmp_path / name).signatures["serving_default"](
            images=tf.constant(images)
        )
        labels = [label.decode() for label in answer["labels"].numpy()[0]]
        assert len(labels) == width == len(set(labels)) and set(labels) <= set(known)


def test_model_graph_has_no_resize(tmp_path):
    """FAULTS A5, A6: resizing belongs to the signatures, so the model compiles under XLA."""
    model = tiny()
    graph = tf.function(lambda images: model(images)).get_concrete_function(
        tf.TensorSpec((None, 16, 16, 3))
    )
    kinds = {operation.type for operation in graph.graph.get_operations()}
    assert "MatMul" in kinds or "BatchMatMulV2" in kinds
    assert not [kind for kind in kinds if "Resize" in kind or "ScaleAndTranslate" in kind]
    model.compile("sgd", "sparse_categorical_crossentropy", jit_compile=True)
    history = model.fit(photo(16, 16)[None], np.array([1]), verbose=0)
    assert np.isfinite(history.history["loss"][0])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.1)])
def test_target_cpu_answers_the_same(dtype, tolerance, tmp_path):
    model = small(dtype=dtype)
    answers = []
    for target in ("any", "cpu"):
        export(model, tmp_path / target, target=target)
        served = tf.saved_model.load(str(tmp_path / target))
        images = tf.constant(pixels(5))
        answers.append(served.signatures["serving_default"](images=images)["logits"])
        answers.append(served.signatures["embed"](images=images)["features"])
    np.testing.assert_allclose(answers[2], answers[0], atol=tolerance)
    np.testing.assert_allclose(answers[3], answers[1], atol=tolerance)


@pytest.mark.parametrize("fails", [False, True])
def test_target_cpu_leaves_the_model_as_it_was(fails, tmp_path):
    model = small(hidden_dim=32)
    weights, answer = model.get_weights(), model.predict(pixels(), verbose=0)
    if fails:
        (tmp_path / "cpu").touch()
        with pytest.raises(FileExistsError):
            export(model, tmp_path / "cpu", target="cpu")
    else:
        export(model, tmp_path / "cpu", target="cpu")
    for after, before in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(after, before)
    np.testing.assert_array_equal(model.predict(pixels(), verbose=0), answer)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_target_cpu_runs_fused_operations(dtype, tmp_path, fused_operations):
    if not _pywrap_util_port.IsMklEnabled():
        pytest.skip("this TensorFlow has no oneDNN to fuse with")
    # The scale of heads of 16 is a power of 2.
    model = small(num_layers=2, dtype=dtype, hidden_dim=32)
    export(model, tmp_path / "cpu", target="cpu")
    served = tf.saved_model.load(str(tmp_path / "cpu"))
    images = tf.constant(pixels(5))
    found = fused_operations(lambda: served.signatures["serving_default"](images=images))
    depth = model.config.num_layers
    assert found["_MklLayerNorm"] == 2 * depth + 1
    assert found["_FusedMatMul BiasAdd,Add"] == 2 * depth
    assert found["Mul"] == 1  # of the pixels; none of queries with their scale
    assert found["Cast"] <= 3  # pixels in, logits and probabilities out


def test_argument_errors(tmp_path):
    model, path = small(), tmp_path / "out"
    for arguments, message in (
        ({"format": "saved_model"}, "Unknown `format`.*tf_saved_model"),
        ({"labels": ["a", "b"]}, "2 labels, num_classes=5"),
        ({"target": "gpu"}, "Unknown `target`.*Did you mean: cpu"),
        ({"top_k": 0}, "`top_k` must be a positive integer"),
        ({"top_k": True}, "`top_k` must be a positive integer"),
    ):
        with pytest.raises(ValueError, match=message):
            export(model, path, **arguments)
    with pytest.raises(ValueError, match="`model` must be a `keras_vit.ViT`.*Received: Sequential"):
        export(keras.Sequential(), path)
    assert list(EXPORTERS) == ["tf_saved_model"]
    assert not list(tmp_path.iterdir())


def test_other_backends(tmp_path, monkeypatch):
    """TRAPS 10: encoded pictures are TensorFlow's."""
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="KERAS_BACKEND=tensorflow"):
        export(small(), tmp_path / "out")


def test_overwrite(tmp_path):
    path = tmp_path / "made" / "on the way" / "out"
    export(small(seed=1), path)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        export(small(), path)
    model = small(seed=2)
    export(model, path, overwrite=True)
    images = pixels()
    answer = tf.saved_model.load(path).signatures["serving_default"](images=tf.constant(images))
    np.testing.assert_allclose(answer["logits"], model.predict(images, verbose=0), atol=1e-5)
    assert names(path.parent) == ["out"]


def test_only_an_export_is_overwritten(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").touch()
    for name in ("notes", "file"):
        with pytest.raises(FileExistsError, match="earlier export of this package only"):
            export(small(), tmp_path / name, overwrite=True)
    assert names(tmp_path) == ["file", "notes"]


def test_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="`path` cannot be written.*Nothing was left there"):
        export(small(), tmp_path / "file" / "out")
    assert names(tmp_path) == ["file"]


def test_overwrite_spares_what_is_not_ours(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "saved_model.pb").write_bytes(b"somebody's")
    with pytest.raises(FileExistsError, match="earlier export of this package only"):
        export(small(), tmp_path / "theirs", overwrite=True)
    assert (tmp_path / "theirs" / "saved_model.pb").read_bytes() == b"somebody's"


@pytest.mark.parametrize("overwrite", [False, True])
def test_no_space(overwrite, tmp_path):
    """A disk that fills up, by the process's own limit: nothing is left, an old export stays."""
    path = tmp_path / "new" / "out"
    if overwrite:
        export(small(), path)
    before = sorted(tmp_path.rglob("*"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="`path` cannot be written"):
            export(small(), path, overwrite=overwrite)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(tmp_path.rglob("*")) == before


def test_old_export_survives_a_failed_exchange(tmp_path, monkeypatch):
    path = tmp_path / "out"
    export(small(), path)
    rename = pathlib.Path.rename

    def failing(self, target):
        if self.name == "new":
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(pathlib.Path, "rename", failing)
    with pytest.raises(OSError, match="Input/output error"):
        export(small(), path, overwrite=True)
    assert names(tmp_path) == ["out"] and (path / "saved_model.pb").is_file()


def test_interrupt_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(saved_model.json, "dumps", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export(small(), tmp_path / "new" / "out")
    assert not names(tmp_path)
