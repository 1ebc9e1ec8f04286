"""The whole catalogue, no row sampled: names, shapes, counts and fields, against the sources.

timm and transformers build on their meta device, and Keras without values, so that no weight is
ever held. An architecture is built once, however many rows share it.
"""

import collections
import dataclasses
import functools
import json
import math
import pathlib
import re
import sys

import keras
import numpy as np
import pytest

from keras_vit import resample
from keras_vit.config import ModelConfig, ViTConfig
from keras_vit.pretrained import MODELS
from keras_vit.variants import SIZES
from keras_vit.zoo import READERS, keymap, official_npz, read_checkpoint, timm_architectures
from keras_vit.zoo.catalogue import catalogue
from keras_vit.zoo.flax_layout import POSITIONS, RELEASED_NAMES
from keras_vit.zoo.keymap import Rule, their_shapes
from keras_vit.zoo.rows import ModelRow
from keras_vit.zoo.tensor_files import StoredTensor, TensorFile
from keras_vit.zoo.variables import variable_shapes

pytestmark = pytest.mark.parity
# triton's library, loaded after TensorFlow's, kills the process; torch does without triton.
sys.modules.setdefault("triton", None)

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
MODULES = ("vision_transformer", "deit", "vision_transformer_hybrid")
# 384 pixels are no whole number of patches of 14.
CUT_OFF = {"vit_so400m_patch14_siglip_384.webli", "vit_so400m_patch14_siglip_gap_384.webli"}
Shapes = dict[str, tuple[int, ...]]


class ShapesOnly(TensorFile):
    """A file of which only names and shapes are known; a head is not all zeros."""

    def read(self, name: str) -> np.ndarray:
        return np.ones(1, np.float32)


class ZeroedHead(ShapesOnly):
    def read(self, name: str) -> np.ndarray:
        return np.zeros(1, np.float32)


def _file(shapes: Shapes, kind: type = ShapesOnly) -> TensorFile:
    stored = {
        name: StoredTensor(pathlib.Path(), shape, "float32") for name, shape in shapes.items()
    }
    return kind(pathlib.Path(), stored, {})


def _rows(*readers: str) -> list[ModelRow]:
    return [row for row in catalogue().values() if row.reader in readers]


def _plain(config: ModelConfig) -> ModelConfig:
    """Without what is of training alone: the official configurations have dropout."""
    return dataclasses.replace(config, dropout_rate=0.0)


def _distinct(rows: list[ModelRow]) -> dict[ModelConfig, ModelRow]:
    """The first row of each architecture."""
    found = {}
    for row in rows:
        found.setdefault(_plain(row.config), row)
    return found


def _expected(rules: list[Rule], config: ModelConfig) -> Shapes:
    """Names and shapes of their tensors, from our key table and numpy alone."""
    variables = variable_shapes(config)
    assert {rule.ours for rule in rules} == variables.keys()
    return {
        name: shape
        for rule in rules
        for name, shape in their_shapes(rule, variables[rule.ours]).items()
    }


def _check_same(row: ModelRow, tensors: TensorFile, config_json: dict | None) -> None:
    """The reader finds the row's architecture in a source's tensors, and none too many."""
    understood = READERS[row.reader].read(tensors, config_json, row.reader_fields)
    assert _plain(understood.config) == _plain(row.config), row.id
    expected = _expected(understood.rules, row.config)
    shapes = understood.tensors.shapes
    assert expected == {name: shapes[name] for name in shapes.keys() - understood.ignored}, row.id
    assert sum(math.prod(shape) for shape in expected.values()) == row.parameters, row.id


def test_every_row_is_swept():
    """Each belongs to one of the tests below."""
    counts = collections.Counter(row.reader for row in catalogue().values())
    google = {"official_npz": 74, "big_vision_npz": 20, "mixer_npz": 11}
    assert counts == {"timm_safetensors": 306, "hf_safetensors": 81} | google


def _timm_name(row: ModelRow) -> str:
    return row.id.removesuffix("_timm")


