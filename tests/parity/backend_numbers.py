"""Forward and one step of `fit` on many small models, on whichever backend is set; to an .npz."""

import dataclasses
import sys

import keras
import numpy as np

from keras_vit import Mixer, MixerConfig, ViT, ViTConfig

PLAIN = ViTConfig(
    num_layers=2,
    num_heads=2,
    hidden_dim=16,
    mlp_dim=32,
    patch_size=4,
    image_size=16,
    num_classes=5,
)
MODELS = {
    "plain": PLAIN,
    "wide": dataclasses.replace(PLAIN, image_size=(16, 32), activation="gelu"),
    "map": dataclasses.replace(PLAIN, pool="map", class_token=False, num_register_tokens=2),
    "distilled": dataclasses.replace(PLAIN, distillation_token=True, layer_scale_init=0.1),
    "swiglu": dataclasses.replace(PLAIN, gated_mlp=True, activation="silu", qk_norm=True),
    "clip": dataclasses.replace(
        PLAIN, embedding_norm=True, patch_bias=False, activation="quick_gelu"
    ),
    "mean": dataclasses.replace(PLAIN, pool="mean", class_token=False, final_norm="pool"),
    "learned_2d": dataclasses.replace(
        PLAIN, position_embedding="learned_2d", position_insertion="every_block_shared"
    ),
    "sincos_2d": dataclasses.replace(PLAIN, position_embedding="sincos_2d"),
    "relative": dataclasses.replace(PLAIN, position_embedding="relative"),
    "axial": dataclasses.replace(
        PLAIN, axial=True, class_token=False, pool="mean", image_size=(16, 32)
    ),
    "root": dataclasses.replace(PLAIN, stem_layers=(), stem_width=32, image_size=32),
    "hybrid": dataclasses.replace(
        PLAIN, stem_layers=(2, 1), stem_width=32, patch_size=1, image_size=(16, 32)
    ),
    "remat": dataclasses.replace(PLAIN, remat=True),
    "mixer": MixerConfig(
        num_layers=2,
        hidden_dim=16,
        tokens_mlp_dim=8,
        channels_mlp_dim=32,
        patch_size=4,
        image_size=16,
        num_classes=5,
    ),
}


def main(path: str):
    numbers = {}
    for name, config in MODELS.items():
        rng = np.random.default_rng(0)
        model = Mixer(config) if isinstance(config, MixerConfig) else ViT(config)
        for weight in model.weights:
            weight.assign(rng.normal(0.0, 0.2, weight.shape))
        images = rng.integers(0, 256, (4, *config.image_size, 3)).astype("float32")
        numbers[f"{name}/logits"] = model.predict(images, verbose=0)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.05), loss)
        history = model.fit(images, np.arange(4), batch_size=4, shuffle=False, verbose=0)
        numbers[f"{name}/loss"] = np.array(history.history["loss"])
        for weight in model.weights:
            numbers[f"{name}/{weight.path}"] = keras.ops.convert_to_numpy(weight)
    np.savez(path, backend=keras.backend.backend(), **numbers)


if __name__ == "__main__":
    main(sys.argv[1])
