"""What is drawn, read back from the pixels."""

import numpy as np
import pytest

from keras_vit.evaluation import Evaluation, draw_confusion
from keras_vit.evaluation import confusion_png as confusion_png_module

CELL = 72  # of few classes
HEADER = 110  # title and two lines
DARKEST = (8, 34, 84)


def answers(labels, named, num_classes=None, data_classes=None, names=None) -> Evaluation:
    labels, named = np.array(labels), np.array(named)[:, None]
    num_classes = num_classes or int(max(labels.max(), named.max())) + 1
    return Evaluation(
        class_names=tuple(names or map(str, range(num_classes))),
        data_classes=tuple(data_classes or range(num_classes)),
        labels=labels,
        predictions=named,
        probabilities=np.ones((len(labels), 1), "float32"),
        loss=0.0,
    )


def all_right(num_classes: int, **options) -> Evaluation:
    return answers(range(num_classes), range(num_classes), **options)


def darkest(evaluation: Evaluation) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of pixels of a cell with all of its row, in cells; the bar cut off."""
    pixels = np.asarray(draw_confusion(evaluation))
    rows, columns = np.nonzero((pixels == DARKEST).all(axis=-1))
    bar = np.flatnonzero(np.diff(np.unique(columns)) > 1)[-1]
    is_cell = columns <= np.unique(columns)[bar]
    rows, columns = rows[is_cell], columns[is_cell]
    return (rows - rows.min()) // CELL, (columns - columns.min()) // CELL


def test_the_diagonal_is_what_is_right():
    rows, columns = darkest(all_right(3))
    assert set(zip(rows.tolist(), columns.tolist(), strict=True)) == {(0, 0), (1, 1), (2, 2)}
    rows, columns = darkest(answers([0, 1, 2], [1, 2, 0]))
    assert set(zip(rows.tolist(), columns.tolist(), strict=True)) == {(0, 1), (1, 2), (2, 0)}


def test_rows_are_what_is_shown_and_columns_what_is_named():
    """All named one class: dark cells above each other, however many pictures a class has."""
    rows, columns = darkest(answers([0, 1, 1, 1, 2], [2, 2, 2, 2, 2]))
    assert set(rows.tolist()) == {0, 1, 2} and set(columns.tolist()) == {0}


def test_classes_stand_in_the_order_of_the_data():
    one = draw_confusion(all_right(2, names=("a", "b"), data_classes=(1, 0)))
    other = draw_confusion(all_right(2, names=("b", "a")))
    np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


def test_what_is_named_none_of_the_classes_has_a_column():
    """Two of nine classes; names are equally long, so that the column is all that is added."""
    names = [f"class {index}" for index in range(9)]
    within = answers([0, 3, 3], [0, 3, 0], data_classes=(0, 3), names=names)
    beyond = answers([0, 3, 3], [0, 3, 8], data_classes=(0, 3), names=names)
    many = answers([0, 3, 3], [8, 7, 6], data_classes=(0, 3), names=names)
    bar = [
        np.flatnonzero((_pixels(case)[:, :] == DARKEST).all(-1).any(0)).max()
        for case in (within, beyond, many)
    ]
    assert bar[1] - bar[0] == bar[2] - bar[0] == CELL
    rows, columns = darkest(many)
    assert set(rows.tolist()) == {0, 1} and set(columns.tolist()) == {0}


def _pixels(evaluation: Evaluation) -> np.ndarray:
    return np.asarray(draw_confusion(evaluation))


def test_a_class_without_pictures_is_white(recwarn):
    counted = _pixels(answers([0, 0], [0, 0], num_classes=2))
    assert counted.shape == _pixels(all_right(2)).shape
    assert not recwarn.list
    rows, columns = darkest(answers([0, 0], [0, 0], num_classes=2))
    assert set(rows.tolist()) == set(columns.tolist()) == {0}


@pytest.mark.parametrize(("num_classes", "are_counted"), [(20, True), (21, False)])
def test_cells_hold_counts_up_to_20_classes(num_classes, are_counted):
    """Twice the pictures, the same shares: but for the title the picture is the same."""
    classes = list(range(num_classes))
    once = _pixels(answers(classes, classes))[HEADER:]
    twice = _pixels(answers(2 * classes, 2 * classes))[HEADER:]
    assert once.shape == twice.shape
    assert (once != twice).any() == are_counted


@pytest.mark.parametrize(("num_classes", "are_named"), [(40, True), (41, False)])
def test_sides_hold_names_up_to_40_classes(num_classes, are_named):
    names = [f"{index:02} has a long name" for index in range(num_classes)]
    short = draw_confusion(all_right(num_classes)).size
    long = draw_confusion(all_right(num_classes, names=names)).size
    assert (long[0] > short[0] + 50 and long[1] > short[1] + 50) == are_named
    assert (long == short) != are_named
    longer = draw_confusion(all_right(num_classes, names=[9 * name for name in names])).size
    assert longer[0] < long[0] + 80  # cut off


def test_names_whose_letters_no_font_has_become_numbers(monkeypatch):
    monkeypatch.setattr(confusion_png_module, "_FONTS", ("no such font.ttf",))
    plain = _pixels(all_right(2, names=("0", "1")))
    other = _pixels(all_right(2, names=("\u732b", "\u72d7")))
    line = other.shape[0] - plain.shape[0]
    assert 15 < line < 30  # says that these are numbers
    np.testing.assert_array_equal(other[HEADER + line :], plain[HEADER:])


@pytest.mark.parametrize(("num_classes", "least", "most"), [(2, 300, 500), (300, 900, 1200)])
def test_size(num_classes, least, most):
    assert all(least <= side <= most for side in draw_confusion(all_right(num_classes)).size)


def test_a_thousand_classes_have_two_pixels_each():
    pixels = _pixels(all_right(1000))
    rows, columns = np.nonzero((pixels == DARKEST).all(axis=-1))
    in_matrix = columns < pixels.shape[1] - 100
    counts = np.bincount(rows[in_matrix])
    assert np.count_nonzero(counts) > 1990 and set(counts[counts > 0].tolist()) <= {1, 2}


def test_too_many_classes():
    with pytest.raises(ValueError, match="2000 classes at most. Received: data of 2001 classes"):
        draw_confusion(all_right(2001))
