"""What a model is made of, and how its pixels are prepared: plain values.

Reference: Dosovitskiy et al., *An Image is Worth 16x16 Words*, arXiv 2010.11929, Table 1.
"""

import dataclasses
import math

from keras_vit.base_config import ImageModelConfig, json_values
from keras_vit.checks import Pair, check_choice, check_integer, check_whole_patches, is_real

POOLS = ("token", "mean", "map", "token_mean")
REPRESENTATIONS = ("tanh", "linear")
POSITION_EMBEDDING_NAMES = ("learned", "learned_2d", "sincos_2d", "relative", "none")
POSITION_INSERTIONS = ("input", "every_block", "every_block_shared")
FINAL_NORMS = ("encoder", "pool", "none")
# Where two code bases put the epsilons of the ResNet stem; layers/resnet_stem.py has the numbers.
STEM_NUMERICS = ("official", "timm")
INTERPOLATIONS = ("nearest", "bilinear", "bicubic")
RESIZE_MODES = ("squash", "crop")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ViTConfig(ImageModelConfig):
    """The architecture of one Vision Transformer.

    The defaults are the paper's plain model; other fields bring its hybrids, its ablations and
    the models that followed.

    Args:
        num_layers: Encoder blocks.
        num_heads: Attention heads; divides `hidden_dim`.
        hidden_dim: Width of a token.
        mlp_dim: Width of the hidden layer of a block's MLP.
        patch_size: Patch side in pixels, an integer or `(height, width)`; with a ResNet stem in
            cells of its feature map.
        image_size: Input side in pixels, an integer or `(height, width)`; a multiple of
            `patch_size` (times the stem's stride).
        num_channels: Channels of the input image.
        num_classes: Logits; 0 gives features (no `head` layer).
        stem_layers: Residual units in each stage of a ResNet stem (hybrids; paper, 3.1): R50 at
            stride 16 is `(3, 4, 9)`. `()` is the root convolution and pool alone. None: no stem.
        stem_width: Channels of the stem's root; a multiple of 32.
        stem_numerics: Epsilons of the stem, as in the `"official"` code or in `"timm"`.
        class_token: Whether a learned token is put before the patches.
        distillation_token: Whether a second one follows it, with a head of its own; logits are
            the mean of the two heads (DeiT, arXiv 2012.12877).
        num_register_tokens: Learned tokens after those, which no head reads (arXiv 2309.16588).
        position_embedding: `"learned"`, one row a token (paper, 3.1); `"learned_2d"`, half the
            width from the row and half from the column; `"sincos_2d"`, fixed; `"relative"`,
            learned offsets in every attention; `"none"` (paper, D.4).
        position_insertion: Positions are added at the `"input"`, or before `"every_block"`, each
            with its own, or `"every_block_shared"` (paper, Table 8).
        num_prefix_positions: How many of the prefix tokens have a row in a learned table; None:
            all. 0 in big_vision and DeiT-3, 1 in DINOv2 with registers.
        patch_bias: Whether the patch projection has a bias (not in CLIP).
        embedding_norm: Whether a LayerNormalization follows the positions (CLIP).
        axial: Whether each block attends along rows, then along columns (paper, D.6).
        qkv_bias: Whether queries, keys and values have a bias.
        qk_norm: Whether queries and keys are normalised head by head.
        activation: Of the MLPs: `"gelu"` (exact), `"gelu_tanh"` (the approximation that JAX's
            `nn.gelu` computes), `"quick_gelu"` (x sigmoid(1.702 x), OpenAI's CLIP) or `"silu"`.
        gated_mlp: Whether half of `fc1`, activated, multiplies the other half; with `"silu"`
            this is SwiGLU. `fc1` is then `2 * mlp_dim` wide.
        layer_scale_init: First value of a learned scale a channel on each residual branch
            (LayerScale, arXiv 2103.17239), or None for no scale.
        final_norm: The last LayerNormalization: of the `"encoder"`'s tokens, of the pooled vector
            (`"pool"`; timm's `fc_norm`), or `"none"`.
        pool: `"token"` (the first token), `"mean"` (mean of the patch tokens), `"map"`
            (attention of one learned query; arXiv 2106.04560) or `"token_mean"` (the first two
            side by side, twice as wide; DINOv2's classifiers, arXiv 2304.07193).
        representation_size: Width of the layer before the head (`pre_logits` of the paper's
            pre-training head, section 3.1), or None for no such layer.
        representation: What that layer is: `"tanh"` as in the paper, or `"linear"`, without a
            bias (the projection of CLIP's image tower, arXiv 2103.00020).
        layer_norm_epsilon: Epsilon of every LayerNormalization.
        dropout_rate: After the position embedding and every dense layer but `qkv`
            (paper, B.1).
        attention_dropout_rate: On attention weights.
        drop_path_rate: Stochastic depth of the last block; earlier ones rise linearly from 0.
        patch_drop_rate: Part of the patch tokens, other ones for each picture, that training
            leaves out after the positions (PatchDropout, arXiv 2208.07220).
        merged_tokens_per_block: Patch tokens that each block merges into similar ones, in
            training and inference (ToMe's r, arXiv 2210.09461); at most half of them. 0: none.
        remat: Whether training computes each block a second time instead of keeping what is
            inside, to save memory. Results are the same.

    Raises:
        ValueError: If a field has no meaning, or two do not fit each other.
    """

    num_layers: int
    num_heads: int
    hidden_dim: int
    mlp_dim: int
    patch_size: int | Pair
    image_size: int | Pair = 224
    num_channels: int = 3
    num_classes: int = 1000
    stem_layers: tuple[int, ...] | None = None
    stem_width: int = 64
    stem_numerics: str = "official"
    class_token: bool = True
    distillation_token: bool = False
    num_register_tokens: int = 0
    position_embedding: str = "learned"
    position_insertion: str = "input"
    num_prefix_positions: int | None = None
    patch_bias: bool = True
    embedding_norm: bool = False
    axial: bool = False
    qkv_bias: bool = True
    qk_norm: bool = False
    activation: str = "gelu_tanh"
    gated_mlp: bool = False
    layer_scale_init: float | None = None
    final_norm: str = "encoder"
    pool: str = "token"
    representation_size: int | None = None
    representation: str = "tanh"
    layer_norm_epsilon: float = 1e-6
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    drop_path_rate: float = 0.0
    patch_drop_rate: float = 0.0
    merged_tokens_per_block: int = 0
    remat: bool = False

    def __post_init__(self):
        self.check_common(
            integers=("num_heads", "mlp_dim", "stem_width"),
            flags=(
                *("class_token", "distillation_token", "patch_bias", "embedding_norm", "axial"),
                *("qkv_bias", "qk_norm", "gated_mlp", "remat"),
            ),
        )
        self.set_integer("num_register_tokens", 0, "0 or a positive integer")
        self.set_integer("merged_tokens_per_block", 0, "0 (no merging) or a positive integer")
        if self.representation_size is not None:
            none_or = "None (no such layer) or a positive integer"
            self.set_integer("representation_size", 1, none_or)
        for name, known in (
            ("pool", POOLS),
            ("representation", REPRESENTATIONS),
            ("position_embedding", POSITION_EMBEDDING_NAMES),
            ("position_insertion", POSITION_INSERTIONS),
            ("final_norm", FINAL_NORMS),
            ("stem_numerics", STEM_NUMERICS),
        ):
            check_choice(name, getattr(self, name), known)
        if self.representation_size is None:
            object.__setattr__(self, "representation", "tanh")  # one spelling a model
        init = self.layer_scale_init
        if init is not None and not (is_real(init) and math.isfinite(init)):
            self.refuse(
                "`layer_scale_init` must be None or a number; DeiT-3 uses 1e-6.",
                "layer_scale_init",
            )
        if init is not None:
            object.__setattr__(self, "layer_scale_init", float(init))
        if self.hidden_dim % self.num_heads:
            self.refuse(
                "`hidden_dim` must be a multiple of `num_heads`.", "hidden_dim", "num_heads"
            )
        self._check_stem()
        self._check_tokens()
        self._check_positions()
        self._check_reduction()
        check_whole_patches(self.image_size, self.patch_size, self.stem_stride)

    def _check_stem(self):
        if self.stem_width % 32:
            self.refuse("`stem_width` must be a multiple of 32, its groups.", "stem_width")
        if self.stem_layers is None:
            return
        try:
            layers = tuple(check_integer("stem_layers", units, 1) for units in self.stem_layers)
        except (TypeError, ValueError) as error:
            raise ValueError(
                "`stem_layers` must be None, or the residual units of each stage, such as "
                f"(3, 4, 9). Received: stem_layers={self.stem_layers!r}."
            ) from error
        object.__setattr__(self, "stem_layers", layers)

    def _check_tokens(self):
        if self.pool in ("token", "token_mean") and not self.class_token:
            raise ValueError(
                f"`pool={self.pool!r}` reads the class token, but `class_token=False`. "
                "Use `pool='mean'` or `pool='map'`, or `class_token=True`."
            )
        if self.distillation_token and (self.pool != "token" or self.representation_size):
            self.refuse(
                "`distillation_token=True` needs `pool='token'` and no `representation_size`.",
                *("pool", "representation_size"),
            )
        if self.axial and (self.num_prefix_tokens or self.position_embedding == "relative"):
            self.refuse(
                "`axial=True` needs a grid of patches alone: `class_token=False`, no registers "
                "and no relative positions.",
                *("class_token", "num_register_tokens", "position_embedding"),
            )

    def _check_positions(self):
        if self.position_embedding == "learned_2d" and self.hidden_dim % 2:
            self.refuse("`position_embedding='learned_2d'` needs an even width.", "hidden_dim")
        if self.position_embedding == "sincos_2d" and (self.hidden_dim % 4 or self.hidden_dim < 8):
            self.refuse(
                "`position_embedding='sincos_2d'` needs a width of 8 or more, a multiple of 4.",
                "hidden_dim",
            )
        if self.position_insertion != "input" and self.position_embedding in ("relative", "none"):
            self.refuse(
                "`position_insertion` is for positions that are added to tokens.",
                *("position_insertion", "position_embedding"),
            )
        count = self.num_prefix_positions
        if count is None:
            return
        if self.position_embedding != "learned":
            self.refuse(
                "`num_prefix_positions` is for `position_embedding='learned'`.",
                *("num_prefix_positions", "position_embedding"),
            )
        what = f"None or an integer from 0 to the {self.num_prefix_tokens} prefix tokens"
        self.set_integer("num_prefix_positions", 0, what)
        if count > self.num_prefix_tokens:
            self.refuse(f"`num_prefix_positions` must be {what}.", "num_prefix_positions")
        if count == self.num_prefix_tokens:
            object.__setattr__(self, "num_prefix_positions", None)  # one spelling a model

    def _check_reduction(self):
        is_added_once = self.position_insertion == "input" and self.position_embedding != "relative"
        for name in ("patch_drop_rate", "merged_tokens_per_block"):
            if getattr(self, name) and (self.axial or not is_added_once):
                self.refuse(
                    f"`{name}` must be 0 where blocks need the whole grid. Leave it out, or take "
                    "`axial=False` and positions that are added at the input.",
                    *(name, "axial", "position_embedding", "position_insertion"),
                )

    @property
    def stem_stride(self) -> int:
        """Pixels a cell of what is cut into patches: the root has 4, each stage after the first
        doubles them."""
        return 1 if self.stem_layers is None else 2 ** max(2, 1 + len(self.stem_layers))

    @property
    def pooled_dim(self) -> int:
        """Width of the vector that stands for a picture."""
        return 2 * self.hidden_dim if self.pool == "token_mean" else self.hidden_dim

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens before the patch tokens: class, distillation, registers."""
        return self.class_token + self.distillation_token + self.num_register_tokens

    @property
    def num_positions(self) -> int:
        """Rows of a learned position table."""
        prefix = self.num_prefix_positions
        prefix = self.num_prefix_tokens if prefix is None else prefix
        return prefix + self.grid[0] * self.grid[1]

    @property
    def num_tokens(self) -> int:
        """All tokens of the sequence, prefix tokens included."""
        return self.num_prefix_tokens + self.grid[0] * self.grid[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MixerConfig(ImageModelConfig):
    """The architecture of one MLP-Mixer (Tolstikhin et al., arXiv 2105.01601, Table 1).

    Args:
        num_layers: Mixer blocks.
        hidden_dim: Width of a token.
        tokens_mlp_dim: Hidden width of the MLP that mixes tokens, the same for every channel.
        channels_mlp_dim: Hidden width of the MLP that mixes channels, the same for every token.
        patch_size: Patch side in pixels, an integer or `(height, width)`.
        image_size: Input side in pixels, an integer or `(height, width)`; a multiple of
            `patch_size`. The weights are of this size only: the token MLP knows each patch.
        num_channels: Channels of the input image.
        num_classes: Logits; 0 gives features (no `head` layer).
        activation: As in `ViTConfig`.
        layer_norm_epsilon: Epsilon of every LayerNormalization.
        dropout_rate: After every dense layer of a block.
        drop_path_rate: Stochastic depth of the last block; earlier ones rise linearly from 0.

    Raises:
        ValueError: If a field has no meaning, or two do not fit each other.
    """

    num_layers: int
    hidden_dim: int
    tokens_mlp_dim: int
    channels_mlp_dim: int
    patch_size: int | Pair
    image_size: int | Pair = 224
    num_channels: int = 3
    num_classes: int = 1000
    activation: str = "gelu_tanh"
    layer_norm_epsilon: float = 1e-6
    dropout_rate: float = 0.0
    drop_path_rate: float = 0.0

    def __post_init__(self):
        self.check_common(integers=("tokens_mlp_dim", "channels_mlp_dim"), flags=())
        check_whole_patches(self.image_size, self.patch_size)

    @property
    def num_tokens(self) -> int:
        """Tokens of the sequence, one a patch."""
        return self.grid[0] * self.grid[1]


ModelConfig = ViTConfig | MixerConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class PreprocessingConfig:
    """How pictures of any size become the pixels that a checkpoint was trained on.

    Args:
        mean: Mean a channel, in units of 0..1; subtracted inside the model.
        std: Standard deviation a channel, in units of 0..1; divided by inside the model.
        interpolation: `"nearest"`, `"bilinear"` or `"bicubic"` (Keys, a=-0.5, as PIL).
        antialias: True resizes as PIL does (the filter widens when shrinking, and the result
            is rounded to whole levels 0..255). False samples, as TensorFlow does by default
            and the official JAX code with it.
        resize: `"squash"` resizes to a square (or the model's oblong) whatever the aspect;
            `"crop"` resizes the shorter side and keeps the aspect. The centre is cut out.
        crop_fraction: Model size / resized (shorter) side, timm's `crop_pct`. 0.875 resizes to
            256 for a 224 model; 1 with `"squash"` leaves nothing to cut.

    Raises:
        ValueError: If a field has no meaning.
    """

    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    interpolation: str = "bilinear"
    antialias: bool = False
    resize: str = "squash"
    crop_fraction: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "mean", tuple(float(value) for value in self.mean))
        object.__setattr__(self, "std", tuple(float(value) for value in self.std))
        check_choice("interpolation", self.interpolation, INTERPOLATIONS)
        check_choice("resize", self.resize, RESIZE_MODES)
        finite = all(map(math.isfinite, self.mean + self.std))
        if not self.mean or len(self.mean) != len(self.std) or min(self.std) <= 0.0 or not finite:
            raise ValueError(
                "`mean` and `std` need one finite number a channel, `std` above 0. "
                f"Received: mean={self.mean}, std={self.std}."
            )
        if not 0.0 < self.crop_fraction <= 1.0:
            raise ValueError(
                f"`crop_fraction` must be above 0 and at most 1. Received: {self.crop_fraction!r}."
            )

    def for_channels(self, num_channels: int) -> "PreprocessingConfig":
        """The same rule for another number of channels.

        One channel takes the average of the means and deviations; more repeat them in order,
        as timm repeats the patch kernel.
        """
        if num_channels == len(self.mean):
            return self
        if num_channels == 1:
            mean, std = (sum(self.mean) / len(self.mean),), (sum(self.std) / len(self.std),)
        else:
            repeats = -(-num_channels // len(self.mean))
            mean, std = (self.mean * repeats)[:num_channels], (self.std * repeats)[:num_channels]
        return dataclasses.replace(self, mean=mean, std=std)

    def to_dict(self) -> dict:
        """The fields as JSON values."""
        return json_values(self)
