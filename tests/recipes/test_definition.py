import dataclasses

import keras
import numpy as np
import pytest

import keras_vit
from keras_vit import ViT
from keras_vit.recipes import RECIPES, recipe
from keras_vit.recipes.paper_sgd import PAPER_SGD


def _tiny():
    return ViT.from_variant("Ti/16", num_layers=2, image_size=16, num_classes=3)


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize(
    ("kind", "labels", "metrics"),
    [
        ("integer", [0, 2], {"accuracy"}),
        ("one_hot", [[1.0, 0.0, 0.0], [0.0, 0.25, 0.75]], {"accuracy"}),
        ("multi_hot", [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]], {"pr_auc"}),
    ],
)
def test_compile_arguments_make_a_model_trainable(name, kind, labels, metrics):
    model = _tiny()
    RECIPES[name].prepare(model)
    arguments = RECIPES[name].compile_arguments(model=model)
    if kind != "integer":  # the default
        arguments = RECIPES[name].compile_arguments(labels=kind, model=model)
    model.compile(**arguments)
    images = keras.ops.full((2, 16, 16, 3), 99.0)
    logs = model.train_on_batch(images, keras.ops.array(labels), return_dict=True)
    assert set(logs) == {"loss"} | metrics


TRAINED = {
    "paper_sgd": {"embedding", "block", "encoder_norm", "head"},
    "adamw_layer_decay": {"embedding", "block", "encoder_norm", "head"},
    "lora": {"adapter", "head"},
    "linear_probe": {"head"},
}


@pytest.mark.parametrize("name", RECIPES)
def test_one_step_changes_what_the_recipe_trains(name, random_weights):
    model = random_weights(_tiny())
    RECIPES[name].prepare(model)
    RECIPES[name].prepare(model)  # as a run that resumes does
    before = {variable.path: np.array(variable) for variable in model.weights}
    model.compile(**RECIPES[name].compile_arguments(model=model, warmup_steps=0))
    images = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3)).astype("float32")
    model.train_on_batch(images, keras.ops.array([0, 2]))
    changed = {
        "adapter"
        if "lora" in variable.name
        else {"block": "block"}.get(variable.path[:5], variable.path.split("/")[0])
        for variable in model.weights
        if np.any(np.array(variable) != before[variable.path])
    }
    prefix = {"class_token", "prefix_tokens", "patch_embedding", "position_embedding"}
    changed = {"embedding" if part in prefix else part for part in changed}
    assert changed == TRAINED[name]


def test_weight_decay_is_of_kernels_alone(random_weights):
    """Read off one update with gradients of zero, which leaves nothing but the decay."""
    model = random_weights(_tiny())
    recipe = dataclasses.replace(RECIPES["adamw_layer_decay"], layer_decay=None)
    arguments = recipe.compile_arguments(0.5, total_steps=10, warmup_steps=0, model=model)
    optimizer, variables = arguments["optimizer"], model.trainable_variables
    before = [np.array(variable) for variable in variables]
    optimizer.build(variables)
    optimizer.apply([keras.ops.zeros_like(variable) for variable in variables])
    for variable, old in zip(variables, before, strict=True):
        kept = 1.0 - 0.5 * 0.05 if variable.name == "kernel" else 1.0
        np.testing.assert_allclose(np.array(variable), kept * old, rtol=1e-6)


def test_recipes_with_rates_for_parts_need_the_model():
    for name in ("adamw_layer_decay", "lora"):
        with pytest.raises(ValueError, match=f"recipe '{name}' .*compile_arguments.model=model"):
            RECIPES[name].compile_arguments()


def test_label_smoothing_reaches_the_loss():
    logits, labels = keras.ops.array([[9.0, 0.0, 0.0]]), keras.ops.array([0])
    recipe = dataclasses.replace(PAPER_SGD, label_smoothing=0.3)
    plain = float(PAPER_SGD.compile_arguments()["loss"](labels, logits))
    one_hot = keras.ops.one_hot(labels, 3)
    for kind, answer in (("integer", labels), ("one_hot", one_hot)):
        smoothed = float(recipe.compile_arguments(labels=kind)["loss"](answer, logits))
        assert smoothed == pytest.approx(plain + 0.3 * 2 / 3 * 9.0, rel=1e-5)
    multi = recipe.compile_arguments(labels="multi_hot")["loss"](one_hot, logits)
    assert float(multi) == float(
        PAPER_SGD.compile_arguments(labels="multi_hot")["loss"](one_hot, logits)
    )


def test_losses_agree_where_labels_say_the_same():
    logits = keras.ops.array([[2.0, -1.0, 0.5], [0.0, 1.0, 3.0]])
    integer = PAPER_SGD.compile_arguments()["loss"](keras.ops.array([0, 2]), logits)
    one_hot = keras.ops.one_hot(keras.ops.array([0, 2]), 3)
    mixed = PAPER_SGD.compile_arguments(labels="one_hot")["loss"](one_hot, logits)
    assert float(integer) == pytest.approx(float(mixed))


def test_multi_hot_metrics_take_logits():
    """Every picture right: all above 0 where the class is, and below where it is not."""
    labels = keras.ops.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    logits = keras.ops.array([[0.3, -0.2], [-1.0, 0.1], [2.0, 0.4]])
    for metric in PAPER_SGD.compile_arguments(labels="multi_hot")["metrics"]:
        metric.update_state(labels, logits)
        assert float(metric.result()) == pytest.approx(1.0), metric.name
        metric.reset_state()
        metric.update_state(labels, -logits)
        assert float(metric.result()) < 0.8, metric.name


def test_unknown_labels():
    with pytest.raises(ValueError, match="Unknown `labels`.*Received: 'onehot'.*one_hot"):
        PAPER_SGD.compile_arguments(labels="onehot")


def test_defaults_come_from_the_recipe():
    schedule = PAPER_SGD.compile_arguments()["optimizer"].get_config()["learning_rate"]["config"]
    assert schedule["warmup_target"] == 0.03
    assert schedule["warmup_steps"] == 100
    assert schedule["decay_steps"] == 400


def test_given_values_win():
    optimizer = PAPER_SGD.compile_arguments(0.5, total_steps=10, warmup_steps=0)["optimizer"]
    assert float(optimizer.learning_rate) == 0.5
    assert optimizer.get_config()["learning_rate"]["config"]["decay_steps"] == 10


def test_warmup_is_a_share_with_a_limit():
    assert PAPER_SGD.warmup_steps(3) == 0
    assert PAPER_SGD.warmup_steps(500) == 100
    assert PAPER_SGD.warmup_steps(10_000) == 500


def test_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        PAPER_SGD.learning_rate = 1.0


def test_names_are_keys():
    assert all(value.name == name for name, value in RECIPES.items())
    assert recipe("paper_sgd") is RECIPES["paper_sgd"]


def test_public_name_is_the_function():
    """TRAPS 17: no module of that name hides it."""
    assert keras_vit.recipe("paper_sgd") is RECIPES["paper_sgd"]


def test_unknown_name_lists_close_matches():
    with pytest.raises(ValueError, match="Unknown recipe. Received: 'paper_sdg'.*paper_sgd"):
        recipe("paper_sdg")
