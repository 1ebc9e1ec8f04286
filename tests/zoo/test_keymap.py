import numpy as np

from keras_vit.zoo import keymap
from keras_vit.zoo.keymap import Rule
from keras_vit.zoo.transforms import LINEAR_KERNEL, LINEAR_QKV_KERNEL

RULES = (
    Rule("block_{i}/qkv", ("layer.{i}.q", "layer.{i}.k", "layer.{i}.v"), LINEAR_QKV_KERNEL),
    Rule("head", ("classifier",), LINEAR_KERNEL),
)


def test_expand_fills_in_every_block():
    rules = keymap.expand(RULES, 2)
    assert [rule.ours for rule in rules] == ["block_0/qkv", "block_1/qkv", "head"]
    assert rules[1].theirs == ("layer.1.q", "layer.1.k", "layer.1.v")


def test_apply_and_invert_are_inverse():
    rules = keymap.expand(RULES, 1)
    random = np.random.default_rng(0)
    file = {name: random.normal(size=(4, 4)) for name in ("layer.0.q", "layer.0.k", "layer.0.v")}
    file["classifier"] = random.normal(size=(3, 4))
    written = {}
    for rule in rules:
        written |= keymap.invert(rule, keymap.apply(rule, file.__getitem__))
    assert written.keys() == file.keys()
    for name, array in file.items():
        np.testing.assert_array_equal(written[name], array)


def test_their_shapes_need_no_array():
    rule = keymap.expand(RULES, 1)[0]
    shapes = keymap.their_shapes(rule, (10**6, 3 * 10**6))  # 12 TB, were it made
    assert shapes == dict.fromkeys(rule.theirs, (10**6, 10**6))


def test_rename_theirs():
    (_, head) = keymap.rename_theirs(RULES, lambda name: "module." + name)
    assert head == Rule("head", ("module.classifier",), LINEAR_KERNEL)


def test_report_lists_missing_and_unexpected():
    rules = keymap.expand(RULES, 1)
    names = ["layer.0.v", "layer.0.q", "classifier", "stray", "another"]
    assert keymap.report(rules, names) == (["layer.0.k"], ["another", "stray"])
