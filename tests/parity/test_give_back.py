"""Models fine-tuned here load in the installed timm, and give the same logits within 1e-5."""

import dataclasses
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import keras_vit
from keras_vit import PreprocessingConfig, ViTConfig
from keras_vit.zoo import timm_writing

sys.path.append(str(pathlib.Path(__file__).parents[1] / "zoo"))

from hub_server import GOOD_TOKEN, HubServer

pytestmark = pytest.mark.parity
# triton's library, loaded after TensorFlow's, kills the process; torch does without triton.
sys.modules.setdefault("triton", None)

IMAGENET = PreprocessingConfig(
    mean=(0.485, 0.456, 0.406),
    std=(0.229, 0.224, 0.225),
    interpolation="bicubic",
    antialias=True,
    resize="crop",
    crop_fraction=0.9,
)
SMALL = ViTConfig(
    num_layers=2,
    num_heads=4,
    hidden_dim=48,
    mlp_dim=100,
    patch_size=8,
    image_size=32,
    num_classes=5,
    activation="gelu",
)
HYBRID = {"patch_size": 1, "image_size": 64, "stem_numerics": "timm", "num_layers": 1}
MODELS = {
    "token": {},
    "tanh_gelu": {"activation": "gelu_tanh"},
    "features": {"num_classes": 0},
    "mean_with_norm_after": {"pool": "mean", "final_norm": "pool"},
    "mean_without_class_token": {"pool": "mean", "class_token": False},
    "token_with_norm_after": {"final_norm": "pool"},
    "no_norm": {"final_norm": "none"},
    "siglip": {"pool": "map", "class_token": False},
    "map_with_registers": {"pool": "map", "num_register_tokens": 2, "final_norm": "pool"},
    "dinov2_registers": {
        "num_register_tokens": 4,
        "layer_scale_init": 1e-5,
        "num_prefix_positions": 0,
        "patch_size": 14,
        "image_size": 42,
    },
    "registers_with_positions": {"num_register_tokens": 1, "layer_scale_init": 0.1},
    "clip": {
        "embedding_norm": True,
        "patch_bias": False,
        "layer_norm_epsilon": 1e-5,
        "activation": "quick_gelu",
    },
    "epsilon_1e-5_alone": {"layer_norm_epsilon": 1e-5},
    "pre_norm_alone": {"embedding_norm": True, "patch_bias": False},
    "qk_norm": {"qk_norm": True, "qkv_bias": False},
    "swiglu": {"gated_mlp": True, "activation": "silu", "layer_scale_init": 1e-5},
    "geglu_without_scale": {"gated_mlp": True},
    "silu": {"activation": "silu"},
    "no_positions": {"position_embedding": "none"},
    "deit_distilled": {"distillation_token": True},
    "distilled_features": {"distillation_token": True, "num_classes": 0, "final_norm": "none"},
    "oblong_grey": {"image_size": (16, 48), "patch_size": (4, 8), "num_channels": 1},
    "five_channels": {"num_channels": 5},
    "hybrid_root": HYBRID | {"stem_layers": (), "patch_size": 4},
    "hybrid_r26": HYBRID | {"stem_layers": (2, 2, 2, 2)},
    "hybrid_r50": HYBRID | {"stem_layers": (3, 4, 9), "num_channels": 1},
    "hybrid_r50_s32": HYBRID | {"stem_layers": (3, 4, 6, 3)},
}


def _fine_tuned(config: ViTConfig, **arguments) -> keras_vit.ViT:
    """A model after one step of `fit`, every weight of it first moved from its initial value."""
    model = keras_vit.ViT(config, IMAGENET, **arguments)
    random = np.random.default_rng(0)
    for variable in model.weights:
        if "int" not in variable.dtype:
            noise = random.normal(size=variable.shape) * (0.3 if len(variable.shape) < 3 else 0.02)
            variable.assign_add(noise * (0.2 if len(variable.shape) == 2 else 1.0))
    images = random.integers(0, 256, (8, *config.image_size, config.num_channels))
    before = [variable.numpy() for variable in model.trainable_weights]
    if config.num_classes:
        recipe = keras_vit.recipe("paper_sgd")
        model.compile(**recipe.compile_arguments(total_steps=1, warmup_steps=0))
        labels = random.integers(0, config.num_classes, 8)
    else:
        model.compile("sgd", "mse")
        labels = np.zeros((8, *model.output_shape[1:]))
    model.fit(images, labels, verbose=0)
    after = [variable.numpy() for variable in model.trainable_weights]
    moved = [not np.array_equal(*pair) for pair in zip(before, after, strict=True)]
    assert np.mean(moved) > 0.9
    return model


