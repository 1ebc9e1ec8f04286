"""A confusion matrix as a picture, drawn by Pillow alone."""

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from keras_vit.evaluation.scores import Evaluation

_MOST_CLASSES = 2000
_MOST_NAMES = 40
_MOST_COUNTS = 20
_MOST_NUMBERS = 12
_LONGEST_NAME = 24
# In pixels: what a side of the matrix aims at, the bounds of a cell, and what is around.
_SIDE, _LEAST_CELL, _MOST_CELL, _LEAST_LINED_CELL = 900, 2, 72, 8
_MARGIN, _GAP, _TITLE_SIZE, _TEXT_SIZE, _BAR_WIDTH, _BAR_LENGTH = 20, 8, 22, 15, 18, 240
# One hue, darker for more: it needs no sight of colours, and survives a grey printer.
_RAMP = np.array([[255, 255, 255], [88, 148, 202], [8, 34, 84]])
_INK, _PAPER, _LINE = (32, 32, 32), (255, 255, 255), (208, 208, 208)
# What is not zero is tinted at least so much; above, square roots spread the small shares.
_FAINTEST = 0.12
# Pillow's own font has ASCII alone. Names in other letters take the first that has them all.
_FONTS = ("DejaVuSans.ttf", "Arial Unicode.ttf", "arial.ttf", "NotoSansCJK-Regular.ttc")
_TICKS = {1.0: "100 %", 0.5: "50 %", 0.25: "25 %", 0.1: "10 %", 0.01: "1 %"}


def check_drawable(num_classes: int) -> None:
    """Refuse more classes than `draw_confusion` draws, before pictures are asked about."""
    if num_classes > _MOST_CLASSES:
        raise ValueError(
            f"A confusion matrix is drawn of {_MOST_CLASSES} classes at most. "
            f"Received: data of {num_classes} classes. `Evaluation.confused_pairs` lists them."
        )


