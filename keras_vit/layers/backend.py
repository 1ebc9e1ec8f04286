import keras


def is_tensorflow() -> bool:
    """Whether TensorFlow runs the layers."""
    return keras.backend.backend() == "tensorflow"


def is_tensorflow_on_cpu() -> bool:
    """Whether TensorFlow runs them, and sees no GPU, on which other spellings are the fast ones."""
    return is_tensorflow() and not keras.distribution.list_devices("gpu")
