import csv
import errno
import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import keras_vit
from keras_vit.data.folder import index_folder
from keras_vit.runs import finetune

CONFIG = keras_vit.ViTConfig(
    num_layers=2,
    num_heads=2,
    hidden_dim=16,
    mlp_dim=32,
    patch_size=4,
    image_size=16,
    num_classes=2,
)


def make_model(seed: int = 0, **fields) -> keras_vit.ViT:
    keras.utils.set_random_seed(seed)
    config = keras_vit.ViTConfig(**{**CONFIG.to_dict(), **fields})
    return keras_vit.ViT(config)


def make_folder(root: pathlib.Path, number: int = 6) -> pathlib.Path:
    """Dark cats and bright dogs."""
    generator = np.random.default_rng(0)
    for name, mean in (("cat", 60), ("dog", 190)):
        (root / name).mkdir(parents=True)
        for index in range(number):
            pixels = generator.normal(mean, 20, (20, 24, 3)).clip(0, 255).astype("uint8")
            Image.fromarray(pixels).save(root / name / f"{index}.png")
    return root


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return index_folder(make_folder(tmp_path_factory.mktemp("pictures")))


@pytest.fixture(scope="module")
def arrays():
    generator = np.random.default_rng(0)
    labels = np.arange(12) % 2
    images = generator.normal(60 + 130 * labels[:, None, None, None], 20, (12, 16, 16, 3))
    return images.clip(0, 255).astype("uint8"), labels


class Interrupt(keras.callbacks.Callback):
    """What Ctrl-C does, within an epoch."""

    def __init__(self, epoch: int):
        super().__init__()
        self.epoch = epoch

    def on_epoch_begin(self, epoch, logs=None):
        self.current = epoch

    def on_train_batch_end(self, batch, logs=None):
        if self.current == self.epoch and batch == 1:
            raise KeyboardInterrupt


def weights_of(model):
    return {variable.path: variable.numpy() for variable in model.trainable_variables}


def assert_same_weights(one, other):
    one, other = weights_of(one), weights_of(other)
    assert one.keys() == other.keys()
    for path in one:
        np.testing.assert_allclose(one[path], other[path], atol=1e-6, err_msg=path)


