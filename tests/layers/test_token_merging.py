"""Token merging against the paper's algorithm, one token at a time in numpy."""

import keras
import numpy as np
import pytest
from keras.ops import convert_to_numpy as to_numpy

from keras_vit.layers import AttentionPool, EncoderBlock, MeanPool, MergingBlock, TokenMeanPool
from keras_vit.layers.token_merging import merge_tokens

BLOCK = {"hidden_dim": 12, "num_heads": 3, "mlp_dim": 20}


def _slowly(tokens, sizes, keys, count, prefix):
    """Arxiv 2210.09461, section 3, of one example: sets by turns, prefix tokens in neither."""
    first, second = range(0, len(tokens), 2), range(1, len(tokens), 2)
    count = min(count, (len(tokens) - prefix) // 2)
    best = {}
    for i in first:
        for j in second:
            if i < prefix or j < prefix:
                continue
            cosine = keys[i] @ keys[j] / np.linalg.norm(keys[i]) / np.linalg.norm(keys[j])
            if i not in best or cosine > best[i][0]:
                best[i] = (cosine, j)
    going = sorted(best, key=lambda i: -best[i][0])[:count]
    sums = {j: tokens[j] * sizes[j] for j in second}
    counts = {j: sizes[j] for j in second}
    for i in going:
        sums[best[i][1]] = sums[best[i][1]] + tokens[i] * sizes[i]
        counts[best[i][1]] += sizes[i]
    order = [*range(prefix)]
    order += [i for i in (*first, *second) if i >= prefix and i not in going]
    values = [sums[i] / counts[i] if i in sums else tokens[i] for i in order]
    return np.array(values), np.array([counts.get(i, sizes[i]) for i in order])


def _example(tokens: int, batch: int = 3):
    rng = np.random.default_rng(tokens)
    return (
        rng.normal(size=(batch, tokens, 5)).astype("float32"),
        rng.integers(1, 6, (batch, tokens)).astype("int32"),
        rng.normal(size=(batch, tokens, 4)).astype("float32"),
    )


@pytest.mark.parametrize("count", [1, 3, 100])
@pytest.mark.parametrize("prefix", [0, 1, 2, 5])
@pytest.mark.parametrize("patches", [9, 12])
def test_equals_the_algorithm_one_token_at_a_time(patches, prefix, count):
    tokens, sizes, keys = _example(prefix + patches)
    merged, counts = merge_tokens(*map(keras.ops.array, (tokens, sizes, keys)), count, prefix)
    assert merged.shape[1] == counts.shape[1] == prefix + patches - min(count, patches // 2)
    for example in range(len(tokens)):
        values = (value[example] for value in (tokens, sizes, keys))
        expected, expected_counts = _slowly(*values, count, prefix)
        np.testing.assert_allclose(to_numpy(merged)[example], expected, atol=1e-5)
        np.testing.assert_array_equal(to_numpy(counts)[example], expected_counts)


def test_what_is_not_merged_stays_as_it_was():
    tokens, sizes, keys = map(keras.ops.array, _example(1 + 12))
    ones = keras.ops.ones_like(sizes)
    merged, counts = map(to_numpy, merge_tokens(tokens, ones, keys, 2, 1))
    is_alone = counts == 1
    assert is_alone.sum(axis=1).min() >= 1 + 12 - 4
    before = {tuple(token) for token in to_numpy(tokens).reshape(-1, 5)}
    assert {tuple(token) for token in merged[is_alone]} <= before
    assert merge_tokens(tokens, ones, keys, 0, 1)[0] is tokens
    assert merge_tokens(tokens[:, :2], ones[:, :2], keys[:, :2], 3, 1)[1].shape == (3, 2)


def _block(random_weights, block_class=MergingBlock, tokens=17, dtype=None, **arguments):
    layer = block_class(**BLOCK, **arguments, dtype=dtype)
    layer.build((None, tokens, 12))
    return random_weights(layer)


def _duplicated(copies: int, kinds: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A class token, then each of a few tokens several times, and each of them once."""
    few = np.random.default_rng(3).normal(size=(2, 1 + kinds, 12)).astype("float32")
    return np.concatenate([few[:, :1], np.repeat(few[:, 1:], copies, axis=1)], axis=1), few


def test_merging_equal_tokens_changes_nothing(random_weights):
    """The paper's reason for proportional attention: as if the copies were still there."""
    tokens, _ = _duplicated(copies=6)  # class + 18
    plain = _block(random_weights, EncoderBlock)
    merging = _block(random_weights, merged_tokens=3, num_prefix_tokens=1)
    whole, fewer, sizes = tokens, tokens, None
    for _ in range(2):
        whole = plain(whole)
        fewer, sizes = merging(fewer, sizes=sizes)
    assert fewer.shape == (2, 19 - 6, 12)
    whole, fewer, sizes = map(to_numpy, (whole, fewer, sizes))
    np.testing.assert_allclose(fewer[:, 0], whole[:, 0], atol=1e-4)
    np.testing.assert_array_equal(sizes.sum(axis=1), 19)
    for example in range(2):  # every copy is there, as often
        expanded = np.repeat(fewer[example], sizes[example], axis=0)
        by_value = [rows[np.argsort(rows[1:, 0]) + 1] for rows in (expanded, whole[example])]
        np.testing.assert_allclose(*by_value, atol=1e-4)


@pytest.mark.parametrize("dropout", [0.0, 1e-7])
def test_a_size_counts_as_that_many_tokens(random_weights, dropout):
    """In both of the attention's paths: one token of size 6 is six of size 1."""
    tokens, few = _duplicated(copies=6)
    layer = _block(random_weights, merged_tokens=0, attention_dropout_rate=dropout)
    sizes = np.array([[1, 6, 6, 6]] * 2, dtype="int32")
    expected, _ = layer(tokens, training=True)
    alone, _ = layer(few, sizes=sizes, training=True)
    np.testing.assert_allclose(to_numpy(alone)[:, 0], to_numpy(expected)[:, 0], atol=1e-4)


@pytest.mark.parametrize("pool", [MeanPool, TokenMeanPool, AttentionPool])
def test_pools_count_a_token_by_its_size(random_weights, pool):
    """As the official code's patch for MAE."""
    tokens, few = _duplicated(copies=6)
    own = (12, 3, 20) if pool is AttentionPool else ()
    layer = pool(*own, num_prefix_tokens=1)
    layer.build((None, 19, 12))
    random_weights(layer)
    uneven = np.concatenate([tokens, tokens[:, 1:2]], axis=1)  # the first kind once more
    sizes = np.array([[1, 7, 6, 6]] * 2, dtype="int32")
    pooled = to_numpy(layer(few, sizes=sizes))
    np.testing.assert_allclose(pooled, to_numpy(layer(uneven)), atol=1e-5)
    assert np.abs(pooled - to_numpy(layer(few))).max() > 1e-3


def test_without_merging_it_is_the_plain_block(random_weights):
    tokens, _ = _duplicated(copies=4)
    plain = _block(random_weights, EncoderBlock)(tokens)
    merging, sizes = _block(random_weights, merged_tokens=0)(tokens)
    np.testing.assert_array_equal(to_numpy(merging), to_numpy(plain))
    np.testing.assert_array_equal(to_numpy(sizes), np.ones((2, 13)))


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16", "mixed_float16"])
def test_sizes_are_exact_in_half_precision(random_weights, policy):
    """300 has no bfloat16."""
    layer = _block(random_weights, dtype=policy, merged_tokens=4, num_prefix_tokens=1)
    tokens = np.random.default_rng(0).normal(size=(2, 9, 12)).astype("float32")
    tokens, sizes = layer(tokens, sizes=np.array([[1] + [300] * 8] * 2, dtype="int32"))
    assert keras.backend.standardize_dtype(tokens.dtype) == layer.compute_dtype
    assert keras.backend.standardize_dtype(sizes.dtype) == "int32"
    np.testing.assert_array_equal(to_numpy(sizes).sum(axis=1), 2401)
    assert np.isfinite(to_numpy(keras.ops.cast(tokens, "float32"))).all()


def _step(remat: bool, jit_compile: bool) -> list[np.ndarray]:
    """The weights after one step of two blocks that drop and merge."""
    keras.utils.set_random_seed(0)
    arguments = {**BLOCK, "merged_tokens": 4, "num_prefix_tokens": 1, "remat": remat}
    inputs = keras.Input((17, 12))
    tokens, sizes = MergingBlock(**arguments, dropout_rate=0.2, drop_path_rate=0.2)(inputs)
    tokens, sizes = MergingBlock(**arguments, dropout_rate=0.2)(tokens, sizes=sizes)
    assert (tokens.shape, sizes.shape, sizes.dtype) == ((None, 9, 12), (None, 9), "int32")
    model = keras.Model(inputs, MeanPool(1)(tokens, sizes=sizes))
    before = [to_numpy(weight).copy() for weight in model.trainable_weights]
    model.compile("sgd", "mse", jit_compile=jit_compile)
    rng = np.random.default_rng(1)
    model.fit(rng.normal(size=(4, 17, 12)), rng.normal(size=(4, 12)), verbose=0)
    after = [to_numpy(weight) for weight in model.trainable_weights]
    assert not any(np.array_equal(*pair) for pair in zip(before, after, strict=True))
    return after


@pytest.mark.parametrize("jit_compile", [False, True])
def test_blocks_learn_and_rematerialise(jit_compile):
    if jit_compile and keras.backend.backend() == "torch":
        pytest.skip("torch.compile needs a C++ compiler")
    for plain, again in zip(_step(False, jit_compile), _step(True, jit_compile), strict=True):
        np.testing.assert_allclose(again, plain, atol=1e-6)
