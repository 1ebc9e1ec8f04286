"""Ways to train, as values: one file, one `Recipe`, one row of `RECIPES`."""

from keras_vit.checks import unknown_name
from keras_vit.recipes.adamw_layer_decay import ADAMW_LAYER_DECAY
from keras_vit.recipes.definition import Preset, Recipe
from keras_vit.recipes.linear_probe import LINEAR_PROBE
from keras_vit.recipes.lora import LORA
from keras_vit.recipes.paper_sgd import PAPER_SGD

RECIPES = {value.name: value for value in (PAPER_SGD, ADAMW_LAYER_DECAY, LORA, LINEAR_PROBE)}

__all__ = ["RECIPES", "Preset", "Recipe", "recipe"]


def recipe(name: str) -> Recipe:
    """Return the recipe of that name.

    Args:
        name: A key of `keras_vit.recipes.RECIPES`, e.g. `"paper_sgd"`.

    Raises:
        ValueError: If there is none, with close matches.
    """
    if name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    return RECIPES[name]