def draw_confusion(evaluation: Evaluation) -> Image.Image:
    """Draw what pictures show (rows) and what they are named (columns).

    Rows are the classes of the data in their order, and so are the columns; pictures that are
    named none of those stand together in one more column. A cell is as dark as its share of its
    row is large, so that rare classes are as plain to see as frequent ones. Up to 20 classes the
    cells hold their counts, up to 40 the sides hold names; above that, and where no font at hand
    has the letters, numbers from 0.

    Args:
        evaluation: The answers.

    Returns:
        An RGB image, some hundred pixels a side; of many classes 2 pixels a class and more. Its
        `save("confusion.png")` writes it.

    Raises:
        ValueError: If the data have more than 2000 classes.
    """
    names = [evaluation.class_names[index] for index in evaluation.data_classes]
    check_drawable(len(names))
    counts = _count(evaluation)
    cell = min(max(_SIDE // len(names), _LEAST_CELL), _MOST_CELL)
    font = _font_of(names) if len(names) <= _MOST_NAMES else None
    header = _header_panel(evaluation, len(names), are_numbered=font is None)
    rows, columns = (_side_panel(names, cells, cell, font) for cells in counts.shape)
    columns = columns.rotate(90, expand=True)
    matrix, bar = _matrix_panel(counts, cell), _bar_panel()
    # Side panels and bar are longer than what they belong to, by half a text at either end.
    overhang = _TEXT_SIZE // 2
    left, top = _MARGIN + rows.width + _GAP, _MARGIN + header.height + _MARGIN
    right, bottom = left + matrix.width, top + matrix.height
    width = max(_MARGIN + header.width, right + _MARGIN + bar.width) + _MARGIN
    height = max(bottom + _GAP + columns.height, top + bar.height) + _MARGIN
    picture = Image.new("RGB", (width, height), _PAPER)
    for panel, place in (
        (header, (_MARGIN, _MARGIN)),
        (rows, (_MARGIN, top - overhang)),
        (columns, (left - overhang, bottom + _GAP)),
        (bar, (right + _MARGIN, top - overhang)),
        (matrix, (left, top)),
    ):
        picture.paste(panel, place)
    return picture


def _count(evaluation: Evaluation) -> np.ndarray:
    """`(classes, classes)` of the data, or one more column for all others, where it is needed."""
    size = len(evaluation.data_classes)
    places = np.full(len(evaluation.class_names), size)
    places[list(evaluation.data_classes)] = np.arange(size)
    pairs = places[evaluation.labels] * (size + 1) + places[evaluation.predictions[:, 0]]
    counts = np.bincount(pairs, minlength=size * (size + 1)).reshape(size, size + 1)
    return counts if counts[:, -1].any() else counts[:, :-1]


def _colours(shares: np.ndarray) -> np.ndarray:
    """uint8 `(..., 3)` of shares 0..1."""
    depths = np.where(shares > 0, _FAINTEST + (1 - _FAINTEST) * np.sqrt(shares), 0.0)
    stops = np.linspace(0, 1, len(_RAMP))
    channels = [np.interp(depths, stops, channel) for channel in _RAMP.T]
    return np.stack(channels, axis=-1).astype(np.uint8)


def _matrix_panel(counts: np.ndarray, cell: int) -> Image.Image:
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    pixels = _colours(shares).repeat(cell, axis=0).repeat(cell, axis=1)
    panel = Image.fromarray(pixels)
    pen = ImageDraw.Draw(panel)
    if cell >= _LEAST_LINED_CELL:
        for x in range(0, panel.width, cell):
            pen.line((x, 0, x, panel.height), _LINE)
        for y in range(0, panel.height, cell):
            pen.line((0, y, panel.width, y), _LINE)
    if len(counts) <= _MOST_COUNTS:
        font = ImageFont.load_default(min(_TEXT_SIZE, 1.5 * cell / len(str(counts.max()))))
        for row, column in np.argwhere(counts):
            place = ((column + 0.5) * cell, (row + 0.5) * cell)
            ink = _PAPER if shares[row, column] > 0.2 else _INK
            pen.text(place, str(counts[row, column]), ink, font, anchor="mm")
    pen.rectangle((0, 0, panel.width - 1, panel.height - 1), outline=_INK)
    return panel


def _font_of(names: Sequence[str]) -> ImageFont.FreeTypeFont | None:
    """A font that has the letters of all names, if there is one."""
    letters = set("".join(names))
    for file in (None, *_FONTS):
        try:
            font = ImageFont.truetype(file, _TEXT_SIZE) if file else _text_font()
        except OSError:
            continue
        missing = bytes(font.getmask("\U0010ffff"))  # what stands for a letter that it lacks
        if all(bytes(font.getmask(letter)) != missing for letter in letters):
            return font
    return None


def _text_font() -> ImageFont.FreeTypeFont:
    return ImageFont.load_default(_TEXT_SIZE)


def _side_panel(
    names: Sequence[str], cells: int, cell: int, font: ImageFont.FreeTypeFont | None
) -> Image.Image:
    """What stands beside a side of `cells` cells, those of `names` first; numbers without font."""
    if font is None:
        step = next(step for step in (1, 10, 50, 100, 500) if len(names) <= step * _MOST_NUMBERS)
        labels = {index: str(index) for index in range(0, len(names), step)}
    else:
        labels = {
            index: name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."
            for index, name in enumerate(names)
        }
    if cells > len(names):
        labels[len(names)] = "(others)"
    places = {(index + 0.5) * cell: text for index, text in labels.items()}
    return _text_panel(places, cells * cell, "rm", font or _text_font())


def _bar_panel() -> Image.Image:
    """What the colours mean."""
    places = {(1 - math.sqrt(share)) * _BAR_LENGTH: text for share, text in _TICKS.items()}
    texts = _text_panel(places, _BAR_LENGTH, "lm", _text_font())
    colours = _colours(np.linspace(1, 0, _BAR_LENGTH)[:, np.newaxis] ** 2)
    bar = Image.fromarray(colours.repeat(_BAR_WIDTH, axis=1))
    panel = Image.new("RGB", (_BAR_WIDTH + _GAP + texts.width, texts.height), _PAPER)
    ImageDraw.Draw(bar).rectangle((0, 0, bar.width - 1, bar.height - 1), outline=_INK)
    panel.paste(bar, (0, _TEXT_SIZE // 2))
    panel.paste(texts, (_BAR_WIDTH + _GAP, 0))
    return panel


def _text_panel(
    places: dict[float, str], length: int, anchor: str, font: ImageFont.FreeTypeFont
) -> Image.Image:
    """Texts at heights, flush right ("rm") or left ("lm")."""
    width = math.ceil(max(map(font.getlength, places.values())))
    panel = Image.new("RGB", (width, length + 2 * (_TEXT_SIZE // 2)), _PAPER)
    pen = ImageDraw.Draw(panel)
    for height, text in places.items():
        place = (width if anchor == "rm" else 0, _TEXT_SIZE // 2 + height)
        pen.text(place, text, _INK, font, anchor=anchor)
    return panel


def _header_panel(evaluation: Evaluation, num_classes: int, are_numbered: bool) -> Image.Image:
    top1 = f"{evaluation.top1:.1%}".replace("%", " %")
    lines = [
        (f"{len(evaluation)} pictures of {num_classes} classes, top-1 {top1}", _TITLE_SIZE),
        ("Row: the class shown. Column: the class named.", _TEXT_SIZE),
        ("Colour: share of the row's pictures; white is none.", _TEXT_SIZE),
    ]
    if are_numbered:
        lines.append(("Numbers count the classes of the data from 0.", _TEXT_SIZE))
    fonts = [ImageFont.load_default(size) for _, size in lines]
    widths = [font.getlength(text) for font, (text, _) in zip(fonts, lines, strict=True)]
    height = sum(size + _GAP for _, size in lines)
    panel = Image.new("RGB", (math.ceil(max(widths)), height), _PAPER)
    pen, y = ImageDraw.Draw(panel), 0
    for font, (text, size) in zip(fonts, lines, strict=True):
        pen.text((0, y), text, _INK, font)
        y += size + _GAP
    return panel
