import numpy as np
import pytest

from keras_vit.evaluation.calibration import NUM_BINS, calibration_error, reliability


def test_bins_hold_their_upper_end():
    bins = reliability(np.array([0.0, 0.01, 2 / 15, 0.5, 14 / 15 + 1e-9, 1.0]), np.ones(6, bool))
    assert len(bins) == NUM_BINS == 15
    assert [part.pictures for part in bins] == [2, 1, 0, 0, 0, 0, 0, 1, *[0] * 6, 2]
    assert (bins[0].low, bins[7].low, bins[7].high, bins[-1].high) == (0, 7 / 15, 8 / 15, 1)


def test_error_by_hand():
    """Three at 0.9 of which one is right, one at 0.3 that is: (3 |1/3 - 0.9| + |1 - 0.3|) / 4."""
    bins = reliability(np.array([0.9, 0.9, 0.3, 0.9]), np.array([True, False, True, False]))
    assert bins[13].confidence == pytest.approx(0.9)
    assert bins[13].accuracy == pytest.approx(1 / 3)
    assert (bins[4].pictures, bins[4].accuracy) == (1, 1.0)
    assert (bins[5].confidence, bins[5].accuracy) == (None, None)
    assert calibration_error(bins) == pytest.approx((3 * (0.9 - 1 / 3) + 0.7) / 4)


def test_errors_within_a_bin_cancel_and_across_bins_do_not():
    sure = np.full(10, 0.8)
    is_right = np.arange(10) < 8
    assert calibration_error(reliability(sure, is_right)) == pytest.approx(0, abs=1e-12)
    apart = np.where(is_right, 0.9, 0.4)
    assert calibration_error(reliability(apart, is_right)) == pytest.approx(0.8 * 0.1 + 0.2 * 0.4)
