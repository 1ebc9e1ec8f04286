"""FAULTS J2: adapters and head alone, to and from a file."""

import dataclasses
import json
import pickle

import keras
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from keras_vit import Mixer, ViT
from keras_vit.lora import lora_settings


@pytest.fixture
def images():
    return np.random.default_rng(1).integers(0, 256, (4, 16, 16, 3)).astype("float32")


@pytest.fixture
def base(tiny_config, random_weights):
    """Return a function that builds the same base each time, with a head of zeros."""

    def build(dtype: str = "float32", **fields):
        model = random_weights(ViT(dataclasses.replace(tiny_config, **fields), dtype=dtype))
        for variable in model.get_layer("head").weights:
            variable.assign(np.zeros(variable.shape))
        return model

    return build


@pytest.fixture
def adapted(base, random_weights):
    """Return a function that builds the base and gives it adapters and a head, as if trained."""

    def build(dtype: str = "float32", rank: int = 4, targets=("qkv", "fc1"), **fields):
        model = base(dtype, **fields)
        model.add_lora(rank, targets=targets, alpha=8)
        rng = np.random.default_rng(2)
        for variable in model.trainable_weights:
            variable.assign(rng.normal(0.0, 0.2, variable.shape))
        model.labels = [f"class {i}" for i in range(model.config.num_classes)]
        return model

    return build


def _outputs(model, images) -> np.ndarray:
    return keras.ops.convert_to_numpy(model(images))


def _contents(path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "mixed_float16"])
def test_file_goes_on_plain_and_adapted_models(base, adapted, images, tmp_path, dtype):
    model = adapted(dtype, representation_size=7)
    path = tmp_path / "new folder" / "adapters.safetensors"
    model.save_lora(path)
    expected = _outputs(model, images)
    plain = base(dtype, representation_size=7)
    plain.compile("sgd", "mse")
    assert plain.load_lora(path) is None
    np.testing.assert_array_equal(_outputs(plain, images), expected)
    assert lora_settings(plain) == lora_settings(model) and plain.labels == model.labels
    trainable = [variable.path for variable in model.trainable_weights]
    assert [variable.path for variable in plain.trainable_weights] == trainable
    assert not plain.compiled
    other = base(dtype, representation_size=7)
    other.add_lora(4, targets=("fc1", "qkv"), alpha=8)
    other.compile("sgd", "mse")
    other.load_lora(str(path))
    np.testing.assert_array_equal(_outputs(other, images), expected)
    assert other.compiled


def test_file_is_small_and_holds_adapters_and_head_alone(adapted, tmp_path):
    path = tmp_path / "adapters.safetensors"
    model = adapted(hidden_dim=64, mlp_dim=256, rank=2, targets="qkv")
    model.save_lora(path)
    tensors, metadata = _contents(path)
    assert set(tensors) == {variable.path for variable in model.trainable_weights}
    count = 2 * 2 * (64 + 192) + 64 * 5 + 5  # two blocks of rank 2, the head
    assert path.stat().st_size < 4 * count + 2_500
    assert path.stat().st_size < 0.05 * 4 * model.count_params()
    assert metadata["format"] == "keras_vit_lora" and metadata["format_version"] == "1"
    assert json.loads(metadata["lora"]) == {"rank": 2, "targets": ["qkv"], "alpha": 8.0}
    assert json.loads(metadata["labels"])[4] == "class 4"
    assert list(tmp_path.iterdir()) == [path]


def test_a_model_of_another_image_size_takes_the_file(adapted, base, tmp_path):
    adapted().save_lora(tmp_path / "adapters.safetensors")
    model = base(dropout_rate=0.1).with_image_size(32)
    model.load_lora(tmp_path / "adapters.safetensors")
    assert lora_settings(model)["rank"] == 4