def _shapes(model) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def test_tensors_of_timm():
    import timm

    build = functools.cache(functools.partial(timm.create_model, device="meta"))
    for row in _rows("timm_safetensors"):
        architecture = _timm_name(row).partition(".")[0]
        size = (row.config.num_channels, *row.config.image_size)
        config_json = {
            "architecture": architecture,
            "pretrained_cfg": {"num_classes": row.num_classes, "input_size": size},
        }
        model = build(architecture, num_classes=row.num_classes)
        _check_same(row, _file(_shapes(model)), config_json)


def test_fields_of_timm():
    """FAULTS D1: each row says what timm's own configuration of the file says."""
    import timm

    for row in _rows("timm_safetensors"):
        cfg = timm.models.get_pretrained_cfg(_timm_name(row))
        hub_id = cfg.hf_hub_id + (_timm_name(row) if cfg.hf_hub_id.endswith("/") else "")
        assert row.source == f"hf://{hub_id}", row.id
        assert cfg.input_size == (3, row.image_size, row.image_size), row.id
        assert cfg.num_classes == row.num_classes, row.id
        ours = row.preprocessing
        assert (ours.mean, ours.std) == (tuple(cfg.mean), tuple(cfg.std)), row.id
        assert (ours.interpolation, ours.antialias) == (cfg.interpolation, True), row.id
        assert ours.crop_fraction == cfg.crop_pct, row.id
        assert ours.resize == {"center": "crop", "squash": "squash"}[cfg.crop_mode], row.id
        assert row.licence.lower() == (cfg.license or "unknown"), row.id


def test_every_file_of_timm_that_can_be_read_is_listed():
    import timm

    published = set()
    for name in timm.list_pretrained():
        architecture = name.partition(".")[0]
        known = timm_architectures.architectures().get(architecture)
        is_vit = architecture.startswith(("vit_", "deit", "flexivit", "eva_"))
        if known is None or not is_vit or not timm.models.get_pretrained_cfg(name).hf_hub_id:
            continue
        try:
            timm_architectures.read_arguments({"architecture": architecture}, {})
        except ValueError:
            continue
        published.add(name)
    listed = {_timm_name(row) for row in _rows("timm_safetensors")}
    assert published - listed == CUT_OFF and listed <= published


def _their_model(row: ModelRow):
    """The class of transformers that a repository's files are of, with its own defaults."""
    import transformers as hf

    config = row.config
    sizes = {
        "hidden_size": config.hidden_dim,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "image_size": config.image_size[0],
        "patch_size": config.patch_size[0],
    }
    mlp = {"intermediate_size": config.mlp_dim}
    family, classes = row.family, {"num_labels": config.num_classes or 2}
    if "siglip" in family:
        return hf.SiglipModel(hf.SiglipConfig(vision_config=sizes | mlp))
    if "clip" in family:
        vision = sizes | mlp | ({"hidden_act": "gelu"} if family == "laion_clip" else {})
        dim = config.representation_size
        return hf.CLIPModel(hf.CLIPConfig(vision_config=vision, projection_dim=dim))
    if family == "facebook_dinov2":
        name = "Dinov2WithRegisters" if config.num_register_tokens else "Dinov2"
        values = getattr(hf, f"{name}Config")(**sizes, **classes, use_swiglu_ffn=config.gated_mlp)
        kind = "ForImageClassification" if config.num_classes else "Model"
        return getattr(hf, name + kind)(values)
    if family == "facebook_mae":
        return hf.ViTMAEForPreTraining(hf.ViTMAEConfig(**sizes, **mlp))
    if family == "facebook_msn":
        return hf.ViTMSNModel(hf.ViTMSNConfig(**sizes, **mlp))
    if config.distillation_token:
        values = hf.DeiTConfig(**sizes, **mlp, **classes)
        return hf.DeiTForImageClassificationWithTeacher(values)
    values = hf.ViTConfig(**sizes, **mlp, **classes)
    if config.num_classes:
        return hf.ViTForImageClassification(values)
    return hf.ViTModel(values, add_pooling_layer=config.representation_size is not None)


def test_tensors_of_transformers():
    """Defaults of the classes too: FAULTS E3, E4."""
    import torch

    for row in _rows("hf_safetensors"):
        with torch.device("meta"):
            model = _their_model(row)
        config_json = json.loads(json.dumps(model.config.to_dict()))
        config_json["architectures"] = [type(model).__name__]
        _check_same(row, _file(_shapes(model)), config_json)


