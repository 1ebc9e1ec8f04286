"""Masked patch prediction, the paper's self-supervision: pre-training without labels."""

import math
from typing import Any

import keras
from keras import ops

from keras_vit.checks import check_choice, is_real
from keras_vit.layers.heads import head_policy
from keras_vit.layers.take_tokens import take_tokens
from keras_vit.model import ViT
from keras_vit.training.patch_targets import TARGETS, split_patches

# Of the corrupted patches; the others stay as they are.
MASKED_SHARE = 0.8
REPLACED_SHARE = 0.1
# Models of different seeds are measured behind the same masks.
EVALUATION_SEED = 0


@keras.saving.register_keras_serializable(package="keras_vit")
class PatchCorruption(keras.layers.Layer):
    """Corrupt some patch embeddings of each picture, other ones for each.

    A corrupted one becomes a learned mask embedding by a chance of 80 %, that of another patch of
    the same picture by 10 %, and stays as it is by 10 %.

    Args:
        count: Patches to corrupt in each picture, exactly.
        seed: Seed of the draws while training, or None.

    Call arguments:
        embeddings: `(batch, patches, hidden_dim)`, before their positions.
        training: True draws anew at each call; otherwise each call draws the same.

    Returns:
        A tuple of the embeddings, in the shape of `embeddings`, and the numbers of those that
        are corrupted, int32 `(batch, count)`, ascending.
    """

    def __init__(self, count: int, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.count = count
        self.seed = seed
        self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape: tuple[int | None, ...]):
        self.mask_embedding = self.add_weight(
            name="mask_embedding",
            shape=(input_shape[-1],),
            initializer=keras.initializers.TruncatedNormal(stddev=0.02),  # as BERT's
        )

    def call(self, embeddings, training: bool = False):
        patches = embeddings.shape[1]
        seed = self.seed_generator if training else EVALUATION_SEED
        shape = (3, ops.shape(embeddings)[0], patches)
        # One draw of all: by one fixed seed, three would give the same numbers three times.
        draws = keras.random.uniform(shape, dtype="float32", seed=seed)
        place, fate, distance = ops.unstack(draws, num=3, axis=0)  # (batch, patches) each
        order = ops.argsort(place, axis=-1)
        is_corrupted = ops.argsort(order, axis=-1) < self.count  # by rank: ties change no count
        is_masked = ops.logical_and(is_corrupted, fate < MASKED_SHARE)
        is_replaced = ops.logical_and(is_corrupted, fate >= 1.0 - REPLACED_SHARE)
        steps = ops.cast(distance * (patches - 1), "int32")  # rounding may give patches - 1
        others = ops.arange(patches, dtype="int32") + 1 + ops.minimum(steps, patches - 2)
        others = take_tokens(embeddings, others % patches)
        mask = ops.cast(self.mask_embedding, embeddings.dtype)
        embeddings = ops.where(is_replaced[..., None], others, embeddings)
        embeddings = ops.where(is_masked[..., None], mask, embeddings)
        return embeddings, ops.sort(order[:, : self.count], axis=-1)

    def get_config(self) -> dict:
        return {**super().get_config(), "count": self.count, "seed": self.seed}


