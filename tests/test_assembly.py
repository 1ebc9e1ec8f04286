import keras
import numpy as np

from keras_vit import layers
from keras_vit.assembly import assemble


def _stack(activation: str | None = None) -> list[keras.layers.Layer]:
    return [
        keras.layers.Dropout(0.0, name="embedding_dropout"),
        keras.layers.Dense(4, activation, name="block_0"),
        layers.TokenPool(name="pool"),
        layers.LayerNorm(name="encoder_norm"),
        keras.layers.Dense(2, name="head"),
    ]


def _run(inputs, outputs, tokens) -> np.ndarray:
    return keras.ops.convert_to_numpy(keras.Model(inputs, outputs)(tokens))


def test_layers_are_called_in_order_and_seen_by_name():
    inputs = keras.Input((3, 4))
    assembly = assemble(_stack(), inputs)
    assert list(assembly.made) == [layer.name for layer in _stack()]
    assert assembly.entering["embedding_dropout"] is inputs
    assert assembly.entering["pool"] is assembly.views["block_0"]
    assert assembly.views["logits"] is assembly.outputs
    assert list(assembly.views) == ["embeddings", "block_0", "pooled", "encoder_norm", "logits"]


def test_a_norm_after_the_pool_is_seen_of_all_tokens():
    inputs = keras.Input((3, 4))
    assembly = assemble(_stack(), inputs)
    tokens = np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32")
    values = {name: _run(inputs, view, tokens) for name, view in assembly.views.items()}
    assert values["encoder_norm"].shape == (2, 3, 4)
    np.testing.assert_allclose(values["encoder_norm"][:, 0], values["pooled"], atol=1e-6)
    head = assembly.made["head"].layer
    logits = keras.ops.convert_to_numpy(head(values["pooled"]))
    np.testing.assert_allclose(logits, values["logits"], atol=1e-6)


def test_equal_layers_are_shared_and_others_are_new():
    first = assemble(_stack(), keras.Input((3, 4)))
    second = assemble(_stack("relu"), keras.Input((3, 4)), share=first.made)
    same = [name for name in first.made if second.made[name].layer is first.made[name].layer]
    assert same == ["embedding_dropout", "pool", "encoder_norm", "head"]


def test_weights_are_read_by_path():
    read = {}

    def weights(path, shape):
        read[path] = shape
        return np.full(shape, 0.5, "float32") if path == "head/kernel" else None

    assembly = assemble(_stack(), keras.Input((3, 4)), read_weights=weights)
    assert read["head/kernel"] == (4, 2) and "block_0/kernel" in read
    kernel = keras.ops.convert_to_numpy(assembly.made["head"].layer.kernel)
    np.testing.assert_array_equal(kernel, np.full((4, 2), 0.5))
