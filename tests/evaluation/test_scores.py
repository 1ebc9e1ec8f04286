import numpy as np
import pytest

from keras_vit.evaluation import ClassScore, Evaluation, LabelScore, MultiLabelEvaluation


@pytest.fixture
def evaluation():
    """Seven pictures of cat, dog and (none) cow; a fourth class, fox, is the model's alone."""
    predictions = [[0, 1, 2], [1, 0, 2], [1, 2, 0], [3, 0, 1], [1, 0, 2], [1, 3, 0], [0, 1, 2]]
    return Evaluation(
        class_names=("cat", "dog", "cow", "fox"),
        data_classes=(1, 0, 2),
        labels=np.array([0, 0, 0, 0, 1, 1, 1]),
        predictions=np.array(predictions),
        probabilities=np.full((7, 3), 0.25, "float32"),
        loss=1.5,
    )


def test_overall_figures(evaluation):
    assert len(evaluation) == 7
    assert evaluation.top1 == pytest.approx(3 / 7)
    assert evaluation.top5 is None


def test_confusion_has_a_row_for_what_is_shown(evaluation):
    expected = np.array([[1, 2, 0, 1], [1, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(evaluation.confusion, expected)
    assert evaluation.confused_pairs()[0] == ("cat", "dog", 2)
    assert sorted(evaluation.confused_pairs()[1:]) == [("cat", "fox", 1), ("dog", "cat", 1)]


def test_class_scores_follow_the_data(evaluation):
    """A class without pictures, and never predicted, has no shares; not 0, not NaN."""
    assert evaluation.class_scores() == [
        ClassScore("dog", 3, pytest.approx(2 / 3), None, pytest.approx(2 / 4), "cat", 1),
        ClassScore("cat", 4, 1 / 4, None, 1 / 2, "dog", 2),
        ClassScore("cow", 0, None, None, None, None, 0),
    ]


def test_calibration_is_of_the_best_class():
    """Of three at 0.9 two are right, one at 0.5 is: (3 |2/3 - 0.9| + |1 - 0.5|) / 4."""
    best = np.array([0.9, 0.9, 0.5, 0.9], "float32")
    evaluation = Evaluation(
        class_names=("cat", "dog"),
        data_classes=(0, 1),
        labels=np.array([0, 0, 1, 1]),
        predictions=np.array([[0, 1], [1, 0], [1, 0], [1, 0]]),
        probabilities=np.stack([best, 1 - best], axis=1),
        loss=0.5,
    )
    filled = [part for part in evaluation.reliability() if part.pictures]
    assert [(part.pictures, part.accuracy) for part in filled] == [
        (1, 1.0),
        (3, pytest.approx(2 / 3)),
    ]
    assert evaluation.calibration_error == pytest.approx((3 * (0.9 - 2 / 3) + 0.5) / 4, abs=1e-6)


def test_top5_of_many_classes():
    evaluation = Evaluation(
        class_names=tuple("abcdef"),
        data_classes=tuple(range(6)),
        labels=np.array([0, 1, 5]),
        predictions=np.array([[0, 1, 2, 3, 4], [0, 2, 3, 4, 1], [0, 1, 2, 3, 4]]),
        probabilities=np.zeros((3, 5), "float32"),
        loss=0.0,
    )
    assert evaluation.top5 == pytest.approx(2 / 3)
    assert [score.top5 for score in evaluation.class_scores()] == [1, 1, None, None, None, 0]


def test_a_model_that_is_always_right():
    labels = np.array([0, 1])
    evaluation = Evaluation(
        ("a", "b"), (0, 1), labels, np.array([[0, 1], [1, 0]]), np.ones((2, 2), "float32"), 0.0
    )
    assert evaluation.top1 == 1.0
    assert evaluation.confused_pairs() == []
    assert evaluation.class_scores()[0] == ClassScore("a", 1, 1.0, None, 1.0, None, 0)


@pytest.fixture
def multi_label():
    """Class a is ranked right, wrong, right, wrong; b is never shown; c is tied throughout."""
    logits = np.array([[2.0, -9, -1], [1.0, -9, -1], [-1.0, 9, -1], [-2.0, -9, -1]])
    labels = np.array([[1, 0, 1], [0, 0, 0], [1, 0, 0], [0, 0, 0]], bool)
    return MultiLabelEvaluation(("a", "b", "c"), labels, logits.astype("float32"), 0.5)


def test_label_scores(multi_label):
    # Of a: precision 1 at the first hit, 2/3 at the second. Of c: all four come together.
    assert multi_label.label_scores() == [
        LabelScore("a", 2, pytest.approx((1 + 2 / 3) / 2), 0.5, 0.5, 0.5),
        LabelScore("b", 0, None, 0.0, None, 0.0),
        LabelScore("c", 1, 0.25, None, 0.0, 0.0),
    ]


def test_multi_label_figures(multi_label):
    assert len(multi_label) == 4
    assert multi_label.mean_average_precision == pytest.approx((5 / 6 + 1 / 4) / 2)
    assert multi_label.f1 == pytest.approx(2 * 1 / (3 + 3))
    expected = 1 / (1 + np.exp(-multi_label.logits))
    np.testing.assert_allclose(multi_label.probabilities, expected, rtol=1e-6)


def test_nothing_shown_and_nothing_named():
    nothing = MultiLabelEvaluation(
        ("a",), np.zeros((2, 1), bool), np.full((2, 1), -1e4, "float32"), 0.0
    )
    assert nothing.mean_average_precision is None and nothing.f1 is None
    assert nothing.probabilities.tolist() == [[0.0], [0.0]]
