"""What the package carries, so that everything runs without a network.

A small model, pre-trained on six classes of Fashion-MNIST (Xiao et al., arXiv 1708.07747; MIT
licence), and pictures of the four other classes: 25 a class to train, 150 a class to test.
`examples/make_bundled_assets.py` made both.
"""

from pathlib import Path


def checkpoint() -> Path:
    """Folder of the bundled model: `keras_vit.from_pretrained(keras_vit.assets.checkpoint())`."""
    return Path(__file__).parent / "fashion_vit"


def pictures() -> Path:
    """Folder of pictures: `train` and `test`, each with one subfolder a class."""
    return Path(__file__).parent / "pictures"
