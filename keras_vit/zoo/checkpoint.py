"""What every reader returns: the source's configuration, its weights in our names and shapes."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from keras_vit.config import Pair, PreprocessingConfig, ViTConfig, check_choice
from keras_vit.zoo import keymap
from keras_vit.zoo.keymap import Rule
from keras_vit.zoo.tensor_files import TensorFile


class MissingWeightsError(ValueError):
    """A file whose tensors are not those that its architecture needs."""

    def __init__(
        self,
        path: object,
        missing: list[str],
        unexpected: list[str] | None = None,
        misshapen: list[str] | None = None,
    ):
        self.missing, self.unexpected = missing, unexpected or []
        self.misshapen = misshapen or []
        lines = [f"- {name}" for name in missing]
        lines += [f"+ {name}" for name in self.unexpected]
        lines += [f"! {line}" for line in self.misshapen]
        super().__init__(
            f"{path} does not hold the tensors of this architecture "
            "(- missing, + unexpected, ! of another shape):\n" + "\n".join(lines) + "\n"
            "Check that it is the right file, and whole. `strict=False` passes over missing and "
            "unexpected tensors."
        )


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A weight file, understood.

    Args:
        config: The architecture with the source's own sizes and classes.
        preprocessing: How the source prepares pictures.
        labels: Class names in the order of the logits, or None.
        rules: One a variable of ours, without `{i}`, in the file's own names.
        tensors: The open file.
        position_resize: The source's own rule, a name of `resample.POSITION_RESIZE_RULES`.
        family: What kind of file this is.
        ignored: Tensors that are known and not for this model.
    """

    config: ViTConfig
    preprocessing: PreprocessingConfig
    labels: tuple[str, ...] | None
    rules: tuple[Rule, ...]
    tensors: TensorFile
    position_resize: str
    family: str
    ignored: frozenset[str] = frozenset()

    def weight(self, path: str) -> np.ndarray | None:
        """Return one variable in our shape, as float32, or None where the file lacks it.

        Args:
            path: Our variable path, such as `"block_0/attention/qkv/kernel"`.

        Raises:
            KeyError: If the source's architecture has no such variable.
        """
        rule = next((rule for rule in self.rules if rule.ours == path), None)
        if rule is None:
            raise KeyError(path)
        if not self.tensors.tensors.keys() >= set(rule.theirs):
            return None
        return np.ascontiguousarray(keymap.apply(rule, self._read), dtype=np.float32)

    def _read(self, name: str) -> np.ndarray:
        value = self.tensors.read(name)
        if value.dtype.kind != "f" and value.dtype.name != "bfloat16":
            raise ValueError(
                f"{self.tensors.path} must hold floating point weights. Received: {name} of dtype "
                f"{value.dtype}. Quantized and other converted files are not read: take the "
                "original."
            )
        return value

    def check(self, strict: bool = True) -> None:
        """Compare names and shapes with what the architecture needs; reads no tensor.

        Args:
            strict: Whether missing and unexpected tensors are errors. Shapes always are.

        Raises:
            MissingWeightsError: If they differ.
        """
        shapes = self.tensors.shapes
        missing, unexpected = keymap.report(self.rules, shapes.keys() - self.ignored)
        if not strict:
            missing = unexpected = []
        variables = variable_shapes(self.config)
        misshapen = [
            f"{name}: expected {expected}, found {shapes[name]}"
            for rule in self.rules
            for name, expected in keymap.their_shapes(rule, variables[rule.ours]).items()
            if shapes.get(name, expected) != expected
        ]
        if missing or unexpected or misshapen:
            raise MissingWeightsError(self.tensors.path, missing, unexpected, misshapen)


def variable_shapes(config: ViTConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of every variable of the model, by path."""
    dim, mlp_dim = config.hidden_dim, config.mlp_dim
    shapes = {
        "patch_embedding/projection/kernel": (*config.patch_size, config.num_channels, dim),
        "patch_embedding/projection/bias": (dim,),
        "position_embedding/embeddings": (config.num_tokens, dim),
        "encoder_norm/gamma": (dim,),
        "encoder_norm/beta": (dim,),
    }
    if config.class_token:
        shapes["prefix_tokens/class_token"] = (1, dim)
    for i in range(config.num_layers):
        for norm in ("norm1", "norm2"):
            shapes |= {f"block_{i}/{norm}/gamma": (dim,), f"block_{i}/{norm}/beta": (dim,)}
        shapes |= _dense(f"block_{i}/attention/qkv", dim, 3 * dim, bias=config.qkv_bias)
        shapes |= _dense(f"block_{i}/attention/proj", dim, dim)
        shapes |= _dense(f"block_{i}/mlp/fc1", dim, mlp_dim)
        shapes |= _dense(f"block_{i}/mlp/fc2", mlp_dim, dim)
    features = config.representation_size or dim
    if config.representation_size:
        shapes |= _dense("pre_logits", dim, features)
    if config.num_classes:
        shapes |= _dense("head", features, config.num_classes)
    return shapes


def _dense(path: str, inputs: int, outputs: int, bias: bool = True) -> dict[str, tuple[int, ...]]:
    shapes = {f"{path}/kernel": (inputs, outputs)}
    return shapes | {f"{path}/bias": (outputs,)} if bias else shapes


def source_config(fields: dict, overrides: dict) -> ViTConfig:
    """Return the source's configuration: what the reader found, then what the caller knows better.

    Args:
        fields: Of `ViTConfig`.
        overrides: Of `ViTConfig`, and `source_image_size`.

    Raises:
        ValueError: If an override is no field, or the fields do not fit each other.
    """
    known = [field.name for field in dataclasses.fields(ViTConfig)]
    overrides = dict(overrides)
    if "source_image_size" in overrides:
        overrides["image_size"] = overrides.pop("source_image_size")
    for name in overrides:
        check_choice("config field", name, known)
    return ViTConfig(**fields | overrides)


def square_image_size(path: object, rows: int, patch_size: Sequence[int]) -> Pair:
    """Return the image size of a square grid with that many patches.

    Raises:
        ValueError: If no square has them.
    """
    side = math.isqrt(rows)
    if side * side != rows:
        raise ValueError(
            f"{path} has positions for {rows} patches, which is no square grid. "
            "`source_image_size` must say which image they were made for, (height, width)."
        )
    return side * patch_size[0], side * patch_size[1]
