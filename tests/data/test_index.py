import threading

import numpy as np
import pytest

from keras_vit.data.index import (
    ImageIndex,
    Split,
    build_index,
    check_each,
    count_classes,
    draw_validation,
    multi_hot,
)

SEVERAL = multi_hot([[0, 1], [], [1], [0, 2]], 3)


def make(labels, class_names=("a", "b"), **arguments):
    labels = np.asarray(labels)
    train = Split(tuple(f"{number}.png" for number in range(len(labels))), labels)
    values = dict(
        validation=None, unreadable=(), split_rule="", validation_fraction=0.5, seed=0
    )  # fmt: skip
    return build_index("here=1", class_names, train, **(values | arguments))


def test_labels_have_one_form():
    assert Split(("a",), (3,)).labels.dtype == "int32"
    assert Split(("a",), ((0, 1),)).labels.dtype == "float32"
    assert Split(("a", "b"), (0, 1)).where([False, True]).paths == ("b",)
    assert len(Split()) == 0


def test_names_do_not_tell_where_a_folder_lies():
    for root in ("", "/", "/x/y/", "x/"):
        split = Split((f"{root}cat/1.png", f"{root}2.png"), (0, 1))
        assert split.names() == ["cat/1.png", "2.png"]
        assert split.where([False, True]).names() == ["2.png"]
    assert Split().names() == []


def test_classes_are_counted():
    assert count_classes(np.array([0, 2, 2], "int32"), 4).tolist() == [1, 0, 2, 0]
    assert count_classes(SEVERAL, 3).tolist() == [2, 2, 1]


def test_every_class_is_divided():
    labels = np.repeat([0, 1, 2], [10, 1, 2])
    chosen = draw_validation(labels, 0.3, 1)
    assert count_classes(labels[chosen], 3).tolist() == [3, 0, 1]
    np.testing.assert_array_equal(draw_validation(labels, 0.3, 1), chosen)
    assert (draw_validation(labels, 0.3, 2) != chosen).any()


def test_a_picture_of_several_classes_counts_as_one_of_the_rarest():
    labels = multi_hot([[0]] * 20 + [[0, 1]] * 10 + [[]] * 10, 2)
    chosen = draw_validation(labels, 0.2, 0)
    assert chosen.sum() == 8
    assert labels[chosen].sum(axis=0).tolist() == [6, 2]


@pytest.mark.parametrize("seed", range(8))
def test_a_class_that_is_never_the_rarest_keeps_a_picture(seed):
    labels = multi_hot([[0, 1], [0], [1, 2], [1, 2]], 3)[[0, 1, 2, 3]]
    labels = np.concatenate([labels, multi_hot([[0, 3], [3]], 4)[:, :3]])
    chosen = draw_validation(labels, 0.9, seed)
    assert (labels[~chosen].sum(axis=0) > 0).all()
    assert chosen.any()


def test_held_out_pictures_and_how_they_are_told_of():
    index = make([0, 0, 1, 1])
    assert (len(index.train), len(index.validation)) == (2, 2)
    assert index.summary == (
        "2 classes (a, b): 2 pictures to train, 2 to validate (50% of every class, drawn with "
        "seed 0)."
    )
    assert len(make([0, 1], validation_fraction=0.0).validation) == 0
    given = make([0, 0, 1, 1], validation=Split(("v",), (0,)), split_rule="a list")
    assert (len(given.train), given.split_rule) == (4, "a list")


def test_unequal_classes_are_told_of():
    index = make([0] * 10 + [1], validation_fraction=0.0)
    assert index.summary.endswith("Classes are unequal: 10 pictures of a, 1 of b.")
    assert "unequal" not in make([0] * 9 + [1], validation_fraction=0.0).summary


def test_multi_label():
    index = make(SEVERAL, ("a", "b", "c"), validation_fraction=0.0)
    assert index.is_multi_label
    assert index.as_multi_label() is index
    assert "3 classes, any number of them a picture (a, b, c)" in index.summary
    rows = make([0, 0, 1, 1]).as_multi_label()
    assert rows.is_multi_label
    assert rows.train.labels.tolist() == [[1, 0], [0, 1]]
    assert rows.validation.labels.shape == (2, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(labels=np.zeros(0, "int32")), "No picture could be read. Received: here=1"),
        (dict(labels=[0, 0], class_names=("a",)), "two classes or more.*'a'"),
        (dict(labels=np.zeros((2, 0)), class_names=()), "two classes or more.*none"),
        (dict(labels=[0, 0]), "class 'b' of here=1"),
        (dict(labels=[0, 1]), "no picture left to validate on"),
        (dict(labels=[0, 1], validation=Split(), split_rule="x"), "validation from x"),
    ],
)
def test_what_nothing_can_be_learnt_from(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


def test_one_class_of_several_labels_and_classes_without_pictures():
    assert make(multi_hot([[0], []], 1), ("a",), validation_fraction=0.0).class_names == ("a",)
    index = make([0, 0], may_lack_classes=True)
    assert isinstance(index, ImageIndex)


def test_answers_keep_their_order_whatever_thread_they_come_from():
    threads = set()

    def check(number: int) -> str | None:
        threads.add(threading.get_ident())
        return None if number % 2 else str(number)

    answers = list(check_each(check, iter(range(600)), 600))
    assert answers == [None if number % 2 else str(number) for number in range(600)]
    assert threads != {threading.get_ident()}