@keras.saving.register_keras_serializable(package="keras_vit")
class MaskedPatchModel(keras.Model):
    """Trains a `ViT` to tell what is in patches that it cannot see.

    Some patch embeddings are corrupted, before prefix tokens and positions (`PatchCorruption`).
    One linear layer predicts each of these patches from its token, after the encoder's last
    normalization. All before that is shared with the backbone and trained in place; pool and head
    have no part in it and do not learn: `model.backbone.reset_head(k)` is what to fine-tune.

    `compile` needs an optimizer alone. `fit` and `evaluate` take pictures and ignore labels and
    sample weights; loss and metrics are of the corrupted patches. `evaluate` corrupts each picture
    of a batch in the same way every time; `predict` corrupts none.

    The paper leaves open, and here is so: the number of corrupted patches is exact; "a random
    other patch" is one of the same picture; a colour is cut, not rounded, to its 3 bits; the loss
    is the mean over parallel predictions; whole patches are regressed as -1..1. Behind a ResNet
    stem, which sees more than a patch, what is corrupted is its output.

    Args:
        backbone: The model to train, with pixel normalization inside and every patch kept.
        target: What to predict of a patch, a key of `TARGETS` (paper, B.1.2): `"mean_color"`, one
            of 512 colours, 8 of grey pictures; `"downsized"`, one for each of 4 x 4 cells;
            `"patch"`, the pixels, of any number of channels.
        corruption_rate: Part of the patches to corrupt, above 0 and at most 1. The paper found
            0.15 slightly worse.
        seed: Seed of the draws while training, or None.
        **kwargs: `name` and `trainable`, as in `keras.Model`.

    Call arguments:
        images: Pixels 0..255, `(batch, height, width, channels)` of the backbone's `image_size`.
        training: Whether to corrupt, and to drop as the backbone does.

    Returns:
        A dict of float32 `"predictions"`, `(batch, patches, colors)`, `(batch, patches, 16,
        colors)` or `(batch, patches, pixels)`, and their `"targets"`, colours as int32 without the
        last axis. Of corrupted patches alone where some are, else of all.

    Raises:
        ValueError: If the backbone is none of these, or its patches have no such target.

    Example:

    ```python
    model = keras_vit.MaskedPatchModel(keras_vit.ViT.from_variant("B/16", num_classes=0))
    model.compile(keras.optimizers.Adam(2e-4), metrics=["accuracy"])
    model.fit(images)
    classifier = model.backbone.reset_head(10)
    ```

    Reference:
        Dosovitskiy et al., arXiv 2010.11929, sections 4.6 and B.1.2: Adam 2e-4, 10,000 steps of
        warmup, cosine decay, batches of 4096.
    """

    def __init__(
        self,
        backbone: ViT,
        target: str = "mean_color",
        corruption_rate: float = 0.5,
        seed: int | None = None,
        **kwargs,
    ):
        _check_backbone(backbone)
        check_choice("target", target, TARGETS)
        # Pixels come in float32 whatever the policy; the layers have that of the backbone.
        super().__init__(**{**kwargs, "dtype": "float32"})
        # Not tracked as a layer: weights that the loss does not read must not decay, either.
        object.__setattr__(self, "backbone", backbone)
        config, policy = backbone.config, backbone.dtype_policy
        self.target = target
        self.corruption_rate = corruption_rate
        self.seed = seed
        self.patch_size = tuple(
            side // patches for side, patches in zip(config.image_size, config.grid, strict=True)
        )
        self.prediction_shape = TARGETS[target].shape(*self.patch_size, config.num_channels)
        is_normed = config.final_norm == "encoder"
        last = "encoder_norm" if is_normed else f"block_{config.num_layers - 1}"
        inside = backbone.intermediates(["patch_embedding", last]).output
        self.stem = keras.Model(backbone.inputs[0], inside["patch_embedding"], name="stem")
        self.encoder = keras.Model(inside["patch_embedding"], inside[last], name="encoder")
        count = _count_corrupted(corruption_rate, math.prod(config.grid))
        self.corruption = PatchCorruption(count, seed, dtype=policy, name="patch_corruption")
        self.corruption.build((None, math.prod(config.grid), config.hidden_dim))
        self.head = keras.layers.Dense(
            math.prod(self.prediction_shape),
            kernel_initializer="zeros",  # as the head of every model here
            dtype=head_policy(policy),
            name="patch_head",
        )
        self.head.build((None, config.hidden_dim))
        self._is_evaluating = False
        self.built = True

    def call(self, images, training: bool = False):
        patches = split_patches(ops.cast(images, "float32"), self.patch_size)
        targets = TARGETS[self.target].of(patches)
        embeddings = self.stem(images, training=training)
        corrupted = None
        if training or self._is_evaluating:
            embeddings, corrupted = self.corruption(embeddings, training=training)
        tokens = self.encoder(embeddings, training=training)
        tokens = tokens[:, self.backbone.config.num_prefix_tokens :]
        if corrupted is not None:
            tokens, targets = take_tokens(tokens, corrupted), take_tokens(targets, corrupted)
        predictions = ops.reshape(self.head(tokens), (-1, tokens.shape[1], *self.prediction_shape))
        return {"predictions": predictions, "targets": targets}

    def test_step(self, *args):
        """As Keras' own, of corrupted patches."""
        self._is_evaluating = True
        try:
            return super().test_step(*args)
        finally:
            self._is_evaluating = False

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """The loss of the corrupted patches; labels and weights are ignored."""
        return TARGETS[self.target].loss(y_pred["targets"], y_pred["predictions"])

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Those of `compile`, of the corrupted patches; labels and weights are ignored."""
        return super().compute_metrics(x, y_pred["targets"], y_pred["predictions"])

    def fit(self, x: Any = None, *args, **kwargs):
        """As `keras.Model.fit`; warns when the pixels look like 0..1 and not 0..255."""
        return super().fit(self.backbone._watched(x), *args, **kwargs)

    def get_config(self) -> dict:
        return {
            "name": self.name,
            "trainable": self.trainable,
            "backbone": keras.saving.serialize_keras_object(self.backbone),
            "target": self.target,
            "corruption_rate": self.corruption_rate,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config: dict, custom_objects: Any = None) -> "MaskedPatchModel":
        backbone = keras.saving.deserialize_keras_object(config["backbone"], custom_objects)
        return cls(**{**config, "backbone": backbone})


def _check_backbone(backbone: ViT) -> None:
    if not isinstance(backbone, ViT):
        raise ValueError(
            f"`backbone` must be a `keras_vit.ViT`. Received: {type(backbone).__name__}."
        )
    backbone._refuse_quantized("MaskedPatchModel")
    if not backbone.include_normalization:
        raise ValueError(
            "`backbone` must take pixels 0..255, whose colours are predicted. Received: "
            "include_normalization=False. Make it with True."
        )
    for name in ("patch_drop_rate", "merged_tokens_per_block"):
        value = getattr(backbone.config, name)
        if value:
            raise ValueError(
                "`backbone` must keep every patch, to predict from its token. Received: "
                f"{name}={value}. Make it with 0."
            )


def _count_corrupted(rate: float, patches: int) -> int:
    if not is_real(rate) or not 0.0 < rate <= 1.0 or not round(rate * patches):
        raise ValueError(
            "`corruption_rate` must be above 0 and at most 1, and make one patch at least. "
            f"Received: corruption_rate={rate!r}, {patches} patches. The paper's is 0.5."
        )
    return round(rate * patches)
