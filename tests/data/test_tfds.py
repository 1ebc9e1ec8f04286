import io

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

from keras_vit.config import PreprocessingConfig
from keras_vit.data.pipeline import evaluation_dataset, training_dataset
from keras_vit.data.tfds import index_tfds, is_tfds


@pytest.fixture
def folder(write_tfds, pets):
    return write_tfds(
        {"train": [pets(range(6)), pets(range(6, 10))], "test": [pets(range(10, 14))]}
    )


def values(dataset) -> list[tuple[int, int]]:
    """What pictures show, and their labels."""
    return [
        (round(float(image[0, 0, 0]) / 10), label)
        for images, labels in dataset
        for image, label in zip(images, labels.numpy().tolist(), strict=True)
    ]


def shown(examples) -> list[int]:
    """What pictures show, by PIL, which is quicker than a pipeline."""
    encoded = (examples.read(tf.constant(picture)).numpy() for picture in examples.pictures)
    return [Image.open(io.BytesIO(each)).getpixel((0, 0))[0] // 10 for each in encoded]


def test_what_is_a_tfds_set():
    assert is_tfds("tfds:cifar10")
    assert not is_tfds("cifar10")


def test_a_set_by_folder(folder):
    index = index_tfds(f"tfds:{folder}")
    assert index.class_names == ("cat", "dog")
    assert shown(index.train) == list(range(10))
    assert shown(index.validation) == [10, 11, 12, 13]
    assert index.train.labels.tolist() == [0, 1] * 5
    assert index.train.labels.dtype == "int32"
    assert index.summary.startswith("2 classes (cat, dog): 10 pictures to train, 4 to validate")
    assert index.split_rule == "the split 'test'"
    batches = evaluation_dataset(index.validation, 3, (8, 8), PreprocessingConfig())
    assert values(batches) == [(10, 0), (11, 1), (12, 0), (13, 1)]


def test_a_set_by_name(folder):
    index = index_tfds(f"tfds:tiny_set:1.0.0?data_dir={folder.parents[1]}")
    assert (len(index.train), len(index.validation)) == (10, 4)


def test_training_batches_come_in_any_order_and_again(folder):
    index = index_tfds(f"tfds:{folder}")
    batches = training_dataset(index.train, 5, (8, 8), seed=3)
    first = values(batches.take(4))
    assert sorted(value for value, _ in first[:10]) == list(range(10))
    assert first[:10] != first[10:]
    assert all(value % 2 == label for value, label in first)
    later = training_dataset(index.train, 5, (8, 8), seed=3, start_step=2)
    assert values(later.take(2)) == first[10:]


def test_parts_of_splits(folder):
    index = index_tfds(f"tfds:{folder}?train=train[:70%]&validation=train[70%:]+test[:1]")
    assert shown(index.train) == list(range(7))
    assert shown(index.validation) == [7, 8, 9, 10]
    assert index.split_rule == "the split 'train[70%:]+test[:1]'"
    index = index_tfds(f"tfds:{folder}?train=train+test")
    assert len(index.train) + len(index.validation) == 14
    with pytest.raises(ValueError, match="with 3 in both"):
        index_tfds(f"tfds:{folder}?train=train[:70%]&validation=train[40%:]")


def test_without_a_split_to_validate_on_it_is_drawn(write_tfds, pets):
    folder = write_tfds({"train": [pets(range(10))]})
    index = index_tfds(f"tfds:{folder}", seed=4)
    assert sorted(shown(index.train) + shown(index.validation)) == list(range(10))
    assert index.split_rule == "20% of every class, drawn with seed 4"
    assert shown(index_tfds(f"tfds:{folder}", seed=4).validation) == shown(index.validation)


def test_a_part_without_a_class_keeps_the_labels(folder):
    index = index_tfds(f"tfds:{folder}?train=train[1:2]")
    assert index.train.labels.tolist() == [1]
    assert index.class_names == ("cat", "dog")


def test_several_labels_a_picture(write_tfds, pets):
    examples = [
        {"picture": each["image"], "tags": tags, "kind": 0}
        for each, tags in zip(pets(range(4)), [[0, 2], [], [1], [2]], strict=True)
    ]
    features = {
        "picture": tfds.features.Image(shape=(None, None, 3)),
        "tags": tfds.features.Sequence(tfds.features.ClassLabel(names=["a", "b", "c"])),
        "kind": tfds.features.ClassLabel(num_classes=2),
    }
    folder = write_tfds({"train": [examples]}, features)
    with pytest.raises(ValueError, match=r"2 features of the kind `label` \(kind, tags\)"):
        index_tfds(f"tfds:{folder}")
    index = index_tfds(f"tfds:{folder}?label=tags", validation_fraction=0)
    assert index.is_multi_label
    expected = [[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 1]]
    np.testing.assert_array_equal(index.train.labels, expected)
    found = values(training_dataset(index.train, 4, (8, 8)).take(1))
    assert sorted(found) == list(enumerate(expected))
    index = index_tfds(f"tfds:{folder}?label=kind", validation_fraction=0)
    assert index.class_names == ("0", "1")


def test_pictures_that_cannot_be_decoded_are_left_out(write_tfds, pets):
    examples = pets(range(6))
    examples[2]["image"] = b"broken"
    examples[3]["image"] = examples[3]["image"][:40]
    folder = write_tfds({"train": [examples]})
    index = index_tfds(f"tfds:{folder}", validation_fraction=0)
    assert shown(index.train) == [0, 1, 4, 5]
    assert len(index.unreadable) == 2
    path, reason = index.unreadable[0]
    assert path.startswith("tiny_set-train.tfrecord-00000-of-00001 at byte ")
    assert "no whole picture" in reason


def test_pixels_of_other_kinds_are_no_pictures(write_tfds):
    features = {
        "image": tfds.features.Image(shape=(4, 4, 1), dtype=np.float32),
        "label": tfds.features.ClassLabel(num_classes=2),
    }
    examples = [{"image": np.zeros((4, 4, 1), "float32"), "label": 0}]
    with pytest.raises(ValueError, match="pictures of uint8 or uint16.*0 features.*image, label"):
        index_tfds(f"tfds:{write_tfds({'train': [examples]}, features)}")


def test_labels_that_are_unknown(write_tfds, pets):
    test = [each | {"label": -1} for each in pets(range(2))]
    folder = write_tfds({"train": [pets(range(4))], "test": [test]})
    with pytest.raises(ValueError, match="'test' of tiny_set/1.0.0 with labels of -1"):
        index_tfds(f"tfds:{folder}")
    index = index_tfds(f"tfds:{folder}?train=train[:50%]&validation=train[50%:]")
    assert shown(index.validation) == [2, 3]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("?trian=train", "Unknown option.*'trian'. Did you mean: train"),
        ("?train=", "must have a value"),
        ("?train", "must have a value"),
        ("?train=trian", "'trian' of tiny_set/1.0.0, which has .*train"),
        ("?train=train[:x%]", "A split must be one of the set's"),
        ("?image=label", "Unknown `image`. Received: 'label'. .*image"),
        ("?label=id", "Unknown `label`"),
    ],
)
def test_options_that_have_no_meaning(folder, query, message):
    with pytest.raises(ValueError, match=message):
        index_tfds(f"tfds:{folder}{query}")