def test_repositories_of_transformers_have_the_sizes_of_other_copies():
    """Nothing of theirs is at hand: the same weights are listed elsewhere, with sizes checked."""
    names = ("num_layers", "num_heads", "hidden_dim", "mlp_dim", "patch_size", "gated_mlp")
    rows, compared = catalogue(), 0
    for row in _rows("hf_safetensors"):
        twin = rows.get(row.id.removesuffix("_hub").replace("_lin1k", ""))
        if twin is None:
            assert row.family in ("facebook_msn", "google_siglip", "google_siglip2"), row.id
            continue
        for name in names:
            assert getattr(row.config, name) == getattr(twin.config, name), row.id
        compared += 1
    assert compared >= 70


# In names of the Hub, against the papers' sizes. DINOv2's giant has heads of 64, and gated MLPs.
SIZES_BY_NAME = {
    "tiny": SIZES["Ti"],
    "small": SIZES["S"],
    "base": SIZES["B"],
    "large": SIZES["L"],
    "so400m": SIZES["So400m"],
    "huge": SIZES["H"],
    "giant": (40, 24, 1536, 4096),
    "giantopt": SIZES["g-opt"],
    "gigantic": SIZES["G"],
}


def test_repositories_of_transformers_have_the_sizes_that_their_names_say():
    for row in _rows("hf_safetensors"):
        (name,) = set(re.split("[_.]", row.id)) & SIZES_BY_NAME.keys()
        expected = SIZES_BY_NAME[name]
        if name == "giant" and "clip" in row.family:
            expected = SIZES["g"]
        config = row.config
        sizes = (config.num_layers, config.num_heads, config.hidden_dim, config.mlp_dim)
        assert sizes == expected, row.id
        patch = re.search(r"patch(\d+)", row.id)
        assert config.patch_size == (int(patch[1]), int(patch[1])), row.id


# Google's own files


def _official_shapes(row: ModelRow) -> Shapes:
    """Names and shapes of a file of vision_transformer, as its first releases spell them."""
    config = row.config
    rules = keymap.expand(official_npz.key_table(config, {}), config.num_layers)

    def spell(name: str) -> str:
        if row.family == "flexivit":
            return "pos_embedding" if name == POSITIONS else name
        for linen, released in RELEASED_NAMES.items():
            name = name.replace(f"/{linen}/", f"/{released}/")
        return name

    return _expected(list(keymap.rename_theirs(rules, spell)), config)


class Recorder(dict):
    """Arrays by name, of which it is known afterwards which were read."""

    def __init__(self, shapes: Shapes):
        super().__init__(
            {name: np.broadcast_to(np.float32(0), shape) for name, shape in shapes.items()}
        )
        self.read = set()

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)


def _timm_model(config: ViTConfig):
    """timm's model of an official configuration."""
    import timm

    hybrids = {
        None: "vit_base_patch16_224",
        (): "vit_tiny_r_s16_p8_224",
        (2, 2, 2, 2): "vit_small_r26_s32_224",
        (3, 4, 9): "vit_base_r50_s16_224",
        (3, 4, 6, 3): "vit_large_r50_s32_224",
    }
    return timm.create_model(
        hybrids[config.stem_layers],
        device="meta",
        img_size=config.image_size,
        patch_size=config.patch_size[0],
        embed_dim=config.hidden_dim,
        depth=config.num_layers,
        num_heads=config.num_heads,
        mlp_ratio=config.mlp_dim / config.hidden_dim,
        class_token=config.class_token,
        no_embed_class=config.num_prefix_positions == 0,
        global_pool="token" if config.class_token else "avg",
        fc_norm=False,
        num_classes=config.num_classes,
    )


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_tensors_of_google(monkeypatch):
    """timm reads the same files by a reader of its own, which copies into its own shapes."""
    from timm.models import vision_transformer

    families = [row for row in _rows("official_npz") if row.family != "flexivit"]
    families += [row for row in _rows("big_vision_npz") if row.family == "flexivit"]
    rows = _distinct(families)
    for row in rows.values():
        shapes = _official_shapes(row)
        arrays = Recorder(shapes)
        monkeypatch.setattr(
            vision_transformer, "_load_npz_checkpoint", lambda *_, a=arrays, **__: a
        )
        _timm_model(row.config).load_pretrained("any.npz")
        tanh = {name for name in shapes if name.startswith("pre_logits/")}  # timm drops it
        assert arrays.read == shapes.keys() - tanh, row.id
        if row.zero_head:
            head = {"head/kernel": (row.config.hidden_dim, row.zero_head)}
            head["head/bias"] = (row.zero_head,)
            _check_same(row, _file(shapes | head, ZeroedHead), None)
        else:
            _check_same(row, _file(shapes), None)
    assert len(rows) > 35