def test_a_model_that_reduces_tokens_takes_the_file(adapted, base, tmp_path):
    adapted().save_lora(tmp_path / "adapters.safetensors")
    model = base(merged_tokens_per_block=2, patch_drop_rate=0.5)
    model.load_lora(tmp_path / "adapters.safetensors")
    assert lora_settings(model)["rank"] == 4


def test_adapters_of_a_float_model_go_on_a_quantized_one(base, adapted, images, tmp_path):
    path = tmp_path / "adapters.safetensors"
    model = adapted()
    model.save_lora(path)
    quantized = base()
    quantized.quantize("int8")
    quantized.load_lora(path)
    model.quantize("int8")
    np.testing.assert_array_equal(_outputs(quantized, images), _outputs(model, images))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "mixed_bfloat16"])
def test_the_base_may_have_another_floating_point_type(base, adapted, tmp_path, dtype):
    path = tmp_path / "adapters.safetensors"
    for from_dtype, to_dtype in (("float32", dtype), (dtype, "float32")):
        source, target = adapted(from_dtype), base(to_dtype)
        source.save_lora(path)
        target.load_lora(path)
        theirs = {variable.path: np.float32(variable) for variable in source.trainable_weights}
        for variable in target.trainable_weights:
            expected = theirs.pop(variable.path)
            np.testing.assert_allclose(np.float32(variable), expected, rtol=2**-8)
        assert not theirs


def test_file_of_another_checkpoint(base, adapted, random_weights, tmp_path):
    """A base of equal shapes and other weights would answer nonsense in silence."""
    path = tmp_path / "adapters.safetensors"
    adapted().save_lora(path)
    model = random_weights(base(), seed=3)
    before = [variable.numpy() for variable in model.weights]
    with pytest.raises(ValueError, match="belongs to other weights.*from the checkpoint"):
        model.load_lora(path)
    assert lora_settings(model) is None
    for variable, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    _change_metadata(base="[]")(path, *_contents(path))  # a file of before
    model.load_lora(path)


def test_several_labels_a_picture_come_with_the_head(base, adapted, tmp_path):
    path = tmp_path / "adapters.safetensors"
    model = adapted()
    model.multi_label = True  # as `finetune` sets it
    model.save_lora(path)
    plain = base()
    plain.load_lora(path)
    assert plain.multi_label


def test_mixers_take_adapters(tiny_mixer_config, tmp_path):
    path = tmp_path / "adapters.safetensors"
    model = Mixer(tiny_mixer_config)
    with pytest.raises(ValueError, match=r"Received: 'qkv'. Known: fc1, fc2"):
        model.add_lora(2)
    model.add_lora(2, targets="fc1")
    model.save_lora(path)
    other = Mixer(dataclasses.replace(tiny_mixer_config, image_size=32))
    with pytest.raises(ValueError, match=r"token_mixing/fc1/lora_kernel_a of shape \(16, 2\)"):
        other.load_lora(path)
    with pytest.raises(ValueError, match="model='ViT'"):
        ViT.from_variant("Ti/16", num_layers=1, image_size=16).load_lora(path)


def test_saving_needs_adapters_and_the_right_ending(base, adapted, tmp_path):
    with pytest.raises(ValueError, match="no adapters to save.*add_lora"):
        base().save_lora(tmp_path / "adapters.safetensors")
    with pytest.raises(ValueError, match="must end in '.safetensors'"):
        adapted().save_lora(tmp_path / "adapters.npz")
    assert list(tmp_path.iterdir()) == []


