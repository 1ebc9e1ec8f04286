"""Dtype policies of layers inside layers."""

import keras


def nested_dtype_policy(layer: keras.layers.Layer) -> dict:
    """Return the serialized policy of `layer`, with those of quantized layers inside it by path.

    Keras stores one policy a config, so that a Dense inside another layer, quantized to int8,
    would come back as float and refuse its weights ("expected 2 variables, received 0").
    """
    policy = layer.dtype_policy
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        policy = policy.default_policy
    quantized = {
        part.path: _own_policy(part)
        for part in layer._flatten_layers(include_self=False)
        if part.quantization_mode is not None
    }
    if quantized:
        policy = keras.dtype_policies.DTypePolicyMap(policy, quantized)
    return keras.dtype_policies.serialize(policy)


def _own_policy(layer: keras.layers.Layer) -> keras.dtype_policies.DTypePolicy:
    policy = layer.dtype_policy
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap):
        return policy[layer.path]
    return policy


class CompositeLayer(keras.layers.Layer):
    """A layer made of layers. They take its policy, and int8 ones among them reload."""

    def get_config(self) -> dict:
        if any(getattr(part, "lora_enabled", False) for part in self._flatten_layers()):
            raise ValueError(
                "A layer does not say its adapters in its config: a file or a copy made of it "
                f"could not be read. Received: {self.path!r} with adapters, outside its model. "
                "Save the `keras_vit` model itself and make views of it again after loading, or "
                "go on with `model.merge_lora()`."
            )
        return {**super().get_config(), "dtype": nested_dtype_policy(self)}
