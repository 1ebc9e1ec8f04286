"""What a Vision Transformer is made of, and how its pixels are prepared: plain values.

Reference: Dosovitskiy et al., *An Image is Worth 16x16 Words*, arXiv 2010.11929, Table 1.
"""

import dataclasses
import difflib
import math
import numbers
from collections.abc import Iterable

ACTIVATIONS = ("gelu", "gelu_tanh")
POOLS = ("token", "mean")
POSITION_EMBEDDING_NAMES = ("learned",)
INTERPOLATIONS = ("nearest", "bilinear", "bicubic")
RESIZE_MODES = ("squash", "crop")

Pair = tuple[int, int]


def as_pair(value: int | Iterable[int], name: str) -> Pair:
    """Return `(height, width)` of one positive integer or of two.

    Args:
        value: An integer, or two of them, height first.
        name: Argument name for the error message.

    Raises:
        ValueError: If `value` is anything else.
    """
    try:
        pair = (value, value) if not isinstance(value, Iterable) else tuple(value)
        whole = tuple(int(side) for side in pair)
    except (TypeError, ValueError):
        pair = whole = ()
    if len(whole) != 2 or whole != tuple(pair) or min(whole) < 1:
        raise ValueError(
            f"`{name}` must be a positive integer or two of them, (height, width). "
            f"Received: {name}={value!r}."
        )
    return whole


def as_labels(labels: Iterable[str] | None, num_classes: int) -> tuple[str, ...] | None:
    """Return one name a class, or None for None.

    Raises:
        ValueError: If `labels` are not as many as classes, or one text instead of many.
    """
    if labels is None:
        return None
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise ValueError(f"`labels` must be a list of names. Received: labels={labels!r}.")
    labels = tuple(str(label) for label in labels)
    if len(labels) != num_classes:
        raise ValueError(
            "`labels` must hold one name a class. "
            f"Received: {len(labels)} labels, num_classes={num_classes}."
        )
    return labels


