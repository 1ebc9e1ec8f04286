"""Computing a block a second time in the backward pass instead of keeping what is inside it."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import keras


def rematerialise(block: keras.layers.Layer, function: Callable, *tensors: Any) -> Any:
    """Return `function(*tensors)`, of which the backward pass keeps `tensors` alone.

    The rest is computed again when gradients are: memory holds what goes from block to block, and
    the inside of one block at a time. It costs one more forward pass, a third of a step's work.

    `keras.remat` alone draws new dropout masks the second time, so that gradients belong to other
    masks than the outputs. Here the seeds of the block's dropouts are drawn before, outside, and
    both runs are given them; each state advances by one draw, as without rematerialisation.

    Args:
        block: The layer that owns all the weights and dropouts that `function` uses.
        function: The body of `block.call`, in training mode. It takes positional tensors alone
            (TensorFlow refuses keywords here in a graph, which is where `keras.RematScope`
            fails in `fit`, keras-team/keras#21207), calls each dropout once, and assigns nothing.
        *tensors: What to call it with.

    Returns:
        What `function` returns.

    Raises:
        RuntimeError: If a dropout is called a second time: it would drop the same again.

    Example:

    ```python
    def call(self, tokens, training=False):
        if self.remat and training:
            return rematerialise(self, self._run, tokens)
        return self._run(tokens, training=training)
    ```

    Reference:
        Chen et al., "Training Deep Nets with Sublinear Memory Cost", arXiv 1604.06174.
    """
    draws = [(generator, generator.next()) for generator in _seed_generators(block)]

    def run(*inputs):
        with _given(draws):
            return function(*inputs)

    return keras.remat(run)(*tensors)


def _seed_generators(block: keras.layers.Layer) -> list[keras.random.SeedGenerator]:
    """Those of `block` and of every layer in it."""
    return [
        value
        for part in block._flatten_layers()
        for value in vars(part).values()
        if isinstance(value, keras.random.SeedGenerator)
    ]


@contextlib.contextmanager
def _given(draws: list[tuple[keras.random.SeedGenerator, Any]]) -> Iterator[None]:
    """Let each generator's next draw be the one beside it, and none after that."""
    for generator, seed in draws:
        generator.next = _draw_once(generator.name, seed)
    try:
        yield
    finally:
        for generator, _ in draws:
            del generator.next  # the method of its class again


def _draw_once(name: str, seed: Any) -> Callable:
    left = [seed]

    def next_seed(ordered: bool = True) -> Any:
        del ordered  # how the state advances, which it did outside
        if not left:
            raise RuntimeError(
                "A rematerialised function must call each of its dropouts once. "
                f"Received: a second draw of {name!r}. Give each call its own layer."
            )
        return left.pop()

    return next_seed