def _pixels(model: keras_vit.ViT) -> np.ndarray:
    shape = (3, *model.config.image_size, model.config.num_channels)
    return np.random.default_rng(1).integers(0, 256, shape).astype("float32")


def _their_logits(theirs, model: keras_vit.ViT) -> np.ndarray:
    """What a torch model makes of the same pixels, normalised as `model` says."""
    import torch

    mean, std = (np.float32(v) for v in (model.preprocessing.mean, model.preprocessing.std))
    images = ((_pixels(model) / np.float32(255.0) - mean) / std).transpose(0, 3, 1, 2)
    with torch.no_grad():
        outputs = theirs.eval()(torch.from_numpy(images.copy()))
    return getattr(outputs, "logits", outputs).numpy()


@pytest.mark.parametrize("name", MODELS)
def test_timm_has_the_same_logits(name, tmp_path):
    import timm

    model = _fine_tuned(dataclasses.replace(SMALL, **MODELS[name]))
    assert keras_vit.save_pretrained(model, tmp_path, layout="timm") == "timm"
    theirs = timm.create_model(f"local-dir:{tmp_path}", pretrained=True)
    ours = model.predict(_pixels(model), verbose=0)
    assert 0.05 < ours.std() < 20.0
    difference = np.abs(_their_logits(theirs, model) - ours).max()
    assert difference <= 1e-5
    again = keras_vit.from_pretrained(tmp_path)
    assert again.config == model.config
    np.testing.assert_array_equal(again.predict(_pixels(model), verbose=0), ours)


def test_a_fine_tuned_head_and_what_else_timm_is_told(tmp_path):
    """SigLIP with a new head: labels, preprocessing and the number of classes."""
    import timm

    config = dataclasses.replace(SMALL, num_classes=0, pool="map", class_token=False)
    keras_vit.save_pretrained(keras_vit.ViT(config, IMAGENET), tmp_path / "base", layout="timm")
    base = keras_vit.from_pretrained(tmp_path / "base", num_classes=3)
    base.labels = ("cat", "dög", "owl")
    keras_vit.save_pretrained(base, tmp_path / "tuned", layout="timm")
    theirs = timm.create_model(f"local-dir:{tmp_path / 'tuned'}", pretrained=True)
    assert theirs.num_classes == 3 and theirs.pretrained_cfg["label_names"][1] == "dög"
    data = timm.data.resolve_model_data_config(theirs)
    assert (data["input_size"], data["crop_pct"]) == ((3, 32, 32), 0.9)
    assert (tuple(data["mean"]), tuple(data["std"])) == (IMAGENET.mean, IMAGENET.std)
    headless = timm.create_model(f"local-dir:{tmp_path / 'tuned'}", pretrained=True, num_classes=0)
    features = keras_vit.from_pretrained(tmp_path / "tuned", num_classes=0)
    expected = features.predict(_pixels(features), verbose=0)
    np.testing.assert_allclose(_their_logits(headless, features), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["token", "oblong_grey", "mean_with_norm_after"])
