"""The momentum of the official code, which Keras' SGD computes otherwise."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_vit")
class MomentumSGD(keras.optimizers.SGD):
    """SGD whose learning rate multiplies the velocity, as in JAX's optax and in PyTorch.

    ```
    velocity = momentum * velocity + gradient
    variable = variable - learning_rate * velocity
    ```

    `keras.optimizers.SGD` folds the learning rate into the velocity. The two agree while the
    learning rate is constant; under a schedule an old gradient keeps its old learning rate
    there and takes the present one here, as in the official fine-tuning of Vision
    Transformers. The velocity has the variable's dtype, float32 also in mixed precision
    (the official code rounds it to bfloat16).

    Args:
        learning_rate: A float or a `keras.optimizers.schedules.LearningRateSchedule`.
        momentum: Share of the velocity that stays after a step, 0 to 1.
        **kwargs: Those of `keras.optimizers.SGD`: `nesterov`, `global_clipnorm`, ...

    Reference:
        google-research/vision_transformer, `vit_jax/train.py`.
    """

    def __init__(self, learning_rate=0.01, momentum: float = 0.9, **kwargs):
        super().__init__(learning_rate=learning_rate, momentum=momentum, **kwargs)

    def update_step(self, gradient, variable, learning_rate):
        if self.momentum == 0:
            super().update_step(gradient, variable, learning_rate)
            return
        gradient = ops.cast(gradient, variable.dtype)
        learning_rate = ops.cast(learning_rate, variable.dtype)
        velocity = self.momentums[self._get_variable_index(variable)]
        step = ops.add(ops.multiply(velocity, self.momentum), gradient)
        self.assign(velocity, step)
        if self.nesterov:
            step = ops.add(ops.multiply(step, self.momentum), gradient)
        self.assign_sub(variable, ops.multiply(step, learning_rate))
