"""Learning rates that fall from the head to the stem, which fine-tunes what is general less."""

from typing import Any

import keras
from keras import ops

from keras_vit.checks import is_real, unknown_name
from keras_vit.image_model import ImageModel
from keras_vit.training.optimizers import MomentumSGD


def layer_decay(
    optimizer: keras.optimizers.Optimizer, model: ImageModel, decay: float
) -> keras.optimizers.Optimizer:
    """Return the same optimizer with a learning rate for each depth of `model`.

    The head has the optimizer's rate, each block `decay` times that of the block after it, and
    the stem `decay` times that of the first block. The final normalization goes with the last
    block. Of `depth` blocks, block i has `decay ** (depth - i)` and the stem
    `decay ** (depth + 1)`.

    All else is the optimizer's: one schedule, one norm for `global_clipnorm`, and
    `learning_rate` is the rate of the head. Decoupled weight decay is times the rate, hence also
    times the multiplier. What is excluded from it stays so after reloading, unlike with Keras'
    own optimizers.

    Args:
        optimizer: A new one, of a class in `LAYERWISE`.
        model: What it is for. Parts that are frozen now stay so: call this again when they change.
        decay: Rate of a part over that of the part after it, above 0 and at most 1.

    Returns:
        An optimizer for `model.compile`, that `.keras` files store and reload.

    Raises:
        ValueError: If `decay` is out of range, or the optimizer in use or of another class.

    Example:

    ```python
    optimizer = keras.optimizers.AdamW(schedule, weight_decay=0.05, global_clipnorm=1.0)
    optimizer.exclude_from_weight_decay(var_names=["bias", "gamma", "beta"])
    model.compile(layer_decay(optimizer, model, 0.75), ...)
    ```

    Reference:
        Bao et al., BEiT, arXiv 2106.08254; timm, `optim/_param_groups.py`.
    """
    if not is_real(decay) or not 0.0 < decay <= 1.0:
        raise ValueError(f"`decay` must be above 0 and at most 1. Received: decay={decay!r}.")
    name = type(optimizer).__name__  # on torch Keras makes a class of the same name
    if name not in LAYERWISE:
        raise unknown_name("optimizer for `layer_decay`", name, LAYERWISE)
    if optimizer.built:
        raise ValueError("`optimizer` must be new. Received: one that has variables already.")
    groups = list(model.parameter_groups().values())
    multipliers, undecayed = {}, []
    for parts_above, variables in enumerate(reversed(groups)):
        for variable in variables:
            multipliers[variable.path] = decay**parts_above
            if not optimizer._use_weight_decay(variable):
                undecayed.append(variable.path)
    config = {**optimizer.get_config(), "multipliers": multipliers, "undecayed": undecayed}
    return LAYERWISE[name].from_config(config)


class _Layerwise:
    """Comes before an optimizer's class among the bases of a class in `LAYERWISE`.

    Args:
        multipliers: Of the learning rate, by path of the variable.
        undecayed: Paths of the variables without weight decay.
        **kwargs: The optimizer's own.
    """

    def __init__(self, *, multipliers: dict[str, float], undecayed: list[str], **kwargs):
        super().__init__(**kwargs)
        self.multipliers = dict(multipliers)
        self.undecayed = list(undecayed)

    def build(self, variables: list[keras.Variable]):
        if self.built:
            return
        unknown = [variable.path for variable in variables if variable.path not in self.multipliers]
        if unknown:
            raise ValueError(
                "`layer_decay` must know every variable that is trained. "
                f"Received: {len(unknown)} unknown, {', '.join(unknown[:5])}. "
                "Call it again after a change of what is trainable, and give it the whole model."
            )
        undecayed = [
            variable
            for variable in variables
            if variable.path in self.undecayed or not self._use_weight_decay(variable)
        ]
        self.exclude_from_weight_decay(var_list=undecayed)
        self.undecayed = [variable.path for variable in undecayed]
        self._ordered = [self.multipliers[variable.path] for variable in variables]
        super().build(variables)

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any):
        multiplier = self._ordered[self._get_variable_index(variable)]
        rate = ops.cast(learning_rate, "float32") * multiplier
        if self.weight_decay is not None and self._use_weight_decay(variable):
            share = ops.cast(rate * self.weight_decay, variable.dtype)
            self.assign_sub(variable, ops.multiply(variable, share))
        super().update_step(gradient, variable, rate)

    def _apply_weight_decay(self, variables: list[Any]):
        """Nothing: Keras would take the same rate for all. `update_step` does it."""

    def get_config(self) -> dict:
        return {
            **super().get_config(),
            "multipliers": dict(self.multipliers),
            "undecayed": list(self.undecayed),
        }


def _layerwise(base: type) -> type:
    """A registered class, so that it must exist before a file is read."""
    new = type(f"Layerwise{base.__name__}", (_Layerwise, base), {"__doc__": _Layerwise.__doc__})
    return keras.saving.register_keras_serializable(package="keras_vit")(new)


# Optimizers whose step is the learning rate times something that does not depend on it.
LAYERWISE: dict[str, type] = {
    base.__name__: _layerwise(base)
    for base in (
        keras.optimizers.SGD,
        keras.optimizers.Adam,
        keras.optimizers.AdamW,
        keras.optimizers.Lamb,
        keras.optimizers.Lion,
        MomentumSGD,
    )
}
