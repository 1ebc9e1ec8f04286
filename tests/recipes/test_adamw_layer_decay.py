import dataclasses

import keras
import numpy as np

from keras_vit import ViT
from keras_vit.recipes.adamw_layer_decay import ADAMW_LAYER_DECAY


def test_rates_fall_from_the_head_to_the_stem(random_weights):
    """Read off one update: Adam's first step is the rate, whatever the gradient."""
    model = random_weights(ViT.from_variant("Ti/16", num_layers=3, image_size=16, num_classes=2))
    recipe = dataclasses.replace(ADAMW_LAYER_DECAY, clip_norm=None)  # small, they show epsilon
    arguments = recipe.compile_arguments(1e-3, total_steps=10, warmup_steps=0, model=model)
    optimizer, variables = arguments["optimizer"], model.trainable_variables
    before = [np.array(variable) for variable in variables]
    optimizer.build(variables)
    optimizer.apply([keras.ops.ones_like(variable) for variable in variables])
    after = {"head": 0, "block_2": 1, "block_1": 2, "block_0": 3, "patch_embedding": 4}
    checked = set()
    for variable, old in zip(variables, before, strict=True):
        part = variable.path.split("/")[0]
        if variable.name == "bias" and part in after:
            np.testing.assert_allclose(
                old - np.array(variable), 1e-3 * 0.75 ** after[part], rtol=2e-3, err_msg=part
            )
            checked.add(part)
    assert checked == set(after)


def test_equals_the_publication():
    model = ViT.from_variant("Ti/16", num_layers=1, image_size=16, num_classes=2)
    arguments = ADAMW_LAYER_DECAY.compile_arguments(model=model)
    optimizer = arguments["optimizer"]
    assert isinstance(optimizer, keras.optimizers.AdamW)
    assert (optimizer.beta_1, optimizer.beta_2) == (0.9, 0.999)
    assert (optimizer.weight_decay, ADAMW_LAYER_DECAY.layer_decay) == (0.05, 0.75)
    assert arguments["loss"].label_smoothing == 0.1
