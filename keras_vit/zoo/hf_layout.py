"""How one file spells the names of a family: its dialect, and what stands before the names.

Backbone, encoder and head each have a prefix of their own: files of one part have none, wrappers
put `module.` before all, and transformers itself drops one before the encoder alone (ViT-MSN).
"""

import collections
import re
from collections.abc import Iterable

from keras_vit.checks import Pair
from keras_vit.zoo.checkpoint import MissingWeightsError, square_image_size
from keras_vit.zoo.hf_families import HEADS, Family
from keras_vit.zoo.hf_names import Dialect
from keras_vit.zoo.keymap import Rule
from keras_vit.zoo.tensor_files import TensorFile

_BLOCK = re.compile(r"\b(layers?)\.(\d+)\.")
_PATCH_KERNEL = "patch_embedding/projection/kernel"
_NORM = "block_{i}/norm1/gamma"


class Layout:
    """The tensors of one file under the names of a family.

    Args:
        tensors: The file, with fused tensors in parts.
        family: Whose names they are.
    """

    def __init__(self, tensors: TensorFile, family: Family):
        self.tensors = tensors
        self.family = family
        names = tensors.tensors.keys()
        self.ignored = {n for n in names if re.fullmatch(rf"(?:.*\.)?(?:{family.ignored})", n)}
        self.names = names - self.ignored
        found = [_matches(dialect, self.names) for dialect in family.dialects]
        number = max(range(len(found)), key=lambda i: len(found[i]))  # the first of equals
        self.dialect = family.dialects[number]
        self.prefixes = _prefixes(found[number], family)
        self.known = {
            name for name, prefix, group in found[number] if self.prefixes[group] == prefix
        }

    def spell(self, name: str) -> str:
        """Return this file's name of a tensor, or of a layer, from one without prefix."""
        return self.prefixes[_group(name)] + name

    def has(self, layer: str) -> bool:
        """Whether the file holds a tensor of a layer."""
        return any(name.startswith(f"{self.spell(layer)}.") for name in self.names)

    def width(self, layer: str) -> int | None:
        """Return how many outputs a Linear layer has, from its kernel or its bias, or None."""
        for kind in ("weight", "bias"):
            stored = self.tensors.tensors.get(self.spell(f"{layer}.{kind}"))
            if stored and stored.shape:
                return stored.shape[0]
        return None

    def unused(self, rules: Iterable[Rule]) -> frozenset[str]:
        """Return the tensors that are known and not for the model of these rules."""
        used = {name for rule in rules for name in rule.theirs}
        layers = tuple(f"{self.spell(layer)}." for layer in self.family.optional)
        passed_over = {name for name in self.names - used if name.startswith(layers)}
        return frozenset(self.ignored | passed_over)

    def is_whole(self) -> bool:
        """Whether the names are this family's: the first layers, and all that blocks hold."""
        in_blocks = {name for name in self.names if name.startswith(self._encoder())}
        has_first = all(self.shape(ours) is not None for ours in (_PATCH_KERNEL, _NORM))
        return has_first and in_blocks <= self.known

    def infer_fields(self, prefix_positions: int, image_size: int | Pair | None) -> dict:
        """Return the `ViTConfig` fields that shapes tell, for a file without `config.json`.

        Args:
            prefix_positions: Rows of the position table before those of the patches.
            image_size: Where the caller knows it.

        Raises:
            ValueError: If the image size is nowhere said.
            MissingWeightsError: If a tensor is missing that a size is inferred from.
        """
        hidden_dim, num_channels, *patch_size = self.need(_PATCH_KERNEL, rank=4)
        number = re.compile(rf"{re.escape(self._encoder())}(\d+)\.")
        blocks = (number.match(name) for name in self.names)
        if image_size is None:
            rows = self.need("position_embedding/embeddings")[-2] - prefix_positions
            image_size = square_image_size(self.tensors.path, rows, patch_size)
        fields = {
            "num_layers": 1 + max(int(block[1]) for block in blocks if block),
            "hidden_dim": hidden_dim,
            "mlp_dim": self.need("block_{i}/mlp/fc2/kernel", rank=2)[1],
            "patch_size": tuple(patch_size),
            "image_size": image_size,
            "num_channels": num_channels,
        }
        if "qkv_bias" in self.family.keys:
            fields["qkv_bias"] = self.shape("block_{i}/attention/qkv/bias") is not None
        if "num_register_tokens" in self.family.keys:
            fields["num_register_tokens"] = self.need("prefix_tokens/register_tokens", rank=3)[1]
        gated = (name for rule in self.dialect.gated_mlp for name in rule.theirs)
        if self.names & {self._first(name) for name in gated}:
            fields |= {"gated_mlp": True, "activation": "silu"}
        return fields

    def shape(self, ours: str) -> tuple[int, ...] | None:
        """Return the shape of the first tensor that is there of one of our variables, or None."""
        for theirs in self._theirs(ours):
            stored = self.tensors.tensors.get(self._first(theirs))
            if stored:
                return stored.shape
        return None

    def need(self, ours: str, rank: int = 2) -> tuple[int, ...]:
        """Return the shape of a tensor that sizes are inferred from."""
        shape = self.shape(ours)
        name = self._first(self._theirs(ours)[0])
        if shape is None:
            raise MissingWeightsError(self.tensors.path, [name])
        if len(shape) < rank:
            line = f"{name}: expected {rank} axes, found {shape}"
            raise MissingWeightsError(self.tensors.path, [], misshapen=[line])
        return shape

    def _theirs(self, ours: str) -> list[str]:
        rules = _rules(self.dialect)
        return [name for rule in rules if rule.ours == ours for name in rule.theirs]

    def _first(self, theirs: str) -> str:
        """Return this file's name of a tensor, of the first block if it is of blocks."""
        return self.spell(theirs.replace("{i}", "0"))

    def _encoder(self) -> str:
        """Return what stands before the number of a block."""
        return self.spell(self._theirs(_NORM)[0]).partition("{i}")[0]


def _rules(dialect: Dialect) -> tuple[Rule, ...]:
    return dialect.rules + dialect.mlp + dialect.gated_mlp


def _group(name: str) -> str:
    if name.partition(".")[0] in HEADS:
        return "head"
    return "encoder" if _BLOCK.search(name) or "{i}" in name else "backbone"


def _template(name: str) -> str:
    """Return a name with `{i}` for the number of its block."""
    return _BLOCK.sub(r"\1.{i}.", name, count=1)


def _matches(dialect: Dialect, names: Iterable[str]) -> list[tuple[str, str, str]]:
    """Return `(name, prefix, group)` of every name that ends in one of the dialect's."""
    known = {theirs for rule in _rules(dialect) for theirs in rule.theirs}
    matches = []
    for name in sorted(names):
        starts = [0, *(dot.end() for dot in re.finditer(r"\.", name))]
        for start in starts:  # the longest end first
            if _template(name[start:]) in known:
                matches.append((name, name[:start], _group(name[start:])))
                break
    return matches


def _prefixes(matches: Iterable[tuple[str, str, str]], family: Family) -> dict[str, str]:
    """Return what most names of a group have before them; a group that is not there follows."""
    counts = collections.defaultdict(collections.Counter)
    for _, prefix, group in matches:
        counts[group][prefix] += 1
    prefixes = {group: count.most_common(1)[0][0] for group, count in counts.items()}
    backbone = prefixes.setdefault("backbone", prefixes.get("encoder", ""))
    prefixes.setdefault("encoder", backbone)
    prefixes.setdefault("head", backbone.removesuffix(family.prefix))
    return prefixes
