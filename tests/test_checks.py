import numpy as np
import pytest

from keras_vit.checks import (
    as_labels,
    as_pair,
    check_choice,
    check_integer,
    check_rate,
    check_whole_patches,
    unknown_name,
)


def test_unknown_names_say_how_many_there_are():
    error = str(unknown_name("thing", "zzz", [f"name{i}" for i in range(30)] * 2))
    assert "The nearest of 30: name" in error and error.count(", ") == 4


def test_labels_are_one_a_class():
    assert as_labels(None, 3) is None
    assert as_labels(["a", 1], 2) == ("a", "1")
    with pytest.raises(ValueError, match="2 labels, num_classes=3"):
        as_labels(("a", "b"), 3)


def test_pairs():
    assert as_pair(3, "size") == (3, 3) and as_pair([np.int64(2), 5], "size") == (2, 5)
    for value in (0, (1, 2, 3), "ab", 1.5, None):
        with pytest.raises(ValueError, match="`size` must be a positive integer or two"):
            as_pair(value, "size")


def test_integers_of_any_library_but_no_truth_values():
    assert type(check_integer("count", np.int32(3), 1)) is int
    for value in (0, True, 2.0, "3"):
        with pytest.raises(ValueError, match="`count` must be a positive integer. Received"):
            check_integer("count", value, 1)


def test_rates():
    check_rate("rate", 0)
    check_rate("rate", np.float32(0.5))
    for value in (1.0, -0.1, "0.1", True):
        with pytest.raises(ValueError, match="`rate` must be at least 0 and below 1"):
            check_rate("rate", value)


def test_choices():
    check_choice("pool", "mean", ("token", "mean"))
    with pytest.raises(ValueError, match="Unknown `pool`. Received: 'men'. Did you mean: mean"):
        check_choice("pool", "men", ("token", "mean"))


def test_whole_patches_names_the_nearest_legal_sizes():
    """FAULTS A7."""
    check_whole_patches((32, 48), (16, 16))
    with pytest.raises(ValueError, match=r"multiple of `patch_size`. .*For the width try 32 or 48"):
        check_whole_patches((32, 40), (16, 16))
    with pytest.raises(ValueError, match="times the stem's stride of 4.*For the height try 16"):
        check_whole_patches((8, 16), (4, 4), stride=4)