def test_a_folder_is_learned(folder, tmp_path):
    model = make_model()
    run = finetune(model, folder, directory=tmp_path / "run", steps=10, batch_size=5, verbose=0)
    assert run.model is model
    assert model.labels == ("cat", "dog")
    assert run.metrics["val_accuracy"] == 1.0
    assert run.history["step"] == [2, 4, 6, 8, 10]
    assert run.history["loss"][-1] < run.history["loss"][0]
    written = {path.name for path in run.directory.iterdir()}
    assert written == {"run.json", "last.keras", "best.keras", "history.csv", "tensorboard"}
    described = json.loads((run.directory / "run.json").read_text())
    assert described["metrics"] == run.metrics
    assert described["settings"]["total_steps"] == 10
    assert "10 pictures to train, 2 to validate" in described["data"]
    with (run.directory / "history.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["epoch"]) for row in rows] == list(range(1, 6))
    assert float(rows[-1]["val_loss"]) == run.metrics["val_loss"]
    assert_same_weights(keras.saving.load_model(run.directory / "last.keras"), model)
    assert keras.saving.load_model(run.directory / "best.keras").labels == ("cat", "dog")


def test_resuming_equals_not_stopping(arrays, tmp_path):
    """TRAPS 7: no epoch is replayed, and dropout draws what it would have drawn."""
    rates = {"dropout_rate": 0.3, "drop_path_rate": 0.3}
    arguments = {"train": arrays, "validation": arrays, "epochs": 4, "batch_size": 5, "seed": 5}
    arguments |= {"warmup_steps": 2, "verbose": 0}
    whole = finetune(make_model(**rates), directory=tmp_path / "whole", **arguments)
    cut = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        finetune(make_model(**rates), directory=cut, callbacks=[Interrupt(2)], **arguments)
    assert not [path for path in cut.iterdir() if path.name.startswith(".")]
    resumed = finetune(make_model(seed=9, **rates), directory=cut, resume=True, **arguments)
    assert_same_weights(resumed.model, whole.model)
    assert resumed.history["step"] == whole.history["step"] == [3, 6, 9, 12]
    np.testing.assert_allclose(resumed.history["val_loss"], whole.history["val_loss"], atol=1e-6)
    # A run that has ended ends at once.
    again = finetune(make_model(seed=3, **rates), directory=cut, resume=True, **arguments)
    assert_same_weights(again.model, whole.model)
    assert again.metrics == resumed.metrics


@pytest.mark.parametrize("recipe", keras_vit.recipes.RECIPES)
def test_every_recipe_runs_and_resumes(recipe, arrays, tmp_path):
    arguments = dict(train=arrays, validation=arrays, recipe=recipe, epochs=3, batch_size=5)
    arguments |= dict(warmup_steps=1, verbose=0)
    whole = finetune(make_model(), directory=tmp_path / "whole", **arguments)
    assert whole.history["loss"][-1] < whole.history["loss"][0]
    cut = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        finetune(make_model(), directory=cut, callbacks=[Interrupt(epoch=1)], **arguments)
    resumed = finetune(make_model(seed=9), directory=cut, resume=True, **arguments)
    assert_same_weights(resumed.model, whole.model)
    by_name = keras.saving.load_model(cut / "last.keras")
    assert len(by_name.trainable_variables) == len(whole.model.trainable_variables)
    assert_same_weights(by_name, whole.model)


def test_interrupted_before_the_first_checkpoint(arrays, tmp_path):
    arguments = {"train": arrays, "epochs": 2, "batch_size": 4, "verbose": 0}
    with pytest.raises(KeyboardInterrupt):
        finetune(make_model(), directory=tmp_path, callbacks=[Interrupt(0)], **arguments)
    assert not (tmp_path / "last.keras").exists()
    run = finetune(make_model(), directory=tmp_path, resume=True, **arguments)
    assert run.history["step"] == [3, 6]


def test_resume_needs_no_argument_again(arrays, tmp_path):
    """Steps, batch and rates are in the directory, and early stopping too."""
    arguments = {"epochs": 3, "batch_size": 5, "learning_rate": 0.02, "early_stopping": 9}
    with pytest.raises(KeyboardInterrupt):
        finetune(
            make_model(), arrays, directory=tmp_path, callbacks=[Interrupt(1)], **arguments,
            verbose=0,
        )  # fmt: skip
    before = json.loads((tmp_path / "run.json").read_text())["settings"]
    run = finetune(make_model(), arrays, directory=tmp_path, resume=True, verbose=0)
    assert run.history["step"] == [3, 6, 9]
    assert json.loads((tmp_path / "run.json").read_text())["settings"] == before
    assert before["learning_rate"] == 0.02 and before["early_stopping"] == 9


@pytest.mark.parametrize("seed", [-1, 1.5, None])
def test_seed(arrays, seed):
    with pytest.raises(ValueError, match="`seed` must be an integer from 0"):
        finetune(make_model(), arrays, seed=seed)


def test_more_classes_than_pictures(arrays):
    with pytest.raises(ValueError, match="labels for 1000 classes, but 12 pictures"):
        finetune("bundled", (arrays[0], np.where(arrays[1], 999, 0)))


def test_default_batch_and_rate(tmp_path):
    """64 pictures a step, and the paper's rate for 512 in proportion; all are in `run.json`."""
    images = np.zeros((70, 16, 16, 3), "uint8")
    images[::2] = 200
    labels = np.arange(70) % 2
    finetune(make_model(), (images, labels), directory=tmp_path, steps=1, verbose=0)
    settings = json.loads((tmp_path / "run.json").read_text())["settings"]
    assert settings["batch_size"] == 64
    assert settings["learning_rate"] == pytest.approx(0.03 * 64 / 512)


def test_resume_refuses_other_settings(arrays, tmp_path):
    arguments = {"train": arrays, "batch_size": 4, "verbose": 0, "directory": tmp_path}
    finetune(make_model(), epochs=1, **arguments)
    with pytest.raises(ValueError, match=r"total_steps=6 \(the run has 3\)"):
        finetune(make_model(), epochs=2, resume=True, **arguments)
    fewer = (arrays[0][:8], arrays[1][:8])
    with pytest.raises(ValueError, match="other pictures, labels or split"):
        finetune(make_model(), epochs=1, resume=True, **{**arguments, "train": fewer})


def test_a_directory_with_another_run(arrays, tmp_path):
    arguments = {"train": arrays, "steps": 1, "verbose": 0, "directory": tmp_path}
    finetune(make_model(), **arguments)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="must not hold another run.*overwrite=True"):
        finetune(make_model(), **arguments)
    run = finetune(make_model(), overwrite=True, **arguments)
    assert run.history["epoch"] == [1]
    assert (tmp_path / "notes.txt").exists()
    with pytest.raises(ValueError, match="exclude each other"):
        finetune(make_model(), overwrite=True, resume=True, **arguments)


