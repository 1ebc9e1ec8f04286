"""Classes from a few pictures each, by least squares on the features of a model.

The paper measures pre-training so where fine-tuning would cost too much (section 4.1).
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_vit.checks import check_integer
from keras_vit.image_model import ImageModel
from keras_vit.training.features import as_image_arrays, features_of, headless
from keras_vit.training.least_squares import L2, check_l2, least_squares_head

# As in big_vision's `evaluators/fewshot_lsr.py`.
SHOTS = (1, 5, 10, 25)
SEEDS = 3

# Rows of the pictures drawn, by pictures a class (None: all) and seed.
Draws = dict[tuple[int | None, int], np.ndarray]


class FewShotAccuracy(NamedTuple):
    """One draw of training pictures.

    Attributes:
        shots: Pictures a class.
        seed: Of the draw.
        accuracy: Top-1 on the pictures to test on, 0..1.
    """

    shots: int
    seed: int
    accuracy: float


def few_shot_accuracy(
    model: ImageModel,
    train: tf.data.Dataset | tuple[Any, Any],
    test: tf.data.Dataset | tuple[Any, Any],
    shots: Iterable[int] = SHOTS,
    seeds: int = SEEDS,
    l2: float = L2,
    batch_size: int = 32,
) -> list[FewShotAccuracy]:
    """How well a few pictures a class tell classes apart by what the model sees in them.

    Each picture goes through the model once. Of arrays only those that are drawn do; of a
    `tf.data.Dataset` all, since its labels are not known before.

    Args:
        model: Any model of the package; its head does not matter.
        train: As `data` of `features_of`. Classes are 0 to the greatest label.
        test: The same; any of those classes.
        shots: Pictures a class, drawn at random. A seed's draw of more holds its draw of fewer.
        seeds: Draws for each of `shots`, by seeds 0, 1, ... The same data in the same order give
            the same draws.
        l2: As in `least_squares_head`.
        batch_size: Pictures a batch, of arrays.

    Returns:
        One row for each of `shots` and each seed, in that order.

    Raises:
        ValueError: If a class of `train` has too few pictures, `test` has another class, or data
            or numbers do not fit otherwise.
        FloatingPointError: If a feature is not finite.

    Example:

    ```python
    for row in few_shot_accuracy(model, (images, labels), (test_images, test_labels)):
        print(row.shots, row.seed, row.accuracy)
    ```

    Reference:
        Dosovitskiy et al., arXiv 2010.11929, section 4.1, Figure 4.
    """
    shots = [shots] if not isinstance(shots, Iterable) else list(shots)
    if not shots:
        raise ValueError("`shots` must hold a number of pictures. Received: none. Try (1, 5).")
    shots = [check_integer("shots", count, 1) for count in shots]
    seeds = range(check_integer("seeds", seeds, 1))
    check_l2(l2)
    extractor = headless(model)
    features, labels, draws = _drawn_features(extractor, train, shots, seeds, batch_size)
    num_classes = int(labels.max()) + 1
    test_features, test_labels = features_of(extractor, test, batch_size, num_classes, "test")
    rows = []
    for (count, seed), pictures in draws.items():
        head = least_squares_head(features[pictures], labels[pictures], num_classes, l2)
        predictions = head.scores(test_features).argmax(axis=1)
        rows.append(FewShotAccuracy(count, seed, float(np.mean(predictions == test_labels))))
    return rows


def few_shot_model(
    model: ImageModel,
    train: tf.data.Dataset | tuple[Any, Any],
    shots: int | None = None,
    seed: int = 0,
    l2: float = L2,
    labels: Iterable[str] | None = None,
    batch_size: int = 32,
) -> ImageModel:
    """A classifier that learned its head in closed form.

    Its logits are the scores of `FewShotHead`: the greatest is the answer, but they lie about
    -1 and 1, and their softmax is no probability.

    Args:
        model: Any model of the package; its head does not matter.
        train: As `data` of `features_of`. Classes are 0 to the greatest label.
        shots: Pictures a class, drawn as `few_shot_accuracy` draws them; None: all.
        seed: Of the draw.
        l2: As in `least_squares_head`.
        labels: One name a class. None keeps the model's own where they are as many.
        batch_size: Pictures a batch, of arrays.

    Returns:
        A new model that shares all layers but the head with `model`.

    Raises:
        ValueError: If a class has too few pictures, or data or numbers do not fit otherwise.
        FloatingPointError: If a feature is not finite.
    """
    if shots is not None:
        shots = check_integer("shots", shots, 1, "None or a positive integer")
    seed = check_integer("seed", seed, 0, "0 or a positive integer")
    check_l2(l2)
    features, classes, draws = _drawn_features(model, train, [shots], [seed], batch_size)
    pictures = draws[shots, seed]
    num_classes = int(classes.max()) + 1
    head = least_squares_head(features[pictures], classes[pictures], num_classes, l2)
    if labels is None and model.config.num_classes == num_classes:
        labels = model.labels
    classifier = model.reset_head(num_classes, labels, keep_pre_logits=True)
    kernel, bias = head.as_dense()
    layer = classifier.get_layer("head")
    # Two heads of a distilled model that are equal see the mean of its two tokens.
    for dense in getattr(layer, "heads", [layer]):
        dense.kernel.assign(kernel)
        dense.bias.assign(bias)
    return classifier


def _drawn_features(
    model: ImageModel, train: Any, shots: list[int | None], seeds: Iterable[int], batch_size: int
) -> tuple[np.ndarray, np.ndarray, Draws]:
    """Features and labels, of arrays those that are drawn alone, and the rows of each draw."""
    if isinstance(train, tf.data.Dataset):
        features, labels = features_of(model, train, batch_size, name="train")
        return features, labels, _draw(labels, shots, seeds)
    images, labels = as_image_arrays(train, "train")
    draws = _draw(labels, shots, seeds)
    used = np.unique(np.concatenate(list(draws.values())))
    features, labels = features_of(model, (images[used], labels[used]), batch_size, name="train")
    return features, labels, {key: np.searchsorted(used, rows) for key, rows in draws.items()}


def _draw(labels: np.ndarray, shots: list[int | None], seeds: Iterable[int]) -> Draws:
    """The pictures of each number of shots (None: all) and each seed."""
    least = max(count or 1 for count in shots)
    known, counts = np.unique(labels, return_counts=True)
    if len(known) < 2:
        raise ValueError(
            "`train` must show two classes or more. "
            f"Received: class {known[0]} alone. Add pictures of another class."
        )
    enough = set(known[counts >= least].tolist())
    short = next((label for label in range(known[-1] + 1) if label not in enough), None)
    if short is not None:
        raise ValueError(
            f"`train` must hold {least} or more pictures of each class. Received: "
            f"{np.count_nonzero(labels == short)} of class {short}. Ask for fewer `shots`; number "
            "the classes from 0, without gaps."
        )
    by_class = np.split(np.argsort(labels, kind="stable"), np.cumsum(counts)[:-1])
    orders = {}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        orders[seed] = [rng.permutation(pictures) for pictures in by_class]
    return {
        (count, seed): np.concatenate([order[:count] for order in orders[seed]])
        for count in shots
        for seed in orders
    }
