"""The layers that Vision Transformers are made of.

Shapes are words, always in one order:

    (batch, height, width, channels)        pictures
    (batch, tokens, hidden_dim)             a sequence: prefix tokens, then patches row by row
    (batch, heads, tokens, head_dim)        queries, keys, values;  heads * head_dim = hidden_dim
    (batch, heads, tokens, tokens)          attention: query, then key
    (batch * tokens, hidden_dim)            "flat": dense layers run on it, since TensorFlow fuses a
                                            two-dimensional MatMul with its bias and activation

Every layer is registered under the package name `keras_vit`, builds all its variables in
`build`, and reloads from its config, quantized or not.
"""

from keras_vit.layers.attention import SelfAttention
from keras_vit.layers.axial_block import AxialBlock
from keras_vit.layers.drop_path import DropPath
from keras_vit.layers.encoder_block import EncoderBlock
from keras_vit.layers.heads import (
    HEADS,
    AttentionPool,
    DistillationHead,
    MeanPool,
    TokenMeanPool,
    TokenPool,
)
from keras_vit.layers.layer_norm import LayerNorm
from keras_vit.layers.layer_scale import LayerScale
from keras_vit.layers.mixer_block import MixerBlock
from keras_vit.layers.mlp import MLP
from keras_vit.layers.patch_dropout import PatchDropout
from keras_vit.layers.patch_embedding import PatchEmbedding
from keras_vit.layers.pixel_normalization import PixelNormalization
from keras_vit.layers.position_embedding import (
    POSITION_EMBEDDINGS,
    Learned2DPositionEmbedding,
    LearnedPositionEmbedding,
    SinCos2DPositionEmbedding,
)
from keras_vit.layers.prefix_tokens import PrefixTokens
from keras_vit.layers.resnet_stem import ResNetStem
from keras_vit.layers.token_merging import MergingBlock

__all__ = [
    "HEADS",
    "MLP",
    "POSITION_EMBEDDINGS",
    "AttentionPool",
    "AxialBlock",
    "DistillationHead",
    "DropPath",
    "EncoderBlock",
    "LayerNorm",
    "LayerScale",
    "Learned2DPositionEmbedding",
    "LearnedPositionEmbedding",
    "MeanPool",
    "MergingBlock",
    "MixerBlock",
    "PatchDropout",
    "PatchEmbedding",
    "PixelNormalization",
    "PrefixTokens",
    "ResNetStem",
    "SelfAttention",
    "SinCos2DPositionEmbedding",
    "TokenMeanPool",
    "TokenPool",
]
