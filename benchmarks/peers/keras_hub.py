"""keras-hub's image classifier of the same sizes."""

import keras
from keras_hub.models import ViTBackbone, ViTImageClassifier

from benchmarks.flops import NUM_CLASSES, PATCH_SIZE, depth_and_width
from benchmarks.memory import forget_peak
from benchmarks.peers import Call
from benchmarks.peers.inputs import normalized, randomize_keras
from benchmarks.peers.keras_calls import forward, training_step
from benchmarks.rows import Case


def make_classifier(case: Case) -> ViTImageClassifier:
    """The model, freshly initialised."""
    num_layers, width = depth_and_width(case)
    keras.utils.set_random_seed(0)
    backbone = ViTBackbone(
        image_shape=(case.image_size, case.image_size, 3),
        patch_size=PATCH_SIZE,
        num_layers=num_layers,
        num_heads=width // 64,
        hidden_dim=width,
        mlp_dim=4 * width,
        dtype=case.dtype,
    )
    return ViTImageClassifier(backbone, num_classes=NUM_CLASSES, dtype=case.dtype)


def model_call(case: Case) -> Call:
    """The model itself, compiled as ours, on the backend of the process."""
    return forward(randomize_keras(make_classifier(case)), normalized(case))


def train(case: Case) -> Call:
    """One step of SGD with momentum."""
    before = forget_peak()
    model = randomize_keras(make_classifier(case))
    return training_step(model, normalized(case), case, before)
