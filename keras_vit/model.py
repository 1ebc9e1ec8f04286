"""The Vision Transformer as an ordinary Keras model."""

import dataclasses
import itertools
import types
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import keras

from keras_vit import preprocessing as pixels
from keras_vit.config import VARIANTS, PreprocessingConfig, ViTConfig, as_labels, unknown_name
from keras_vit.layers import (
    HEADS,
    POSITION_EMBEDDINGS,
    EncoderBlock,
    PatchEmbedding,
    PixelNormalization,
    PrefixTokens,
)
from keras_vit.layers.dtype_policy import nested_dtype_policy
from keras_vit.layers.initializers import ReadWeights, weights_from


@keras.saving.register_keras_serializable(package="keras_vit")
class ViT(keras.Model):
    """A Vision Transformer: pictures in, logits or features out.

    A functional model inside, so `summary`, `get_layer`, `fit`, `.keras` files, LoRA,
    quantization and export work as on any other. Its layers are called, in order,
    `normalization`, `patch_embedding`, `prefix_tokens`, `position_embedding`,
    `embedding_dropout`, `block_0` ..., `encoder_norm`, `pool`, `pre_logits`, `head`; those that
    a configuration has no use for are absent.

    Args:
        config: The architecture.
        preprocessing: How pictures become this model's pixels; `mean` and `std` are applied
            inside the model.
        labels: One name a class, or None.
        include_normalization: False leaves `mean` and `std` to the caller.
        origin: Where the weights come from, as JSON values, or None.
        read_weights: Takes a variable's path and shape and returns its first value, or None
            for the official initializer. Called once a variable, while building.
        dtype: Policy of all layers, as in Keras. Normalization and head stay float32.
        name: Name of the model.
        **kwargs: `trainable`, as in `keras.Model`.

    Call arguments:
        inputs: Pixels 0..255, `(batch, height, width, channels)` of the model's `image_size`.

    Returns:
        float32 logits `(batch, num_classes)`; with `num_classes=0` the features
        `(batch, representation_size or hidden_dim)`.

    Raises:
        ValueError: If `labels` are not one a class.

    Example:

    ```python
    model = keras_vit.ViT.from_variant("B/16", num_classes=10)
    model.compile(**keras_vit.recipe("paper_sgd").compile_arguments(total_steps=500))
    model.fit(images, labels)
    ```

    Reference:
        Dosovitskiy et al., arXiv 2010.11929. Two departures: one dense layer projects queries,
        keys and values, and pixels are normalised inside the model.
    """

    def __init__(
        self,
        config: ViTConfig,
        preprocessing: PreprocessingConfig | None = None,
        labels: Iterable[str] | None = None,
        include_normalization: bool = True,
        origin: dict[str, Any] | None = None,
        read_weights: ReadWeights | None = None,
        dtype: Any = None,
        name: str = "vit",
        **kwargs,
    ):
        preprocessing = (preprocessing or PreprocessingConfig()).for_channels(config.num_channels)
        policy = keras.dtype_policies.get(dtype)
        if "float" not in policy.compute_dtype:
            raise ValueError(
                f"`dtype` must be a floating point policy. Received: dtype={dtype!r}. Try "
                "'float32', 'mixed_bfloat16' or 'mixed_float16'; int8 comes by `model.quantize`."
            )
        inputs = outputs = keras.Input((*config.image_size, config.num_channels), name="images")
        views = {}
        for layer in _layers(config, preprocessing, include_normalization, policy):
            with weights_from(layer, read_weights):
                outputs = layer(outputs)
            views[layer.name] = outputs
        super().__init__(inputs=inputs, outputs=outputs, name=name, **kwargs)
        self.dtype_policy = policy
        self.config = config
        self.preprocessing = preprocessing
        self.include_normalization = include_normalization
        self.origin = origin
        self.labels = labels
        self._views = {_VIEW_NAMES.get(name, name): view for name, view in views.items()}

    @classmethod
    def from_variant(cls, name: str, *, dtype: Any = None, **fields) -> "ViT":
        """A model of the paper, freshly initialised.

        Args:
            name: A key of `keras_vit.VARIANTS`, e.g. `"B/16"`.
            dtype: Policy of all layers, as in Keras.
            **fields: Fields of `ViTConfig` to replace, e.g. `num_classes=10`.

        Raises:
            ValueError: If the name or a field is unknown.
        """
        if name not in VARIANTS:
            raise unknown_name("variant", name, VARIANTS)
        known = [field.name for field in dataclasses.fields(ViTConfig)]
        for field in fields:
            if field not in known:
                raise unknown_name("field of `ViTConfig`", field, known)
        return cls(dataclasses.replace(VARIANTS[name], **fields), dtype=dtype)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """One name a class, or None."""
        return self._labels

    @labels.setter
    def labels(self, labels: Iterable[str] | None):
        self._labels = as_labels(labels, self.config.num_classes)

    def preprocess(self, images: Any) -> Any:
        """Make any pictures this model's input: resized by its checkpoint's rule, 0..255.

        Args:
            images: One picture or many, as `keras_vit.preprocessing.preprocess` takes them.

        Returns:
            float32 `(batch, height, width, channels)`.
        """
        return pixels.preprocess(
            images, self.preprocessing, self.config.image_size, self.config.num_channels
        )

    def intermediates(self, names: Iterable[str]) -> keras.Model:
        """A model that shares these weights and returns what flows inside, by name.

        Args:
            names: Any of `"embeddings"` (after the positions), `"block_0"` ... (after that
                block), `"encoder_norm"`, `"pooled"`, `"pre_logits"`, `"logits"`, as far as the
                model has them.

        Returns:
            A `keras.Model` from pixels to a dict; tokens are `(batch, tokens, hidden_dim)`,
            prefix tokens first.

        Raises:
            ValueError: If a name is unknown.
        """
        names = [names] if isinstance(names, str) else list(names)
        if not names:
            raise ValueError(f"`names` must not be empty. Known: {', '.join(self._views)}.")
        outputs = {}
        for name in names:
            if name not in self._views:
                raise unknown_name("intermediate", name, self._views)
            outputs[name] = self._views[name]
        return keras.Model(self.inputs[0], outputs)

    def fit(self, x: Any = None, *args, **kwargs):
        """As `keras.Model.fit`; warns when the pixels look like 0..1 and not 0..255."""
        return super().fit(self._warn_of_unit_range(x), *args, **kwargs)

    def evaluate(self, x: Any = None, *args, **kwargs):
        """As `keras.Model.evaluate`; warns as `fit` does, but not from inside `fit`."""
        if not kwargs.get("_use_cached_eval_dataset"):  # once an epoch, from `fit`
            x = self._warn_of_unit_range(x)
        return super().evaluate(x, *args, **kwargs)

    def predict(self, x: Any, *args, **kwargs):
        """As `keras.Model.predict`; warns as `fit` does."""
        return super().predict(self._warn_of_unit_range(x), *args, **kwargs)

    def _warn_of_unit_range(self, x: Any) -> Any:
        """Look at the first batch of `x`. Returns `x`, or an equal generator."""
        if not self.include_normalization:
            return x
        if isinstance(x, types.GeneratorType):
            first = next(x, None)
            x = itertools.chain([first], x) if first is not None else x
            x = (batch for batch in x)  # Keras takes generators, not iterators
        else:
            first = _first_batch(x)
        images = first[0] if isinstance(first, (tuple, list)) else first
        try:
            pixels.check_pixel_range(images, "x")
        except ValueError as error:
            warnings.warn(str(error), stacklevel=3)
        return x

    def quantize(self, mode: Any = None, config: Any = None, filters: Any = None, **kwargs):
        """As `keras.Model.quantize`; head, positions and patch projection stay float by default.

        Args:
            mode: `"int8"` and others of Keras.
            config: A Keras quantization config instead of `mode`.
            filters: Which layers, as in Keras. None takes the dense layers of the blocks.
            **kwargs: As in Keras.
        """
        if filters is None:

            def filters(layer):
                return isinstance(layer, keras.layers.Dense) and layer.path.startswith("block_")

        return super().quantize(mode, config=config, filters=filters, **kwargs)

    def get_config(self) -> dict:
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": nested_dtype_policy(self),
            "config": self.config.to_dict(),
            "preprocessing": self.preprocessing.to_dict(),
            "labels": None if self.labels is None else list(self.labels),
            "include_normalization": self.include_normalization,
            "origin": None if self.origin is None else dict(self.origin),
        }

    @classmethod
    def from_config(cls, config: dict, custom_objects: Any = None) -> "ViT":
        del custom_objects  # every part is registered
        return cls(
            **{
                **config,
                "config": ViTConfig(**config["config"]),
                "preprocessing": PreprocessingConfig(**config["preprocessing"]),
            }
        )