def test_nothing_to_resume(arrays, tmp_path):
    with pytest.raises(FileNotFoundError, match="needs the directory of a run"):
        finetune(make_model(), arrays, directory=tmp_path, resume=True)
    with pytest.raises(ValueError, match="needs `directory`"):
        finetune(make_model(), arrays, resume=True)


def test_a_directory_that_cannot_be_written_to(arrays, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError, match="which is a file"):
        finetune(make_model(), arrays, directory=tmp_path / "file")

    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(pathlib.Path, "write_bytes", refuse)
    with pytest.raises(OSError, match="can be written to .Read-only file system.*run"):
        finetune(make_model(), arrays, directory=tmp_path / "run")
    assert not list((tmp_path / "run").iterdir())


def test_a_full_disk_is_known_before_the_first_step(arrays, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(OSError, match="needs room") as caught:
        finetune(make_model(), arrays, directory=tmp_path)
    assert caught.value.errno == errno.ENOSPC
    assert not list(tmp_path.iterdir())


def test_a_failing_write_leaves_the_last_checkpoint_whole(arrays, tmp_path, monkeypatch):
    save = keras.Model.save

    def fail_at_second(model, path, *args, **kwargs):
        save(model, path, *args, **kwargs)
        if int(model.optimizer.iterations) > 3:
            pathlib.Path(path).write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(keras.Model, "save", fail_at_second)
    with pytest.raises(OSError, match="No space left.*of step 6.*checkpoint was kept.*resume"):
        finetune(make_model(), arrays, directory=tmp_path, epochs=2, batch_size=4, verbose=0)
    assert int(keras.saving.load_model(tmp_path / "last.keras").optimizer.iterations) == 3
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_loss_that_is_not_finite(arrays, tmp_path):
    with pytest.raises(FloatingPointError, match="at step .*`learning_rate`"):
        finetune(
            make_model(),
            arrays,
            directory=tmp_path,
            epochs=3,
            batch_size=4,
            learning_rate=1e38,
            warmup_steps=3,
            verbose=0,
        )
    last = keras.saving.load_model(tmp_path / "last.keras")
    assert all(np.isfinite(value).all() for value in last.get_weights())


def test_too_little_memory(arrays, monkeypatch):
    def fit(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    monkeypatch.setattr(keras_vit.ViT, "fit", fit)
    with pytest.raises(MemoryError, match="batch_size=12. Use a smaller one"):
        finetune(make_model(), arrays, steps=1)


@pytest.mark.parametrize("with_directory", [False, True])
def test_early_stopping_puts_the_best_epoch_back(arrays, tmp_path, with_directory):
    model = make_model()
    run = finetune(
        model,
        arrays,
        validation=arrays,
        directory=tmp_path if with_directory else None,
        epochs=30,
        batch_size=6,
        early_stopping=2,
        learning_rate=0.1,
        verbose=0,
    )
    accuracies, losses = run.history["val_accuracy"], run.history["val_loss"]
    best = max(range(len(losses)), key=lambda epoch: (accuracies[epoch], -losses[epoch]))
    assert len(run.history["epoch"]) == best + 3 < 30
    assert run.metrics["val_accuracy"] == run.history["val_accuracy"][best]
    loss, accuracy = model.evaluate(arrays[0].astype("float32"), arrays[1], verbose=0)
    assert accuracy == pytest.approx(run.metrics["val_accuracy"])
    assert loss == pytest.approx(run.metrics["val_loss"], rel=1e-4)


def test_a_dataset_of_batches_is_used_as_it_is(arrays):
    images, labels = arrays
    dataset = tf.data.Dataset.from_tensor_slices((images, labels)).batch(4)
    run = finetune(make_model(), dataset, validation=dataset, epochs=2, verbose=0)
    assert run.history["step"] == [3, 6]
    unknown = dataset.filter(lambda *_: True)  # tf.data does not know how many remain
    run = finetune(make_model(), unknown, epochs=1, verbose=0)
    assert run.history["step"] == [3]
    run = finetune(make_model(), dataset.repeat(), steps=3, verbose=0)
    assert run.history["step"] == [1, 2, 3]
    with pytest.raises(ValueError, match="never ends.*epochs=1"):
        finetune(make_model(), dataset.repeat(), epochs=1)
    with pytest.raises(ValueError, match="already decided.*batch_size=2"):
        finetune(make_model(), dataset, batch_size=2)
    with pytest.raises(ValueError, match="`validation` must come to an end"):
        finetune(make_model(), dataset, validation=dataset.repeat())


def test_compile_and_fit_without_us(arrays):
    images, labels = arrays
    model = make_model()
    model.compile(**keras_vit.recipe("paper_sgd").compile_arguments(total_steps=20))
    history = model.fit(images, labels, batch_size=12, epochs=20, verbose=0).history
    assert history["accuracy"][-1] == 1.0


def test_model_and_classes_must_fit(folder, arrays):
    with pytest.raises(ValueError, match="num_classes=5 for 2 classes.*`num_classes=2, reset"):
        finetune(make_model(num_classes=5), folder)
    with pytest.raises(ValueError, match="num_classes=0"):
        finetune(make_model(num_classes=0), arrays)
    with pytest.raises(ValueError, match="label 1 with num_classes=1"):
        finetune(make_model(num_classes=1), arrays)
    with pytest.raises(ValueError, match="include_normalization=False"):
        finetune(keras_vit.ViT(CONFIG, include_normalization=False), arrays)
    with pytest.raises(ValueError, match="object of type Sequential"):
        finetune(keras.Sequential(), arrays)
    dataset = tf.data.Dataset.from_tensors((arrays[0], arrays[1]))
    with pytest.raises(ValueError, match="does not say how many classes"):
        finetune("ViT-B_16", dataset)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"steps": 0}, "steps=0"),
        ({"epochs": 1.5}, "epochs=1.5"),
        ({"batch_size": -1}, "batch_size=-1"),
        ({"early_stopping": True}, "early_stopping=True"),
        ({"steps": 1, "epochs": 1}, "exclude each other"),
        ({"steps": 5, "warmup_steps": 5}, "warmup_steps=5, total_steps=5"),
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"recipe": "paper_sdg"}, "Did you mean: paper_sgd"),
    ],
)
def test_wrong_arguments(arrays, tmp_path, arguments, message):
    with pytest.raises(ValueError, match=message):
        finetune(make_model(), arrays, directory=tmp_path / "run", **arguments)
    assert not (tmp_path / "run").exists()


