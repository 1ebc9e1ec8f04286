"""What `import keras_vit` takes beyond TensorFlow's and Keras' own import."""

import importlib
import time

from benchmarks.peers import Call
from benchmarks.rows import Case


def write(case: Case) -> None:
    """Compile the modules to bytecode and bring them into the page cache."""
    importlib.import_module("keras_vit")


def ours(case: Case) -> Call:
    """The import, in a process that has TensorFlow and Keras."""
    importlib.import_module("tensorflow")
    importlib.import_module("keras")

    def run():
        start = time.perf_counter()
        importlib.import_module("keras_vit")
        return {"milliseconds": 1e3 * (time.perf_counter() - start)}

    return Call(run)
