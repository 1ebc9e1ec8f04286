"""The head beside a direct solve of the same problem by an orthogonal factorisation."""

import dataclasses

import numpy as np
import pytest

from keras_vit.training.least_squares import FewShotHead, least_squares_head

CLASSES = 3


def examples(pictures: int, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Classes about different means, features of different scales and offsets."""
    rng = np.random.default_rng(pictures * width)
    labels = np.arange(pictures) % CLASSES
    features = rng.normal(size=(CLASSES, width))[labels] + rng.normal(size=(pictures, width))
    return features * rng.uniform(0.1, 9.0, width) + rng.normal(0.0, 30.0, width), labels


def direct_solve(features, labels, l2=1024.0, constant=100.0) -> np.ndarray:
    """Weights, the bias' last: least squares with a row sqrt(l2) for each of them; no Gram."""
    deviations = np.sqrt(np.mean((features - features.mean(0)) ** 2, axis=0)) + 1e-5
    rows = [[*row, constant] for row in (features - features.mean(0)) / deviations]
    targets = [[1.0 if label == one else -1.0 for one in range(CLASSES)] for label in labels]
    width = features.shape[1] + 1
    system = np.concatenate([rows, np.sqrt(l2) * np.eye(width)])
    return np.linalg.lstsq(system, np.concatenate([targets, np.zeros((width, CLASSES))]))[0]


@pytest.mark.parametrize("l2", [2.0**10, 1.0, 1e6])
@pytest.mark.parametrize(
    ("pictures", "width"),
    [(40, 7), (12, 30), (30, 30), (31, 30), (3, 20), (3, 2)],
    ids=["primal", "dual", "dual_by_one", "primal_by_none", "one_shot", "one_shot_primal"],
)
def test_is_the_direct_solve(pictures, width, l2):
    features, labels = examples(pictures, width)
    expected = direct_solve(features, labels, l2)
    head = least_squares_head(features, labels, CLASSES, l2)
    size = np.abs(expected[:-1]).max()
    np.testing.assert_allclose(head.weights, expected[:-1], rtol=1e-8, atol=1e-10 * size)
    np.testing.assert_allclose(head.bias, 100.0 * expected[-1], rtol=1e-8)


def test_the_official_values_are_the_defaults():
    """big_vision, `evaluators/fewshot_lsr.py`; reference/official_vit.md, section 4."""
    features, labels = examples(9, 4)
    head = least_squares_head(features, labels, CLASSES)
    np.testing.assert_allclose(head.bias, 100.0 * direct_solve(features, labels)[-1], rtol=1e-8)
    np.testing.assert_array_equal(head.std, features.std(axis=0) + 1e-5)
    assert {value.dtype for value in dataclasses.asdict(head).values()} == {np.dtype("float64")}


@pytest.mark.parametrize(("pictures", "width", "unknowns"), [(6, 50, 6), (50, 6, 7), (7, 6, 7)])
def test_solves_the_smaller_system(pictures, width, unknowns, monkeypatch):
    sizes, solve = [], np.linalg.solve

    def watched(matrix, right_side):
        sizes.append(matrix.shape)
        return solve(matrix, right_side)

    monkeypatch.setattr(np.linalg, "solve", watched)
    least_squares_head(*examples(pictures, width), CLASSES)
    assert sizes == [(unknowns, unknowns)]


@pytest.mark.parametrize("pictures", [60, 9])
def test_scores_by_hand_and_as_one_dense_layer(pictures):
    features, labels = examples(pictures, 16)
    head = least_squares_head(features, labels, CLASSES)
    others = examples(25, 16)[0]
    by_hand = [
        [
            sum((row - head.mean) / head.std * head.weights[:, one]) + head.bias[one]
            for one in range(CLASSES)
        ]
        for row in others
    ]
    np.testing.assert_allclose(head.scores(others), by_hand, rtol=1e-10)
    kernel, bias = head.as_dense()
    assert kernel.shape == (16, CLASSES) and bias.shape == (CLASSES,)
    np.testing.assert_allclose(others @ kernel + bias, by_hand, rtol=1e-9, atol=1e-11)
    in_float32 = others.astype("f") @ kernel.astype("f") + bias.astype("f")
    np.testing.assert_allclose(in_float32, by_hand, atol=1e-4)


def test_units_of_the_features_do_not_matter():
    """Whitening takes scales and offsets out, up to its 1e-5."""
    features, labels = examples(60, 8)
    others = examples(40, 8)[0]
    scores = least_squares_head(features, labels, CLASSES).scores(others)
    for scale, offset in ((0.1, 0.0), (1e4, -7.0), (np.geomspace(0.1, 1e3, 8), np.arange(8.0))):
        head = least_squares_head(features * scale + offset, labels, CLASSES)
        np.testing.assert_allclose(head.scores(others * scale + offset), scores, atol=1e-3)


def test_a_feature_that_never_changes_has_no_say():
    """Its deviation is 0, and 1e-5 would make much of any other value."""
    features, labels = examples(30, 8)
    features[:, 5] = 0.3
    others = features.copy()
    others[:, 5] = 1.3
    head = least_squares_head(features, labels, CLASSES)
    np.testing.assert_allclose(head.weights[5], 0.0, atol=1e-9)
    np.testing.assert_allclose(head.scores(others), head.scores(features), atol=1e-3)


def test_a_class_without_pictures_is_never_the_answer():
    features, labels = examples(30, 8)
    head = least_squares_head(features, labels, CLASSES + 1)
    assert (head.scores(features)[:, CLASSES] < head.scores(features)[:, :CLASSES].max(1)).all()
    plain = least_squares_head(features, labels, CLASSES)
    np.testing.assert_allclose(head.weights[:, :CLASSES], plain.weights, rtol=1e-12)


def test_without_a_bias():
    features, labels = examples(30, 8)
    expected = direct_solve(features, labels, constant=0.0)
    head = least_squares_head(features, labels, CLASSES, bias_constant=0.0)
    np.testing.assert_allclose(head.weights, expected[:-1], rtol=1e-8)
    np.testing.assert_array_equal(head.bias, np.zeros(CLASSES))


GOOD = np.arange(8.0).reshape(4, 2)
ALL = np.array([0, 1, 2, 1])


@pytest.mark.parametrize(
    ("features", "labels", "said"),
    [
        (GOOD, ALL + 1, "`labels` must be from 0 to 2. Received: 3 for picture 2"),
        (GOOD, ALL - 1, "Received: -1 for picture 0"),
        (GOOD, ALL.astype(float), "one integer a picture.*float64"),
        (GOOD, np.eye(3)[ALL], r"argmax\(-1\)"),
        (GOOD, ALL[:3], "3 labels, features for 4 pictures"),
        (GOOD, ALL * 0 + 2, "two classes or more. Received: class 2 alone"),
        (np.where(GOOD == 5.0, np.nan, GOOD), ALL, "finite. Received: NaN or.* for picture 2"),
        (np.where(GOOD == 1.0, np.inf, GOOD), ALL, "for picture 0"),
        (GOOD[:0], ALL[:0], r"one or more of each. Received: features of shape \(0, 2\)"),
        (GOOD[:, :0], ALL, r"Received: features of shape \(4, 0\)"),
        (GOOD[:, 0], ALL, r"Received: features of shape \(4,\)"),
    ],
)
def test_what_is_refused(features, labels, said):
    with pytest.raises(ValueError, match=said):
        least_squares_head(features, labels, CLASSES)


@pytest.mark.parametrize(
    "argument",
    [
        *({"l2": value} for value in (0.0, -1.0, np.nan, np.inf, "1024", True)),
        *({"bias_constant": value} for value in (np.nan, None)),
        *({"num_classes": value} for value in (0, 3.0)),
    ],
    ids=str,
)
def test_numbers_without_meaning(argument):
    [name] = argument
    with pytest.raises(ValueError, match=f"`{name}` must be .*Received: {name}="):
        least_squares_head(GOOD, ALL, **{"num_classes": CLASSES, **argument})


def test_scores_of_what_does_not_fit():
    head = FewShotHead(np.zeros(2), np.ones(2), np.eye(2), np.zeros(2))
    with pytest.raises(ValueError, match=r"2 features as in training.*\(4, 1\)"):
        head.scores(GOOD[:, :1])
    with pytest.raises(ValueError, match="must be finite"):
        head.scores(GOOD * np.nan)