_BLOCK = re.compile(r"(block_|encoderblock_|MixerBlock_)\d+/")


def test_tensors_of_mixer():
    """timm has no reader of these: their names are those of a file that Google's code wrote."""
    golden = read_checkpoint(GOLDEN / "mixer.npz").rules
    first = [rule for rule in golden if not re.match(r"block_[1-9]", rule.ours)]
    rules = [
        Rule(
            _BLOCK.sub(r"\1{i}/", rule.ours),
            tuple(_BLOCK.sub(r"\1{i}/", name) for name in rule.theirs),
            rule.transform,
        )
        for rule in first
    ]
    rows = _distinct(_rows("mixer_npz"))
    for row in rows.values():
        shapes = _expected(list(keymap.expand(rules, row.config.num_layers)), row.config)
        _check_same(row, _file(shapes), None)
    assert len(rows) == 8


def test_tensors_of_models_with_fixed_positions():
    """timm has no such models: their names are those of a file that Google's code wrote."""
    rows = [row for row in _rows("big_vision_npz") if row.family == "big_vision"]
    (row,) = _distinct(rows).values()
    rules = keymap.expand(official_npz.key_table(row.config, {}), row.config.num_layers)
    shapes = _expected([rule for rule in rules if rule.theirs != (POSITIONS,)], row.config)
    golden = np.load(GOLDEN / "bigvision_gap_sincos_rep.npz").files
    patterns = [{_BLOCK.sub(r"\1{i}/", name) for name in names} for names in (shapes, golden)]
    assert patterns[0] == patterns[1]
    _check_same(row, _file(shapes), None)


@pytest.mark.parametrize("size", [(16, 16), (8, 12), (48, 40)])
def test_patch_kernels_are_resized_as_timm_resizes_those_of_google(size):
    """FlexiViT's rule, which timm has too."""
    import torch
    from timm.layers import resample_patch_embed

    kernel = np.random.default_rng(0).normal(size=(32, 32, 3, 8)).astype(np.float32)
    theirs = resample_patch_embed(
        torch.from_numpy(kernel.transpose(3, 2, 0, 1).copy()),
        list(size),
        interpolation="bilinear",
        antialias=False,
    )
    ours = resample.resize_patch_kernel(kernel, size)
    np.testing.assert_allclose(ours, theirs.numpy().transpose(2, 3, 1, 0), atol=2e-5)


def _by_family() -> dict[str, list[ModelRow]]:
    """The first row of each architecture, whatever its pictures and the width of its head."""
    first, families = {}, collections.defaultdict(list)
    for row in catalogue().values():
        alike = dataclasses.replace(
            _plain(row.config),
            image_size=[4 * row.config.stem_stride * side for side in row.config.patch_size],
            num_classes=min(row.num_classes, 1),
        )
        if first.setdefault(alike, row) is row:
            families[row.family].append(row)
    return families


@pytest.mark.parametrize("family", sorted(_by_family()))
def test_keras_builds_every_architecture(family):
    """All of them, the largest too: variables stay without values, so that no memory is needed."""
    for row in _by_family()[family]:
        keras.backend.clear_session()
        with keras.StatelessScope(initialize_variables=False):
            model = MODELS[type(row.config)](row.config)
        shapes = {
            variable.path: tuple(variable.shape)
            for variable in model.weights
            if not variable.path.endswith("seed_generator_state")
        }
        assert shapes == variable_shapes(row.config), row.id
        assert sum(map(math.prod, shapes.values())) == row.parameters, row.id
        if row.num_classes:
            assert model.output.shape == (None, row.num_classes), row.id
