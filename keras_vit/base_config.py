"""What the configurations of all models have in common."""

import dataclasses
from typing import Any

from keras_vit.checks import Pair, as_pair, check_choice, check_integer, check_rate, is_real

ACTIVATIONS = ("gelu", "gelu_tanh", "quick_gelu", "silu")


def json_values(config: Any) -> dict:
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in dataclasses.asdict(config).items()
    }


class ImageModelConfig:
    """Fields `image_size`, `patch_size`, `num_channels` ... of a frozen dataclass, checked."""

    def check_common(self, integers: tuple[str, ...], flags: tuple[str, ...]):
        """Check and normalise the fields that every model has, and those that are named."""
        for name in ("patch_size", "image_size"):
            object.__setattr__(self, name, as_pair(getattr(self, name), name))
        for name in (*integers, "num_layers", "hidden_dim", "num_channels"):
            self.set_integer(name, 1)
        self.set_integer("num_classes", 0, "0 (features) or a positive integer")
        check_choice("activation", self.activation, ACTIVATIONS)
        for name in [field.name for field in dataclasses.fields(self)]:
            if name.endswith("_rate"):
                object.__setattr__(self, name, check_rate(name, getattr(self, name)))
        epsilon = self.layer_norm_epsilon
        if not is_real(epsilon) or not 0.0 < epsilon < 1.0:
            raise ValueError(
                "`layer_norm_epsilon` must be above 0 and below 1. "
                f"Received: layer_norm_epsilon={epsilon!r}. The paper's code uses 1e-6."
            )
        object.__setattr__(self, "layer_norm_epsilon", float(epsilon))
        for name in flags:
            if not isinstance(getattr(self, name), bool):
                raise ValueError(
                    f"`{name}` must be True or False. Received: {name}={getattr(self, name)!r}."
                )

    def set_integer(self, name: str, least: int, what: str = "a positive integer"):
        object.__setattr__(self, name, check_integer(name, getattr(self, name), least, what))

    def refuse(self, message: str, *names: str):
        """Raise with what was received for each of `names`."""
        received = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        raise ValueError(f"{message} Received: {received}.")

    @property
    def grid(self) -> Pair:
        """Patches as `(grid_height, grid_width)`."""
        step = self.patch_size[0] * self.stem_stride, self.patch_size[1] * self.stem_stride
        return self.image_size[0] // step[0], self.image_size[1] // step[1]

    @property
    def stem_stride(self) -> int:
        """Pixels a cell of what is cut into patches; 1 without a convolutional stem."""
        return 1

    def to_dict(self) -> dict:
        """The fields as JSON values."""
        return json_values(self)