_VIEW_NAMES = {"embedding_dropout": "embeddings", "pool": "pooled", "head": "logits"}


def _layers(
    config: ViTConfig,
    preprocessing: PreprocessingConfig,
    include_normalization: bool,
    policy: keras.DTypePolicy,
) -> Iterator[keras.layers.Layer]:
    """The layers of one model, input first, under their fixed names."""
    if include_normalization:
        yield PixelNormalization(preprocessing.mean, preprocessing.std, name="normalization")
    yield PatchEmbedding(config.hidden_dim, config.patch_size, dtype=policy, name="patch_embedding")
    if config.class_token:
        yield PrefixTokens(dtype=policy, name="prefix_tokens")
    yield POSITION_EMBEDDINGS[config.position_embedding](dtype=policy, name="position_embedding")
    yield keras.layers.Dropout(config.dropout_rate, dtype=policy, name="embedding_dropout")
    for index in range(config.num_layers):
        yield EncoderBlock(
            config.hidden_dim,
            config.num_heads,
            config.mlp_dim,
            activation=config.activation,
            layer_norm_epsilon=config.layer_norm_epsilon,
            qkv_bias=config.qkv_bias,
            dropout_rate=config.dropout_rate,
            attention_dropout_rate=config.attention_dropout_rate,
            drop_path_rate=config.drop_path_rate * index / max(1, config.num_layers - 1),
            dtype=policy,
            name=f"block_{index}",
        )
    yield keras.layers.LayerNormalization(
        epsilon=config.layer_norm_epsilon, dtype=policy, name="encoder_norm"
    )
    yield HEADS[config.pool](config.num_prefix_tokens, dtype=policy, name="pool")
    if config.representation_size is not None:
        yield keras.layers.Dense(
            config.representation_size,
            activation="tanh",
            kernel_initializer="lecun_normal",
            dtype=policy,
            name="pre_logits",
        )
    if config.num_classes:
        # float32 logits whatever the policy; zeros, as the paper starts fine-tuning (D.3)
        yield keras.layers.Dense(
            config.num_classes,
            kernel_initializer="zeros",
            dtype=_policy_at("head", policy, "float32"),
            name="head",
        )
    elif policy.compute_dtype != "float32":
        yield keras.layers.Identity(dtype="float32", name="features")


def _policy_at(path: str, policy: keras.DTypePolicy, default: str) -> Any:
    """What a map of policies says of the layer at `path`, else `default`."""
    if isinstance(policy, keras.dtype_policies.DTypePolicyMap) and path in policy:
        return policy[path]
    return default


def _first_batch(x: Any) -> Any:
    """The first batch of what `fit` takes, as far as looking does not use it up."""
    if hasattr(x, "element_spec") and hasattr(x, "take"):  # tf.data.Dataset
        return next(iter(x.take(1)), None)
    if isinstance(x, keras.utils.PyDataset):
        return x[0]
    if isinstance(x, dict):
        x = list(x.values())
    if isinstance(x, (list, tuple)) and len(x) == 1:
        x = x[0]
    return x[:64] if hasattr(x, "shape") and hasattr(x, "__getitem__") else None