def _is_real(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def unknown_name(what: str, name: object, known: Iterable[str]) -> ValueError:
    """Return the error for a name that is in no table, listing close matches."""
    known = list(dict.fromkeys(known))
    close = difflib.get_close_matches(str(name), known, n=5, cutoff=0.5)
    more = f", ... ({len(known)} in all)" if len(known) > 20 else ""
    hint = (
        f"Did you mean: {', '.join(close)}?" if close else f"Known: {', '.join(known[:20])}{more}."
    )
    return ValueError(f"Unknown {what}. Received: {name!r}. {hint}")


def check_choice(what: str, name: object, known: Iterable[str]) -> None:
    if name not in known:
        raise unknown_name(f"`{what}`", name, known)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ViTConfig:
    """The architecture of one plain Vision Transformer.

    Args:
        num_layers: Encoder blocks.
        num_heads: Attention heads; divides `hidden_dim`.
        hidden_dim: Width of a token.
        mlp_dim: Width of the hidden layer of a block's MLP.
        patch_size: Patch side in pixels, an integer or `(height, width)`.
        image_size: Input side in pixels, an integer or `(height, width)`; a multiple of
            `patch_size`.
        num_channels: Channels of the input image.
        num_classes: Logits; 0 gives features (no `head` layer).
        class_token: Whether a learned token is put before the patches.
        pool: `"token"` (the first token) or `"mean"` (mean of the patch tokens).
        representation_size: Width of the tanh layer before the head (`pre_logits` of the
            paper's pre-training head, section 3.1), or None for no such layer.
        position_embedding: `"learned"`, one row a token (paper, section 3.1).
        activation: `"gelu"` (exact) or `"gelu_tanh"` (the approximation that JAX's
            `nn.gelu` computes).
        layer_norm_epsilon: Epsilon of every LayerNormalization.
        qkv_bias: Whether queries, keys and values have a bias.
        dropout_rate: After the position embedding and every dense layer but `qkv`
            (paper, B.1).
        attention_dropout_rate: On attention weights.
        drop_path_rate: Stochastic depth of the last block; earlier ones rise linearly from 0.

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
    class_token: bool = True
    pool: str = "token"
    representation_size: int | None = None
    position_embedding: str = "learned"
    activation: str = "gelu_tanh"
    layer_norm_epsilon: float = 1e-6
    qkv_bias: bool = True
    dropout_rate: float = 0.0
    attention_dropout_rate: float = 0.0
    drop_path_rate: float = 0.0

    def __post_init__(self):
        object.__setattr__(self, "patch_size", as_pair(self.patch_size, "patch_size"))
        object.__setattr__(self, "image_size", as_pair(self.image_size, "image_size"))
        self._check_integers()
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("pool", self.pool, POOLS)
        check_choice("position_embedding", self.position_embedding, POSITION_EMBEDDING_NAMES)
        for name in ("dropout_rate", "attention_dropout_rate", "drop_path_rate"):
            rate = getattr(self, name)
            if not _is_real(rate) or not 0.0 <= rate < 1.0:
                raise ValueError(f"`{name}` must be at least 0 and below 1. Received: {rate!r}.")
        epsilon = self.layer_norm_epsilon
        if not _is_real(epsilon) or not 0.0 < epsilon < 1.0:
            raise ValueError(
                "`layer_norm_epsilon` must be above 0 and below 1. "
                f"Received: {epsilon!r}. The paper's code uses 1e-6."
            )
        for name in ("qkv_bias", "class_token"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(
                    f"`{name}` must be True or False. Received: {getattr(self, name)!r}."
                )
        if self.pool == "token" and not self.class_token:
            raise ValueError(
                "`pool='token'` reads the class token, but `class_token=False`. "
                "Use `pool='mean'`, or `class_token=True`."
            )
        self._check_sizes()

    def _check_integers(self):
        for name in ("num_layers", "num_heads", "hidden_dim", "mlp_dim", "num_channels"):
            self._check_integer(name, 1, "a positive integer")
        self._check_integer("num_classes", 0, "0 (features) or a positive integer")
        if self.representation_size is not None:
            none_or = "None (no such layer) or a positive integer"
            self._check_integer("representation_size", 1, none_or)

    def _check_integer(self, name: str, least: int, what: str):
        """Whole numbers of any library are taken, as Python's."""
        value = getattr(self, name)
        is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if not is_whole or value < least:
            raise ValueError(f"`{name}` must be {what}. Received: {value!r}.")
        object.__setattr__(self, name, int(value))

    def _check_sizes(self):
        if self.hidden_dim % self.num_heads:
            raise ValueError(
                "`hidden_dim` must be a multiple of `num_heads`. "
                f"Received: hidden_dim={self.hidden_dim}, num_heads={self.num_heads}."
            )
        for side, patch, image in zip(
            ("height", "width"), self.patch_size, self.image_size, strict=True
        ):
            if image % patch:
                below, above = image // patch * patch, (image // patch + 1) * patch
                legal = f"{below} or {above}" if below else f"{above}"
                raise ValueError(
                    "`image_size` must be a multiple of `patch_size`. Received: "
                    f"image_size={self.image_size}, patch_size={self.patch_size}. "
                    f"For the {side} try {legal}."
                )

    @property
    def grid(self) -> Pair:
        """Patches as `(grid_height, grid_width)`."""
        return (
            self.image_size[0] // self.patch_size[0],
            self.image_size[1] // self.patch_size[1],
        )

    @property
    def num_prefix_tokens(self) -> int:
        """Tokens before the patch tokens."""
        return int(self.class_token)

    @property
    def num_tokens(self) -> int:
        """All tokens of the sequence, prefix tokens included."""
        return self.num_prefix_tokens + self.grid[0] * self.grid[1]

    def to_dict(self) -> dict:
        """The fields as JSON values."""
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(self).items()
        }


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
        resize: `"squash"` resizes to the model's size whatever the aspect; `"crop"` resizes
            the shorter side, keeps the aspect, and cuts out the centre.
        crop_fraction: With `"crop"`: model size / resized shorter side (timm's `crop_pct`).
            0.875 resizes to 256 for a 224 model.

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
        return {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in dataclasses.asdict(self).items()
        }


# Name: num_layers, num_heads, hidden_dim, mlp_dim. Paper Table 1 for B, L and H; Ti and S as in
# the official repository's vit_jax/configs/models.py.
SIZES = {
    "Ti": (12, 3, 192, 768),
    "S": (12, 6, 384, 1536),
    "B": (12, 12, 768, 3072),
    "L": (24, 16, 1024, 4096),
    "H": (32, 16, 1280, 5120),
}


def _variant(name: str) -> ViTConfig:
    size, patch = name.split("/")
    num_layers, num_heads, hidden_dim, mlp_dim = SIZES[size]
    return ViTConfig(
        num_layers=num_layers,
        num_heads=num_heads,
        hidden_dim=hidden_dim,
        mlp_dim=mlp_dim,
        patch_size=int(patch),
        # The official configurations of L/16 and H/14 train with dropout.
        dropout_rate=0.1 if name in ("L/16", "H/14") else 0.0,
    )


VARIANTS = {
    name: _variant(name)
    for name in ("Ti/16", "S/16", "S/32", "B/8", "B/16", "B/32", "L/16", "L/32", "H/14")
}