def test_a_save_that_fails_leaves_the_old_file(adapted, tmp_path, monkeypatch):
    path = tmp_path / "adapters.safetensors"
    model = adapted()
    model.save_lora(path)
    before = path.read_bytes()

    def write_half(tensors, file, metadata):
        file.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr("keras_vit.lora.adapter_file.save_file", write_half)
    with pytest.raises(OSError, match="disk full"):
        model.save_lora(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_classes": 3}, r"num_classes=3; the file: num_classes=5.*same `num_classes`"),
        ({"num_layers": 3}, r"another model. Received: num_layers=3"),
        ({"num_heads": 4}, r"another model. Received: num_heads=4"),
        ({"hidden_dim": 32, "mlp_dim": 64}, r"hidden_dim=32, mlp_dim=64"),
        ({"class_token": False, "pool": "mean"}, r"class_token=False, pool='mean'"),
    ],
    ids=str,
)
def test_file_of_another_model(base, adapted, tmp_path, fields, message):
    path = tmp_path / "adapters.safetensors"
    adapted().save_lora(path)
    model = base(**fields)
    with pytest.raises(ValueError, match=message):
        model.load_lora(path)
    assert lora_settings(model) is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"rank": 2, "targets": ("qkv", "fc1"), "alpha": 8},
        {"rank": 4, "targets": ("qkv",), "alpha": 8},
        {"rank": 4, "targets": ("qkv", "fc1")},
    ],
    ids=str,
)
def test_file_of_other_adapters(base, adapted, tmp_path, arguments):
    path = tmp_path / "adapters.safetensors"
    adapted().save_lora(path)
    model = base()
    model.add_lora(**arguments)
    with pytest.raises(ValueError, match=r"has other adapters.*remove_lora"):
        model.load_lora(path)


def _truncate(path, tensors, metadata):
    path.write_bytes(path.read_bytes()[:-100])


def _empty(path, tensors, metadata):
    path.write_bytes(b"")


def _pickle(path, tensors, metadata):
    path.write_bytes(pickle.dumps(tensors))


def _change_tensor(name, change):
    def write(path, tensors, metadata):
        save_file({**tensors, name: change(tensors[name])}, path, metadata)

    return write


def _change_metadata(**changes):
    def write(path, tensors, metadata):
        metadata = {**metadata, **changes}
        save_file(tensors, path, {name: text for name, text in metadata.items() if text})

    return write


def _drop(name):
    def write(path, tensors, metadata):
        del tensors[name]
        save_file(tensors, path, metadata)

    return write


QKV = "block_1/attention/qkv/lora_kernel_b"
WHOLE = r"must be a whole file that `model.save_lora\(path\)` wrote"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_truncate, WHOLE),
        (_empty, WHOLE),
        (_pickle, WHOLE),
        (_change_metadata(format=""), WHOLE + ".*no adapters of keras_vit.*from_pretrained"),
        (_change_metadata(format_version="2"), "format_version 2, and this keras_vit reads 1"),
        (_change_metadata(lora="{}"), WHOLE),
        (_change_metadata(lora="no JSON"), WHOLE),
        (_change_metadata(labels=""), WHOLE),
        (_change_metadata(labels='["one"]'), "one name a class"),
        (_change_metadata(base='["x"]'), WHOLE),
        (_change_metadata(base="[1.0]"), "belongs to other weights"),
        (_change_tensor(QKV, lambda value: value * np.float32("nan")), f"NaN or.*{QKV}"),
        (_change_tensor(QKV, lambda value: value[:, :7]), rf"{QKV} of shape \(4, 7\)"),
        (_drop(QKV), f"{QKV} of shape no such tensor"),
        (_drop("head/bias"), "head/bias of shape no such tensor"),
    ],
)
def test_damaged_file_changes_nothing(base, adapted, tmp_path, damage, message):
    path = tmp_path / "adapters.safetensors"
    adapted().save_lora(path)
    damage(path, *_contents(path))
    model = base()
    values = [variable.numpy() for variable in model.weights]
    with pytest.raises(ValueError, match=message):
        model.load_lora(path)
    assert lora_settings(model) is None and len(model.trainable_weights) == len(values)
    for variable, value in zip(model.weights, values, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_missing_file(base, tmp_path):
    model = base()
    for path in (tmp_path / "missing.safetensors", tmp_path):
        with pytest.raises(FileNotFoundError, match="`model.save_lora"):
            model.load_lora(path)
