"""Use the installed package from another directory: it must carry its zoo and its assets."""

import pathlib

import keras
import numpy as np

import keras_vit
from keras_vit import assets
from keras_vit.zoo.timm_architectures import architectures

assert "site-packages" in keras_vit.__file__, keras_vit.__file__
models = keras_vit.list_models("vit_base*")
assert len(models) > 3, models
assert len(architectures()) > 150, "the wheel lacks timm's architectures"
model = keras_vit.from_pretrained(assets.checkpoint())
pictures = sorted(pathlib.Path(assets.pictures()).rglob("*.png"))
assert len(pictures) == 700, len(pictures)
image = np.zeros((1, *model.config.image_size, model.config.num_channels), "uint8")
assert np.isfinite(model.predict(image, verbose=0)).all()
assert isinstance(model, keras.Model)
print(f"wheel: {len(models)} base models listed, bundled model of {model.count_params():,} ran")
