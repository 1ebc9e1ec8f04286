"""Values that arguments may have, and the errors where they have others."""

import difflib
import numbers
from collections.abc import Iterable

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


def is_real(value: object) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def unknown_name(what: str, name: object, known: Iterable[str]) -> ValueError:
    """Return the error for a name that is in no table, listing close matches."""
    known = list(dict.fromkeys(known))
    close = difflib.get_close_matches(str(name), known, n=5, cutoff=0.5)
    hint = f"Did you mean: {', '.join(close)}?" if close else f"Known: {', '.join(known)}."
    if not close and len(known) > 20:
        nearest = difflib.get_close_matches(str(name), known, n=5, cutoff=0.0)
        hint = f"The nearest of {len(known)}: {', '.join(nearest)}."
    return ValueError(f"Unknown {what}. Received: {name!r}. {hint}")


def check_choice(what: str, name: object, known: Iterable[str]) -> None:
    if name not in known:
        raise unknown_name(f"`{what}`", name, known)


def check_integer(name: str, value: object, least: int, what: str = "a positive integer") -> int:
    """Return a whole number of any library as Python's.

    Args:
        name: Argument name for the error message.
        value: What was given.
        least: The least that is allowed.
        what: What is wanted, in words.

    Raises:
        ValueError: If it is none, or less.
    """
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise ValueError(f"`{name}` must be {what}. Received: {name}={value!r}.")
    return int(value)


def check_rate(name: str, value: object) -> float:
    """Return a number from 0 to below 1 of any library as Python's."""
    if not is_real(value) or not 0.0 <= value < 1.0:
        raise ValueError(f"`{name}` must be at least 0 and below 1. Received: {name}={value!r}.")
    return float(value)


def check_whole_patches(image_size: Pair, patch_size: Pair, stride: int = 1) -> None:
    """Raise unless the picture is a whole number of patches high and wide.

    Args:
        image_size: In pixels.
        patch_size: In pixels, or in cells of a stem that shrinks the picture.
        stride: Pixels a cell of that stem.
    """
    stem = "" if stride == 1 else f" times the stem's stride of {stride}"
    sides = zip(("height", "width"), patch_size, image_size, strict=True)
    for side, patch, image in sides:
        step = patch * stride
        if image % step:
            below, above = image // step * step, (image // step + 1) * step
            legal = f"{below} or {above}" if below else f"{above}"
            raise ValueError(
                f"`image_size` must be a multiple of `patch_size`{stem}. Received: "
                f"image_size={image_size}, patch_size={patch_size}. For the {side} try {legal}."
            )