def test_transformers_wraps_what_is_written_for_timm(name, tmp_path):
    import transformers

    config = dataclasses.replace(SMALL, **MODELS[name])
    model = _fine_tuned(config, labels=tuple("abcde"), multi_label=True)
    keras_vit.save_pretrained(model, tmp_path, layout="timm")
    theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path)
    ours = model.predict(_pixels(model), verbose=0)
    np.testing.assert_allclose(_their_logits(theirs, model), ours, atol=1e-5)
    assert theirs.config.id2label == dict(enumerate("abcde"))
    assert theirs.config.problem_type == "multi_label_classification"
    theirs.save_pretrained(tmp_path / "wrapped")
    again = keras_vit.from_pretrained(tmp_path / "wrapped")
    np.testing.assert_array_equal(again.predict(_pixels(model), verbose=0), ours)


@pytest.mark.parametrize(
    ("fields", "layout"),
    [
        ({}, "hf"),
        ({"layer_norm_epsilon": 1e-12}, "hf"),
        ({"qk_norm": True}, "timm"),
        ({"gated_mlp": True, "activation": "silu", "pool": "mean"}, "timm"),
        ({"representation_size": 24}, "native"),
    ],
    ids=str,
)
def test_the_layout_that_is_chosen_loads_in_its_library(fields, layout, tmp_path):
    import timm
    import transformers

    model = _fine_tuned(dataclasses.replace(SMALL, **fields))
    assert keras_vit.save_pretrained(model, tmp_path) == layout
    ours = model.predict(_pixels(model), verbose=0)
    if layout == "hf":
        theirs = transformers.AutoModelForImageClassification.from_pretrained(tmp_path)
    elif layout == "timm":
        theirs = timm.create_model(f"local-dir:{tmp_path}", pretrained=True)
    else:
        again = keras_vit.from_pretrained(tmp_path).predict(_pixels(model), verbose=0)
        np.testing.assert_array_equal(again, ours)
        return
    np.testing.assert_allclose(_their_logits(theirs, model), ours, atol=1e-5)


def test_timm_reads_an_npz_of_ours_as_one_of_googles(tmp_path):
    """timm's own loader of the official files; its numerics are another's (exact GELU)."""
    import timm

    config = dataclasses.replace(SMALL, activation="gelu_tanh")
    model = _fine_tuned(config)
    model = keras_vit.ViT(config, read_weights=_reader(model))  # the official preprocessing
    keras_vit.save_pretrained(model, tmp_path, layout="npz")
    theirs = timm.create_model(
        "vit_base_patch8_224",
        act_layer="gelu_tanh",
        **{"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4},
        mlp_ratio=timm_writing._ratio(100, 48),
        num_classes=5,
    )
    theirs.load_pretrained(str(tmp_path / "model.npz"))
    ours = model.predict(_pixels(model), verbose=0)
    np.testing.assert_allclose(_their_logits(theirs, model), ours, atol=1e-5)


def _reader(model):
    values = {variable.path: variable.numpy() for variable in model.weights}
    return lambda path, shape: values[path]


TIMM = """
import sys
import numpy as np, timm, torch
theirs = timm.create_model("hf-hub:org/pushed", pretrained=True).eval()
with torch.no_grad():
    outputs = theirs(torch.from_numpy(np.load(sys.argv[1]))).numpy()
np.save(sys.argv[2], outputs)
"""
PUSH = """
import sys
import keras_vit
model = keras_vit.from_pretrained(sys.argv[1])
keras_vit.push_to_hub(model, "org/pushed", layout="timm")
"""


def test_timm_loads_from_the_hub_what_was_pushed(tmp_path):
    model = _fine_tuned(SMALL)
    keras_vit.save_pretrained(model, tmp_path / "model", layout="native")
    images = (_pixels(model) / 255.0 - IMAGENET.mean) / IMAGENET.std
    np.save(tmp_path / "images.npy", images.transpose(0, 3, 1, 2).astype("float32"))
    with HubServer() as server:
        for script, arguments in ((PUSH, ["model"]), (TIMM, ["images.npy", "logits.npy"])):
            done = subprocess.run(
                [sys.executable, "-c", script, *(str(tmp_path / name) for name in arguments)],
                env=server.environment(tmp_path / "home", HF_TOKEN=GOOD_TOKEN),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stderr
    ours = model.predict(_pixels(model), verbose=0)
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), ours, atol=1e-5)
