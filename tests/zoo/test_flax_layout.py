"""FAULTS E1: one dialect for the readers, whatever prefix and numbering the file has."""

import numpy as np
import pytest

from keras_vit.zoo.checkpoint import MissingWeightsError
from keras_vit.zoo.flax_layout import FlaxLayout, has_extra_row
from keras_vit.zoo.tensor_files import open_tensors

LINEN = "Transformer/encoderblock_1/MlpBlock_0/Dense_0/kernel"


@pytest.fixture
def layout(tmp_path):
    def save_and_open(*names, **arrays):
        zeros = {name: np.zeros((2, 3), np.float32) for name in names}
        np.savez(tmp_path / "x.npz", **zeros, **arrays)
        return FlaxLayout(open_tensors(tmp_path / "x.npz"))

    return save_and_open


@pytest.mark.parametrize("prefix", ["", "params/", "opt/target/"])
@pytest.mark.parametrize("tower", ["", "img/"])
@pytest.mark.parametrize(
    ("names", "shape"),
    [
        (["Transformer/encoderblock_1/MlpBlock_0/Dense_0/kernel"], (2, 3)),
        (["Transformer/encoderblock_1/MlpBlock_3/Dense_0/kernel"], (2, 3)),
        ([f"Transformer/encoderblock/MlpBlock_0/Dense_0/kernel[{i}]" for i in (0, 1)], (3,)),
    ],
)
def test_names_there_and_back(layout, prefix, tower, names, shape):
    stored = [prefix + tower + name.split("[")[0] for name in names]
    text = f"{prefix}txt/Transformer/encoderblock_0/MlpBlock_0/Dense_0/kernel"
    it = layout(stored[0], *([text] if tower else []))
    assert it.shapes[LINEN] == shape
    assert it.file_name(LINEN) == prefix + tower + names[-1]
    assert it.has("Transformer/encoderblock")
    assert it.count(r"Transformer/encoderblock_(\d{1,3})/") == 2
    assert it.ignored() == ({text} if tower else set())
    # Outside blocks names are the same in both numberings.
    assert it.file_name("MAPHead_0/LayerNorm_0/scale").endswith(
        "img/" * bool(tower) + "MAPHead_0/LayerNorm_0/scale"
    )


def test_the_text_model_does_not_tell_how_images_are_numbered(layout):
    released = LINEN.replace("MlpBlock_0", "MlpBlock_3")
    assert layout(f"img/{released}", "txt/Encoder_0/encoderblock_0/MlpBlock_0/x").is_released
    assert not layout(f"img/{LINEN}", "txt/Transformer/encoderblock_0/MlpBlock_3/x").is_released


def test_what_is_beside_the_model_is_ignored_and_strays_are_not(layout):
    it = layout("params/img/" + LINEN, "params/txt/x", "params/t", "params/b", "opt/0/mu", "stray")
    assert it.ignored() == {"params/txt/x", "params/t", "params/b", "opt/0/mu"}
    it = layout(LINEN, "txt/x", "t", "opt/state/step")
    assert it.ignored() == {"opt/state/step"}
    it = layout("opt/target/" + LINEN, "opt/target/x", "opt/state/step")
    assert it.ignored() == {"opt/state/step"}


def test_sizes_that_are_needed(layout):
    it = layout("params/" + LINEN)
    assert it.find(r"Transformer/.*/(bias|kernel)") == (2, 3)
    assert it.need(LINEN, rank=2) == it.find_or_need("no", LINEN, rank=2) == (2, 3)
    with pytest.raises(MissingWeightsError, match=f"! params/{LINEN}: expected 4 axes, found"):
        it.need(LINEN, rank=4)
    with pytest.raises(MissingWeightsError, match="- params/embedding/kernel"):
        it.find_or_need("no", "embedding/kernel", rank=4)


def test_absurd_numbers_make_no_absurd_tables(layout):
    it = layout("Transformer/encoderblock_999999999/LayerNorm_0/scale", LINEN)
    assert it.count(r"Transformer/encoderblock_(\d{1,3})/") == 2


@pytest.mark.parametrize(
    ("value", "classes", "num_classes"), [(0, 21843, 0), (1, 21843, 21843), (0, 10, 10)]
)
def test_classes(layout, value, classes, num_classes):
    head = {"head/kernel": np.full((2, classes), value, np.int8), "head/bias": np.zeros(classes)}
    it = layout(LINEN, **head)
    assert it.num_classes() == num_classes
    assert it.ignored() == (set() if num_classes else head.keys())
    assert layout(LINEN, **{"head/bias": head["head/bias"]}).num_classes() == classes
    assert layout(LINEN).num_classes() == 0


def test_extra_row():
    assert [rows for rows in range(30) if has_extra_row(rows)] == [2, 5, 10, 17, 26]
