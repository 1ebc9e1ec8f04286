"""What every reader returns: the source's configuration, its weights in our names and shapes."""

import dataclasses
import math
import mmap
import warnings
from collections.abc import Sequence

import numpy as np

from keras_vit.checks import Pair, as_pair, unknown_name
from keras_vit.config import ModelConfig, PreprocessingConfig, ViTConfig
from keras_vit.zoo import keymap
from keras_vit.zoo.keymap import Rule
from keras_vit.zoo.tensor_files import TensorFile
from keras_vit.zoo.variables import count_parameters, variable_shapes

# Where weights came from first, as `Fetched.origin` says it, and the key of config.json that keeps
# it through saving and loading; other libraries pass over it.
ORIGIN = ("source", "revision", "family", "licence")
ORIGIN_KEY = "keras_vit_origin"
# Several times those of the largest ViT. A damaged number must not fill the memory with names.
MOST_LAYERS, MOST_PARAMETERS = 1000, 10**11


class MissingWeightsError(ValueError):
    """A file whose tensors are not those that its architecture needs."""

    REMEDY = (
        "Check that it is the right file, and whole. `strict=False` passes over missing and "
        "unexpected tensors."
    )

    def __init__(
        self,
        path: object,
        missing: list[str],
        unexpected: list[str] | None = None,
        misshapen: list[str] | None = None,
        remedy: str = REMEDY,
    ):
        self.missing, self.unexpected = missing, unexpected or []
        self.misshapen = misshapen or []
        lines = [f"- {name}" for name in missing]
        lines += [f"+ {name}" for name in self.unexpected]
        lines += [f"! {line}" for line in self.misshapen]
        super().__init__(
            f"{path} does not hold the tensors of this architecture "
            "(- missing, + unexpected, ! of another shape):\n" + "\n".join([*lines, remedy])
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
        multi_label: Whether a picture may have several of the classes.
        origin: What the files say of where the weights came from, as `Fetched.origin`.
    """

    config: ModelConfig
    preprocessing: PreprocessingConfig
    labels: tuple[str, ...] | None
    rules: tuple[Rule, ...]
    tensors: TensorFile
    position_resize: str
    family: str
    ignored: frozenset[str] = frozenset()
    multi_label: bool = False
    origin: dict[str, str] = dataclasses.field(default_factory=dict)

    def weight(self, path: str) -> np.ndarray | None:
        """Return one variable in our shape, as float32, or None where the file lacks it.

        The array is fresh and begins on a page, so that a variable can take its memory.

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
        return _page_aligned(keymap.apply(rule, self._read))

    def _read(self, name: str) -> np.ndarray:
        value = self.tensors.read(name)
        if value.dtype.kind != "f" and value.dtype.name != "bfloat16":
            raise ValueError(
                f"{self.tensors.path} must hold floating point weights. Received: {name} of dtype "
                f"{value.dtype}. Quantized and other converted files are not read: take the "
                "original."
            )
        return value.astype(np.float32, copy=False)  # parts of two dtypes have none in common

    def check(self, strict: bool = True) -> list[str]:
        """Compare names and shapes with what the architecture needs; reads no tensor.

        Args:
            strict: Whether missing and unexpected tensors are errors. Shapes always are.

        Returns:
            The names of the tensors that are missing, where that is no error.

        Raises:
            MissingWeightsError: If they differ.
        """
        shapes = self.tensors.shapes
        variables = variable_shapes(self.config)
        rules = [rule for rule in self.rules if rule.ours in variables]
        missing, unexpected = keymap.report(rules, shapes.keys() - self.ignored)
        tolerated = [] if strict else missing
        if not strict:
            missing = unexpected = []
        misshapen = [
            f"{name}: expected {expected}, found {shapes[name]}"
            for rule in rules
            for name, expected in keymap.their_shapes(rule, variables[rule.ours]).items()
            if shapes.get(name, expected) != expected
        ]
        # A caller's config field may ask for what this layout never has.
        misshapen += [
            f"no tensor of this layout is our {path}"
            for path in sorted(variables.keys() - {rule.ours for rule in rules})
        ]
        if missing or unexpected or misshapen:
            raise MissingWeightsError(self.tensors.path, missing, unexpected, misshapen)
        return tolerated


def _page_aligned(array: np.ndarray) -> np.ndarray:
    """Return a contiguous float32 copy of an array, in memory pages of its own.

    malloc would keep the holes that arrays read from the file leave among weights, which stay.
    """
    pages = mmap.mmap(-1, max(4 * array.size, 1), access=mmap.ACCESS_COPY)  # private: a fork's own
    copy = np.frombuffer(pages, np.float32, array.size).reshape(array.shape)
    copy[...] = array
    return copy


def source_config(
    fields: dict, overrides: dict, kind: type[ModelConfig] = ViTConfig
) -> ModelConfig:
    """Return the source's configuration: what the reader found, then what the caller knows better.

    Args:
        fields: Of `kind`.
        overrides: Of `kind`, and `source_image_size`.
        kind: `ViTConfig` or `MixerConfig`.

    Raises:
        ValueError: If an override is no field, or the fields do not fit each other.
    """
    known = [field.name for field in dataclasses.fields(kind)]
    overrides = dict(overrides)
    if "source_image_size" in overrides:
        overrides["image_size"] = overrides.pop("source_image_size")
    for name in overrides:
        if name not in known:
            raise unknown_name("config field", name, known)
    config = kind(**fields | overrides)
    layers = config.num_layers + sum(getattr(config, "stem_layers", None) or ())
    if layers > MOST_LAYERS or count_parameters(config) > MOST_PARAMETERS:
        raise ValueError(
            f"A model must have at most {MOST_LAYERS} layers and {MOST_PARAMETERS:.0e} parameters. "
            f"Received: {config}. Check the numbers in its config.json."
        )
    return config


def read_origin(config_json: dict | None) -> dict[str, str]:
    """Return what a `config.json` that we wrote says of where its weights came from."""
    values = (config_json or {}).get(ORIGIN_KEY, {})
    if not isinstance(values, dict) or not all(isinstance(text, str) for text in values.values()):
        raise TypeError(f"{ORIGIN_KEY} must hold texts. Received: {values!r}")
    return {name: values[name] for name in ORIGIN if name in values}


def whole_image_size(path: object, image_size: int | Sequence[int], step: Sequence[int]) -> Pair:
    """Return the part of a source's pictures that it cuts into patches.

    Convolutions leave out the last rows and columns that are no whole patch, without a word: a
    SigLIP of 384 pixels in patches of 14 reads 378.

    Args:
        path: The file, for the warning.
        image_size: As the source says it.
        step: Pixels from one patch to the next, `(height, width)`.
    """
    said = as_pair(image_size, "image_size")
    whole = tuple(side // patch * patch or side for side, patch in zip(said, step, strict=True))
    if whole != said:
        warnings.warn(
            f"{path} says image_size={said}, which is no whole number of patches: its own code "
            f"leaves out the last pixels. The model takes {whole}.",
            stacklevel=2,
        )
    return whole


def square_image_size(path: object, patches: int, patch_size: Sequence[int]) -> Pair:
    """Return the image size of a square grid with that many patches.

    Args:
        path: The file, for the error.
        patches: How many.
        patch_size: Pixels from one patch to the next, `(height, width)`.

    Raises:
        ValueError: If no square has them.
    """
    side = math.isqrt(patches)
    if side * side != patches:
        raise ValueError(
            f"{path} is made for {patches} patches, which is no square grid. "
            "`source_image_size` must say which image they were made for, (height, width)."
        )
    return side * patch_size[0], side * patch_size[1]
