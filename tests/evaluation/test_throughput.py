import numpy as np
import pytest

from keras_vit.evaluation.throughput import Stopwatch, Throughput


def timed(sizes, seconds):
    """The stopwatch after batches of `sizes`, its clock having read `seconds`."""
    readings = iter(seconds)
    stopwatch = Stopwatch(lambda: next(readings))
    batches = [(np.zeros((size, 2)), np.zeros(size)) for size in sizes]
    passed = list(stopwatch.watch(batches))
    assert all(one is other for one, other in zip(passed, batches, strict=True))
    assert next(readings, None) is None
    return stopwatch.throughput


def test_a_size_counts_from_its_second_batch_on():
    """Of 4, 4, 4 and 2 pictures the first compiles, and the last compiles anew."""
    throughput = timed([4, 4, 4, 2], [0, 5, 15, 16, 20, 20.5, 24.5, 24.5, 90])
    assert throughput == Throughput(pictures=8, seconds=5 + 4.5, waiting=1 + 0.5)
    assert throughput.pictures_per_second == pytest.approx(8 / 9.5)
    assert throughput.waiting_share == pytest.approx(1.5 / 9.5)
    assert throughput.bottleneck == "input"


def test_a_model_that_is_never_kept_waiting():
    assert timed([1, 1], [0, 9, 10, 10.25, 20]).bottleneck == "model"


@pytest.mark.parametrize(("sizes", "seconds"), [([], [0]), ([3, 2], [0, 1, 2, 3, 4])])
def test_too_few_batches_tell_nothing(sizes, seconds):
    assert timed(sizes, seconds) is None
