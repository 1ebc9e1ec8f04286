"""Learning rates as a function of the step."""

import keras


def warmup_cosine(
    learning_rate: float, total_steps: int, warmup_steps: int
) -> keras.optimizers.schedules.LearningRateSchedule:
    """Return the official schedule: linear from 0 to `learning_rate`, then half a cosine to 0.

    The first step of a warm-up has learning rate 0; every step from `total_steps` on has it too.

    Args:
        learning_rate: The highest rate, reached at step `warmup_steps`.
        total_steps: Steps of the run, warm-up included.
        warmup_steps: Steps of the warm-up; 0 for none.

    Raises:
        ValueError: If the steps do not fit each other, or the rate is not above 0.

    Reference:
        google-research/vision_transformer, `vit_jax/utils.py`.
    """
    if not learning_rate > 0.0:
        raise ValueError(
            f"`learning_rate` must be above 0. Received: learning_rate={learning_rate!r}."
        )
    if not 0 <= warmup_steps < total_steps:
        raise ValueError(
            "`warmup_steps` must be at least 0 and below `total_steps`. Received: "
            f"warmup_steps={warmup_steps}, total_steps={total_steps}. "
            f"The official ratio would be warmup_steps={total_steps // 5}."
        )
    if warmup_steps == 0:
        return keras.optimizers.schedules.CosineDecay(float(learning_rate), total_steps)
    # Keras counts `decay_steps` from the end of the warm-up.
    return keras.optimizers.schedules.CosineDecay(
        0.0,
        decay_steps=total_steps - warmup_steps,
        warmup_target=float(learning_rate),
        warmup_steps=warmup_steps,
    )
