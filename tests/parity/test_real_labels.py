"""timm's count by ImageNet's reassessed labels, of the labels themselves."""

import json
import pathlib
import sys

import numpy as np
import pytest

from keras_vit.evaluation import read_real_labels, real_accuracy, real_labels_of

pytestmark = pytest.mark.parity
# triton's library, loaded after TensorFlow's, kills the process; torch does without triton.
sys.modules.setdefault("triton", None)


def test_accuracy_of_made_up_answers():
    """Scores at random, half of the pictures' first label raised, in an order of their own."""
    import timm.data
    import torch
    from timm.data.real_labels import RealLabelsImagenet

    path = pathlib.Path(timm.data.__file__).parent / "_info" / "imagenet_real_labels.json"
    labels = read_real_labels(path)
    assert labels == json.loads(path.read_text()) and len(labels) == 50_000
    generator = np.random.default_rng(0)
    order = generator.permutation(len(labels))
    files = [f"val/n00000000/ILSVRC2012_val_{number + 1:08}.JPEG" for number in order]
    theirs, best = RealLabelsImagenet(files), []
    for part in np.array_split(order, 100):
        scores = generator.random((len(part), 1000), "float32")
        for row, number in zip(scores, part, strict=True):
            if labels[number] and generator.random() < 0.5:
                row[labels[number][-1]] = 2.0
        best.append(scores.argmax(axis=1))
        theirs.add_result(torch.from_numpy(scores))
    ours = real_accuracy(np.concatenate(best), real_labels_of(files, labels, 1000))
    assert 0.45 < ours < 0.55
    assert ours == pytest.approx(theirs.get_accuracy(1) / 100, abs=1e-12)
