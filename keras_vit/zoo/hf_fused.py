"""The fused query, key and value of SigLIP's attention pool, seen as two tensors.

torch's `MultiheadAttention` holds `in_proj_weight` (3 * hidden_dim, hidden_dim); ours are a
query and a key-value layer. `x` becomes `x[:1/3]` and `x[1/3:]`, its rows: so one key table,
exact both ways, serves; `writing` joins rows that it writes one after the other.
"""

import dataclasses
import re

import numpy as np

from keras_vit.zoo.tensor_files import TensorFile

FUSED = re.compile(r"(?:.*\.)?head\.attention\.in_proj_(?:weight|bias)")
QUERY, KEY_VALUE = "[:1/3]", "[1/3:]"


@dataclasses.dataclass(frozen=True)
class UnfusedFile(TensorFile):
    """A file whose `tensors` has the two parts of each fused tensor in its place."""

    def read(self, name: str) -> np.ndarray:
        """Return one tensor, or one part of a fused one, as a fresh array.

        Raises:
            KeyError: If no tensor has this name.
            WeightFileError: If its bytes are damaged.
        """
        whole, is_part, _ = name.partition("[")
        if not is_part:
            return super().read(name)
        rows = TensorFile(self.path, {whole: self.tensors[name]}, self.metadata).read(whole)
        third = len(rows) // 3
        return (rows[:third] if name.endswith(QUERY) else rows[third:]).copy()


def unfuse(tensors: TensorFile) -> TensorFile:
    """Return the file with its fused tensors in parts; the file itself where it has none.

    A tensor that has no thirds stays as it is, and is then one that nothing expects.
    """
    parts = {}
    for name, stored in tensors.tensors.items():
        if FUSED.fullmatch(name) and stored.shape and stored.shape[0] % 3 == 0:
            third, rest = stored.shape[0] // 3, stored.shape[1:]
            parts[name + QUERY] = dataclasses.replace(stored, shape=(third, *rest))
            parts[name + KEY_VALUE] = dataclasses.replace(stored, shape=(2 * third, *rest))
        else:
            parts[name] = stored
    if parts.keys() == tensors.tensors.keys():
        return tensors
    return UnfusedFile(tensors.path, parts, tensors.metadata)