def test_unreadable_files_are_told(tmp_path):
    make_folder(tmp_path / "pictures", 3)
    (tmp_path / "pictures" / "cat" / "broken.jpg").write_bytes(b"broken")
    with pytest.warns(UserWarning, match="1 files were left out.*broken.jpg"):
        run = finetune(
            make_model(), tmp_path / "pictures", directory=tmp_path / "run", steps=1, verbose=0
        )
    assert "broken.jpg is" in (run.directory / "unreadable.txt").read_text()
    described = json.loads((run.directory / "run.json").read_text())
    assert described["settings"]["batch_size"] == 4


def test_mixed_labels(arrays, tmp_path):
    """FAULTS H3: integer labels in, one-hot for the loss, integers for whoever evaluates."""
    layers = [keras.layers.RandomErasing(0.5), keras.layers.MixUp(0.4)]
    arguments = {"train": arrays, "validation": arrays, "augmentation": layers, "epochs": 3}
    arguments |= {"batch_size": 6, "verbose": 0}
    whole = finetune(make_model(), directory=tmp_path / "whole", **arguments)
    assert {"accuracy", "val_accuracy", "loss", "val_loss"} == set(whole.metrics)
    loss, accuracy = whole.model.evaluate(arrays[0].astype("float32"), arrays[1], verbose=0)
    assert loss == pytest.approx(whole.metrics["val_loss"], rel=1e-4)
    assert accuracy == whole.metrics["val_accuracy"]

    # Layers draw what they would have drawn, wherever they and the run stood.
    cut = tmp_path / "cut"
    with pytest.raises(KeyboardInterrupt):
        finetune(make_model(), directory=cut, callbacks=[Interrupt(2)], **arguments)
    with pytest.raises(ValueError, match=r"augmentation=None \(the run has \['RandomErasing', 'M"):
        finetune(make_model(), directory=cut, resume=True, **{**arguments, "augmentation": None})
    other = [keras.layers.RandomErasing(0.5), keras.layers.MixUp(0.3)]
    with pytest.raises(ValueError, match="Received: other settings of `augmentation`. Use"):
        finetune(make_model(), directory=cut, resume=True, **{**arguments, "augmentation": other})
    fresh = [keras.layers.RandomErasing(0.5, seed=1), keras.layers.MixUp(0.4, seed=2)]
    arguments["augmentation"] = fresh
    resumed = finetune(make_model(seed=9), directory=cut, resume=True, **arguments)
    assert_same_weights(resumed.model, whole.model)


