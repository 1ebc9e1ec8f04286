"""The Vision Transformer as an ordinary Keras model."""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import keras

from keras_vit import resample
from keras_vit.checks import Pair, as_pair
from keras_vit.config import PreprocessingConfig, ViTConfig
from keras_vit.image_model import ImageModel
from keras_vit.layers import (
    HEADS,
    POSITION_EMBEDDINGS,
    AxialBlock,
    DistillationHead,
    EncoderBlock,
    LayerNorm,
    MergingBlock,
    PatchDropout,
    PatchEmbedding,
    PixelNormalization,
    PrefixTokens,
    ResNetStem,
)
from keras_vit.layers.heads import head_policy, linear_head
from keras_vit.parts import block_numbers
from keras_vit.variants import VARIANTS


@keras.saving.register_keras_serializable(package="keras_vit")
class ViT(ImageModel):
    """A Vision Transformer: pictures in, logits or features out.

    A functional model inside, so `summary`, `get_layer`, `fit`, `.keras` files, LoRA,
    quantization and export work as on any other. Its layers are called, in order,
    `normalization`, `resnet_stem`, `patch_embedding`, `prefix_tokens`, `position_embedding`,
    `embedding_dropout`, `patch_dropout`, `embedding_norm`, `block_0` ..., `encoder_norm`, `pool`,
    `pool_norm`, `pre_logits`, `head`; those that a configuration has no use for are absent. Where
    `pool` takes the class token alone, `encoder_norm` follows it.

    Args:
        config: A `ViTConfig`, the architecture.
        **kwargs: As in `ImageModel`.

    Call arguments:
        inputs: Pixels 0..255, `(batch, height, width, channels)` of the model's `image_size`.

    Returns:
        float32 logits `(batch, num_classes)`; with `num_classes=0` the features
        `(batch, representation_size or pooled_dim)`.

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

    config_class = ViTConfig
    variants = VARIANTS

    @staticmethod
    def _make_layers(
        config: ViTConfig, statistics: PreprocessingConfig | None, policy: keras.DTypePolicy
    ) -> Iterator[keras.layers.Layer]:
        if statistics is not None:
            yield PixelNormalization(statistics.mean, statistics.std, name="normalization")
        yield from _stem(config, policy)
        positions = POSITION_EMBEDDINGS.get(config.position_embedding)
        arguments = {"grid": config.grid, "num_prefix_tokens": config.num_prefix_tokens}
        if config.position_embedding == "learned":
            arguments["num_prefix_positions"] = config.num_prefix_positions
        first = positions and positions(**arguments, dtype=policy, name="position_embedding")
        if first:
            yield first
        yield keras.layers.Dropout(config.dropout_rate, dtype=policy, name="embedding_dropout")
        if config.patch_drop_rate:
            rate, prefix = config.patch_drop_rate, config.num_prefix_tokens
            yield PatchDropout(rate, prefix, dtype=policy, name="patch_dropout")
        if config.embedding_norm:
            yield _norm("embedding_norm", config, policy)
        for index in range(config.num_layers):
            if index and config.position_insertion == "every_block_shared":
                yield first
            if index and config.position_insertion == "every_block":
                name = f"position_embedding_{index}"
                yield positions(**arguments, dtype=policy, name=name)
            yield _block(config, policy, index)
        yield from _head(config, policy)

    def attention_scores(self, blocks: int | slice | Iterable[int] | None = None) -> keras.Model:
        """A model that shares these weights and returns how much each token attends to each.

        Scores are computed beside the model's own path, which stays as it is, and for these
        blocks only.

        Args:
            blocks: Numbers of blocks, negative ones from the end, or a slice; None for all.

        Returns:
            A `keras.Model` from pixels to a dict: `"block_3"` to float32
            `(batch, heads, tokens, tokens)`, query then key, prefix tokens first; each row sums
            to 1.

        Raises:
            ValueError: If there is no such block, or blocks are axial or merge tokens.
        """
        depth = self.config.num_layers
        if self.config.axial:
            raise ValueError(
                "`attention_scores` needs blocks that attend from every token to every token. "
                "Received: a model with axial=True."
            )
        if self.config.merged_tokens_per_block:
            raise ValueError(
                "`attention_scores` needs blocks that keep every token. Received: a model with "
                f"merged_tokens_per_block={self.config.merged_tokens_per_block}. Make it with 0."
            )
        numbers = list(range(depth)) if blocks is None else block_numbers(blocks, depth)
        if not numbers:
            raise ValueError(f"`blocks` must be numbers of blocks. Received: blocks={blocks!r}.")
        outputs = {}
        for number in numbers:
            name = f"block_{number}"
            outputs[name] = _AttentionScores(self.get_layer(name))(self._entering[name])
        return self._view(outputs)

    def with_image_size(self, image_size: int | Pair) -> "ViT":
        """A new model for another image size, with positions resized by the source's rule.

        Layers that do not depend on the size are shared with this model.

        Args:
            image_size: Input side in pixels, an integer or `(height, width)`.

        Raises:
            ValueError: If the size is no whole number of patches, or positions are relative.
        """
        self._refuse_quantized("with_image_size")
        config = dataclasses.replace(self.config, image_size=as_pair(image_size, "image_size"))
        variables = {variable.path: variable for variable in self.weights}
        rule = (self.origin or {}).get("position_resize", resample.DEFAULT_POSITION_RESIZE)

        def read(path: str, shape: tuple[int, ...]) -> Any:
            value = keras.ops.convert_to_numpy(variables[path])
            return resample.fit_positions(path, value, self.config, config, rule)

        # Attention with relative positions is made for one number of tokens.
        share = {} if config.position_embedding == "relative" else self._made
        return self._with(config=config, share=share, read_weights=read)


class _AttentionScores(keras.layers.Layer):
    """The scores of a block that is part of a model already."""

    def __init__(self, block: EncoderBlock, **kwargs):
        super().__init__(dtype=block.dtype_policy, **kwargs)
        self.block = block

    def call(self, tokens):
        return self.block.attention_scores(tokens)

    def get_config(self) -> dict:
        raise ValueError(
            "What `attention_scores` returns cannot be saved or copied: it looks into the layers "
            f"of a model. Received: a view of {self.block.name!r}. Save the model itself, and "
            "call `attention_scores` again after loading."
        )


def _stem(config: ViTConfig, policy: keras.DTypePolicy) -> Iterator[keras.layers.Layer]:
    """From pixels to tokens."""
    if config.stem_layers is not None:
        yield ResNetStem(
            config.stem_layers,
            config.stem_width,
            config.stem_numerics,
            dtype=policy,
            name="resnet_stem",
        )
    yield PatchEmbedding(
        config.hidden_dim,
        config.patch_size,
        use_bias=config.patch_bias,
        dtype=policy,
        name="patch_embedding",
    )
    if config.num_prefix_tokens:
        yield PrefixTokens(
            config.class_token,
            config.distillation_token,
            config.num_register_tokens,
            dtype=policy,
            name="prefix_tokens",
        )


def _norm(name: str, config: ViTConfig, policy: keras.DTypePolicy) -> LayerNorm:
    return LayerNorm(epsilon=config.layer_norm_epsilon, dtype=policy, name=name)


def _block(config: ViTConfig, policy: keras.DTypePolicy, index: int) -> keras.layers.Layer:
    arguments = {
        "hidden_dim": config.hidden_dim,
        "num_heads": config.num_heads,
        "mlp_dim": config.mlp_dim,
        "activation": config.activation,
        "gated_mlp": config.gated_mlp,
        "layer_norm_epsilon": config.layer_norm_epsilon,
        "qkv_bias": config.qkv_bias,
        "qk_norm": config.qk_norm,
        "relative": config.position_embedding == "relative",
        "layer_scale_init": config.layer_scale_init,
        "dropout_rate": config.dropout_rate,
        "attention_dropout_rate": config.attention_dropout_rate,
        "drop_path_rate": config.drop_path_rate * index / max(1, config.num_layers - 1),
        "remat": config.remat,
        "dtype": policy,
        "name": f"block_{index}",
    }
    if config.merged_tokens_per_block:
        merged, prefix = config.merged_tokens_per_block, config.num_prefix_tokens
        return MergingBlock(merged, prefix, **arguments)
    return AxialBlock(config.grid, **arguments) if config.axial else EncoderBlock(**arguments)


def _head(config: ViTConfig, policy: keras.DTypePolicy) -> Iterator[keras.layers.Layer]:
    """From tokens to logits or features."""
    pool = HEADS[config.pool].of(config, dtype=policy, name="pool")
    if config.final_norm == "encoder":
        norm = _norm("encoder_norm", config, policy)
        # The norm of one token does not depend on the others, which nobody reads then.
        yield from (pool, norm) if config.pool == "token" else (norm, pool)
    else:
        yield pool
        if config.final_norm == "pool":
            yield _norm("pool_norm", config, policy)
    if config.representation_size is not None:
        yield keras.layers.Dense(
            config.representation_size,
            activation="tanh" if config.representation == "tanh" else None,
            use_bias=config.representation == "tanh",
            kernel_initializer="lecun_normal",
            dtype=policy,
            name="pre_logits",
        )
    if not config.distillation_token:
        yield from linear_head(config.num_classes, policy)
    elif config.num_classes:
        yield DistillationHead(config.num_classes, dtype=head_policy(policy), name="head")
    else:  # the mean of the two tokens, as in timm
        yield keras.layers.GlobalAveragePooling1D(dtype="float32", name="features")
