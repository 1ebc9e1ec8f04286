"""MLP-Mixer as an ordinary Keras model."""

from collections.abc import Iterator

import keras

from keras_vit.checks import Pair
from keras_vit.config import MixerConfig, PreprocessingConfig
from keras_vit.image_model import ImageModel
from keras_vit.layers import LayerNorm, MeanPool, MixerBlock, PatchEmbedding, PixelNormalization
from keras_vit.layers.heads import linear_head
from keras_vit.variants import MIXER_VARIANTS


@keras.saving.register_keras_serializable(package="keras_vit")
class Mixer(ImageModel):
    """An MLP-Mixer: MLPs across patches and across channels in turn, no attention.

    Its layers are called, in order, `normalization`, `patch_embedding`, `block_0` ...,
    `encoder_norm`, `pool`, `head`.

    Args:
        config: A `MixerConfig`, the architecture.
        **kwargs: As in `ImageModel`.

    Call arguments:
        inputs: Pixels 0..255, `(batch, height, width, channels)` of the model's `image_size`.

    Returns:
        float32 logits `(batch, num_classes)`; with `num_classes=0` the features
        `(batch, hidden_dim)`.

    Raises:
        ValueError: If `labels` are not one a class.

    Example:

    ```python
    model = keras_vit.Mixer.from_variant("B/16", num_classes=10)
    ```

    Reference:
        Tolstikhin et al., *MLP-Mixer: An all-MLP Architecture for Vision*, arXiv 2105.01601.
        Pixels are normalised inside the model.
    """

    config_class = MixerConfig
    variants = MIXER_VARIANTS

    @staticmethod
    def _make_layers(
        config: MixerConfig, statistics: PreprocessingConfig | None, policy: keras.DTypePolicy
    ) -> Iterator[keras.layers.Layer]:
        if statistics is not None:
            yield PixelNormalization(statistics.mean, statistics.std, name="normalization")
        yield PatchEmbedding(
            config.hidden_dim, config.patch_size, dtype=policy, name="patch_embedding"
        )
        for index in range(config.num_layers):
            yield MixerBlock(
                config.num_tokens,
                config.hidden_dim,
                config.tokens_mlp_dim,
                config.channels_mlp_dim,
                activation=config.activation,
                layer_norm_epsilon=config.layer_norm_epsilon,
                dropout_rate=config.dropout_rate,
                drop_path_rate=config.drop_path_rate * index / max(1, config.num_layers - 1),
                dtype=policy,
                name=f"block_{index}",
            )
        yield LayerNorm(epsilon=config.layer_norm_epsilon, dtype=policy, name="encoder_norm")
        yield MeanPool(dtype=policy, name="pool")
        yield from linear_head(config.num_classes, policy)

    def with_image_size(self, image_size: int | Pair) -> "Mixer":
        """Refused, as no rule resizes a Mixer's weights.

        Raises:
            ValueError: Always.
        """
        config = self.config
        raise ValueError(
            "A Mixer has weights of one image size: its token MLPs know each patch by its place. "
            f"Received: image_size={image_size!r}, of a model for {config.image_size}. Let "
            "`model.preprocess` resize the pictures, or train a new `keras_vit.Mixer`."
        )
