"""The numbers of one run, from what the caller says, the recipe and the examples."""

import dataclasses
import numbers

import tensorflow as tf

from keras_vit.data.inputs import Examples, count_batches
from keras_vit.recipes.definition import Recipe

# Unless another batch size is given: B/16 at 224 pixels then trains on a GPU of 16 GB.
_LARGEST_DEFAULT_BATCH = 64
# A run given in steps is validated this often, unless one pass over the pictures is longer.
_VALIDATIONS_OF_STEPS = 10


@dataclasses.dataclass(frozen=True)
class Plan:
    """The numbers of one run.

    Args:
        total_steps: Updates of the weights.
        steps_per_epoch: Steps between two validations.
        batch_size: Pictures a step; None where a `tf.data.Dataset` has decided it.
        learning_rate: The highest rate.
        warmup_steps: Steps of rising rate.
    """

    total_steps: int
    steps_per_epoch: int
    batch_size: int | None
    learning_rate: float
    warmup_steps: int


def check_counts(**counts: int | None) -> None:
    """Refuse what is no number of steps, epochs and so on, by name; None is left out.

    Raises:
        ValueError: If a count is no positive integer, or `steps` and `epochs` are both given.
    """
    for name, value in counts.items():
        is_count = isinstance(value, numbers.Integral) and not isinstance(value, bool)
        if value is not None and not (is_count and value >= 1):
            raise ValueError(f"`{name}` must be a positive integer. Received: {name}={value!r}.")
    if counts.get("steps") is not None and counts.get("epochs") is not None:
        raise ValueError(
            "`steps` and `epochs` exclude each other. "
            f"Received: steps={counts['steps']}, epochs={counts['epochs']}."
        )


def make_plan(
    train: Examples,
    recipe: Recipe,
    steps: int | None = None,
    epochs: int | None = None,
    batch_size: int | None = None,
    learning_rate: float | None = None,
    warmup_steps: int | None = None,
) -> Plan:
    """Decide what the caller left open.

    Args:
        train: To train on; a `tf.data.Dataset` that does not know its length is read once.
        recipe: For what is not given.
        steps: Updates of the weights.
        epochs: Passes over the pictures, instead of `steps`.
        batch_size: Pictures a step; None for 64, or the recipe's if that is less.
        learning_rate: The highest rate; None for the recipe's, in proportion to the batch.
        warmup_steps: Steps of rising rate; None for the recipe's share.

    Raises:
        ValueError: If a `tf.data.Dataset` leaves `batch_size` or `epochs` no meaning.
    """
    if isinstance(train, tf.data.Dataset):
        if batch_size is not None:
            raise ValueError(
                "`batch_size` is already decided by a `tf.data.Dataset`. "
                f"Received: batch_size={batch_size}."
            )
        steps_per_pass = count_batches(train)
    else:
        batch_size = batch_size or min(recipe.batch_size, _LARGEST_DEFAULT_BATCH)
        batch_size = min(int(batch_size), len(train))
        steps_per_pass = -(-len(train) // batch_size)
    if epochs is not None and steps_per_pass is None:
        raise ValueError(
            "`train` never ends, so that an epoch has no meaning. "
            f"Received: epochs={epochs}. Use `steps`."
        )
    if epochs is not None:
        total_steps, steps_per_epoch = int(epochs) * steps_per_pass, steps_per_pass
    else:
        total_steps = int(steps or recipe.total_steps)
        tenth = -(-total_steps // _VALIDATIONS_OF_STEPS)
        steps_per_epoch = min(max(tenth, steps_per_pass or 1), total_steps)
    if learning_rate is None:
        # In proportion to the batch (Goyal et al., arXiv 1706.02677).
        learning_rate = recipe.learning_rate * (batch_size or recipe.batch_size) / recipe.batch_size
    if warmup_steps is None:
        warmup_steps = recipe.warmup_steps(total_steps)
    return Plan(total_steps, steps_per_epoch, batch_size, float(learning_rate), int(warmup_steps))