def test_class_weights(arrays, tmp_path):
    """Logits of zero cost log 2 a picture, times the weight of its class."""
    cats = (arrays[0][:9], np.array([0] * 6 + [1] * 3))
    arguments = {"train": cats, "steps": 1, "verbose": 0}
    run = finetune(make_model(), class_weights={0: 3.0}, **arguments)
    assert run.metrics["loss"] == pytest.approx(np.log(2) * (6 * 3 + 3) / 9)
    arguments |= {"directory": tmp_path}
    run = finetune(make_model(), class_weights="balanced", **arguments)
    settings = json.loads((tmp_path / "run.json").read_text())["settings"]
    assert settings["class_weights"] == [0.75, 1.5]
    finetune(make_model(), resume=True, **arguments)  # not needed again
    with pytest.raises(ValueError, match=r"class_weights=\[1.0, 2.0\] \(the run has \[0.75, 1.5"):
        finetune(make_model(), resume=True, class_weights=[1, 2], **arguments)


def test_several_labels_a_picture(arrays, tmp_path):
    """Bright or dark, and always a picture: probabilities are sigmoids."""
    labels = np.stack([arrays[1], 1 - arrays[1], np.ones(12, int)], axis=1)
    model = make_model(num_classes=3)
    run = finetune(
        model, (arrays[0], labels), (arrays[0], labels), directory=tmp_path, epochs=8,
        batch_size=6, learning_rate=0.1, verbose=0,
    )  # fmt: skip
    assert run.model.multi_label
    assert run.metrics["val_pr_auc"] > 0.99
    loaded = keras.saving.load_model(tmp_path / "best.keras")
    assert loaded.multi_label
    probabilities = loaded.probabilities(loaded.predict(arrays[0].astype("float32"), verbose=0))
    np.testing.assert_array_equal(np.asarray(probabilities) > 0.5, labels == 1)
    best = np.argmax(run.history["val_pr_auc"])
    assert int(loaded.optimizer.iterations) >= run.history["step"][best]


def test_one_label_a_picture_may_be_meant_as_several(arrays):
    one_hot = np.eye(2)[arrays[1]]
    model = make_model()
    run = finetune(model, (arrays[0], one_hot), multi_label=True, steps=1, verbose=0)
    assert model.multi_label and run.metrics["loss"] == pytest.approx(2 * np.log(2))
    run = finetune(model, arrays, steps=1, verbose=0)
    assert not model.multi_label and "accuracy" in run.metrics
