"""One table of `Rule`s per source: it reads a foreign file, writes one, and says what is missing.

Each rule makes one variable of ours from one or more tensors of theirs. `{i}` in the names
stands for the number of the encoder block.
"""

import dataclasses
from collections.abc import Callable, Iterable

import numpy as np

from keras_vit.zoo.transforms import IDENTITY, Transform


@dataclasses.dataclass(frozen=True)
class Rule:
    """One variable of ours and the tensors that it is made of.

    Args:
        ours: Our variable path.
        theirs: Names of their tensors, in the order that `transform` takes them.
        transform: How they become ours.
    """

    ours: str
    theirs: tuple[str, ...]
    transform: Transform = IDENTITY


def expand(rules: Iterable[Rule], num_layers: int) -> tuple[Rule, ...]:
    """Return the rules with `{i}` filled in, once a block."""
    expanded = []
    for rule in rules:
        blocks = range(num_layers) if "{i}" in rule.ours else (0,)
        for i in blocks:
            theirs = tuple(name.replace("{i}", str(i)) for name in rule.theirs)
            expanded.append(Rule(rule.ours.replace("{i}", str(i)), theirs, rule.transform))
    return tuple(expanded)


def rename_theirs(rules: Iterable[Rule], rename: Callable[[str], str]) -> tuple[Rule, ...]:
    """Return the rules for a file that spells the same tensors differently."""
    return tuple(
        dataclasses.replace(rule, theirs=tuple(rename(name) for name in rule.theirs))
        for rule in rules
    )


def apply(rule: Rule, read: Callable[[str], np.ndarray]) -> np.ndarray:
    """Return our variable, from a function that reads a tensor of theirs by name."""
    return rule.transform.forward(*(read(name) for name in rule.theirs))


def invert(rule: Rule, value: np.ndarray) -> dict[str, np.ndarray]:
    """Return their tensors, by name, from our variable."""
    return dict(zip(rule.theirs, rule.transform.inverse(value), strict=True))


def their_shapes(rule: Rule, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of their tensors, by name, from the shape of our variable."""
    # One number seen as a whole array: the inverse moves axes, so no memory is needed.
    value = np.broadcast_to(np.zeros((), np.float32), shape)
    return {name: array.shape for name, array in invert(rule, value).items()}


def report(rules: Iterable[Rule], names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the tensors that the rules want and do not find, and those that no rule wants."""
    wanted = {name for rule in rules for name in rule.theirs}
    names = set(names)
    return sorted(wanted - names), sorted(names - wanted)