def test_no_such_set(tmp_path, folder):
    with pytest.raises(FileNotFoundError, match="without dataset_info.json"):
        index_tfds(f"tfds:{tmp_path}")
    for name in ("tiny_sett", "tiny_set:2.0.0"):
        with pytest.raises(ValueError, match=f"TFDS set. Received: '{name}'. .*: tiny_set"):
            index_tfds(f"tfds:{name}?data_dir={folder.parents[1]}")
    for name in ("cifar1O", "nope"):
        with pytest.raises(ValueError, match=f"TFDS set. Received: '{name}'") as raised:
            index_tfds(f"tfds:{name}?data_dir={folder.parents[1]}")
        assert len(str(raised.value)) < 500
    with pytest.raises(ValueError, match="is a split of it"):
        index_tfds(f"tfds:{folder}", "tfds:other")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"name": "tiny_set"}', '{"splits": 3}'])
@pytest.mark.parametrize("file", ["dataset_info.json", "features.json"])
def test_a_damaged_description(folder, content, file):
    (folder / file).write_text(content)
    message = "must be whole.*Received: .*TFDS says: .*prepare it again"
    with pytest.raises(ValueError, match=message) as raised:
        index_tfds(f"tfds:{folder}")
    assert len(str(raised.value)) < 900


def test_no_such_version():
    with pytest.raises(ValueError, match="version that are named. Received: 'cifar10:9.9.9'"):
        index_tfds("tfds:cifar10:9.9.9")


def test_other_file_formats_are_refused(folder):
    info = folder / "dataset_info.json"
    info.write_text(info.read_text().replace('"tfrecord"', '"array_record"'))
    message = r"in array_record. Prepare it again, by `tfds.builder\('tiny_set'"
    with pytest.raises(ValueError, match=message):
        index_tfds(f"tfds:{folder}")


def test_a_set_is_prepared_if_it_is_not(folder, monkeypatch, tmp_path):
    """TFDS 4.9.10 needs a package for it that it does not require."""

    class TinySet(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")
        pkg_dir_path = tmp_path

        def _info(self):
            return tfds.core.DatasetInfo(builder=self)

        def _split_generators(self, manager):
            return {}

        def _generate_examples(self):
            yield from ()

    def lacking(self):
        raise ModuleNotFoundError(
            "No module named 'importlib_resources'", name="importlib_resources"
        )

    monkeypatch.setattr(TinySet, "download_and_prepare", lacking)
    with pytest.raises(ImportError, match="`pip install importlib_resources`"):
        index_tfds(f"tfds:tiny_set?data_dir={tmp_path / 'empty'}")
