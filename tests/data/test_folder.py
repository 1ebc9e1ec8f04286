import pathlib

import numpy as np
import pytest
from PIL import Image

from keras_vit.data.folder import index_folder
from keras_vit.data.index import Split


def write_picture(path: pathlib.Path, value: int = 0):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((9, 7, 3), value, "uint8")
    Image.fromarray(pixels).save(path)


def make_classes(root: pathlib.Path, names=("cat", "dog"), number: int = 5):
    for name in names:
        for index in range(number):
            write_picture(root / name / f"{index}.png", index)
    return root


def names_of(split: Split) -> list[str]:
    return ["/".join(pathlib.Path(path).parts[-2:]) for path in split.paths]


def test_train_and_validation_folders(tmp_path):
    make_classes(tmp_path / "train", number=2)
    make_classes(tmp_path / "valid", number=1)
    folder = index_folder(tmp_path)
    assert folder.class_names == ("cat", "dog")
    assert names_of(folder.train) == ["cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png"]
    assert folder.train.labels.tolist() == [0, 0, 1, 1]
    assert names_of(folder.validation) == ["cat/0.png", "dog/0.png"]
    assert folder.validation.labels.tolist() == [0, 1]
    assert "4 pictures to train, 2 to validate (the folder 'valid')" in folder.summary


def test_the_first_validation_name_is_taken(tmp_path):
    make_classes(tmp_path / "train", number=2)
    make_classes(tmp_path / "test", number=3)
    make_classes(tmp_path / "val", number=1)
    assert index_folder(tmp_path).split_rule == "the folder 'val'"


def test_classes_called_train_and_bus_are_classes(tmp_path):
    make_classes(tmp_path, ("bus", "train"))
    assert index_folder(tmp_path).class_names == ("bus", "train")
    make_classes(tmp_path / "train", ("deeper",), 1)  # a folder inside a class belongs to it
    assert index_folder(tmp_path).class_names == ("bus", "train")


def test_a_lone_train_folder_is_divided(tmp_path):
    make_classes(tmp_path / "train")
    folder = index_folder(tmp_path)
    assert (len(folder.train), len(folder.validation)) == (8, 2)


def test_split_is_seeded_stratified_and_stated(tmp_path):
    make_classes(tmp_path, number=10)
    folder = index_folder(tmp_path, validation_fraction=0.3, seed=1)
    assert folder.validation.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert sorted(folder.train.paths + folder.validation.paths) == sorted(
        str(path) for path in tmp_path.rglob("*.png")
    )
    assert folder.split_rule == "30% of every class, drawn with seed 1"
    again = index_folder(tmp_path, validation_fraction=0.3, seed=1)
    assert names_of(again.train) == names_of(folder.train)
    other = index_folder(tmp_path, validation_fraction=0.3, seed=2)
    assert names_of(other.train) != names_of(folder.train)


def test_a_class_of_one_picture_is_trained_on(tmp_path):
    make_classes(tmp_path)
    write_picture(tmp_path / "eel" / "only.png")
    folder = index_folder(tmp_path)
    assert folder.train.labels.tolist().count(2) == 1
    assert 2 not in folder.validation.labels


def test_nothing_left_to_validate_on(tmp_path):
    make_classes(tmp_path, number=1)
    with pytest.raises(ValueError, match="no picture left to validate on"):
        index_folder(tmp_path)
    assert len(index_folder(tmp_path, validation_fraction=0).validation) == 0


def test_validation_from_another_folder(tmp_path):
    make_classes(tmp_path / "here", number=2)
    make_classes(tmp_path / "there", ("dog",), 3)
    folder = index_folder(tmp_path / "here", validation=tmp_path / "there")
    assert len(folder.train) == 4
    assert folder.validation.labels.tolist() == [1, 1, 1]


def test_unreadable_files_are_listed_and_left_out(tmp_path):
    make_classes(tmp_path)
    (tmp_path / "cat" / "empty.jpg").touch()
    (tmp_path / "cat" / "notes.txt").write_text("not a picture")
    whole = (tmp_path / "dog" / "0.png").read_bytes()
    (tmp_path / "dog" / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "dog" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    folder = index_folder(tmp_path)
    assert [pathlib.Path(path).name for path, _ in folder.unreadable] == [
        "empty.jpg",
        "notes.txt",
        "cut.png",
        "gone.png",
    ]
    assert all(reason for _, reason in folder.unreadable)
    assert len(folder.train) + len(folder.validation) == 10
    assert "4 unreadable files left out" in folder.summary


def test_litter_is_passed_over(tmp_path):
    make_classes(tmp_path)
    for name in (".DS_Store", "Thumbs.db", "desktop.ini"):
        (tmp_path / "cat" / name).write_bytes(b"litter")
    make_classes(tmp_path, (".ipynb_checkpoints", "__MACOSX"), 1)
    folder = index_folder(tmp_path)
    assert folder.class_names == ("cat", "dog")
    assert folder.unreadable == ()


def test_nested_folders_and_links(tmp_path):
    make_classes(tmp_path / "real", number=2)
    write_picture(tmp_path / "real" / "cat" / "deep" / "er" / "3.png")
    (tmp_path / "real" / "cat" / "loop").symlink_to(tmp_path / "real" / "cat")
    (tmp_path / "linked").mkdir()
    for name in ("cat", "dog"):
        (tmp_path / "linked" / name).symlink_to(tmp_path / "real" / name)
    folder = index_folder(tmp_path / "linked", validation_fraction=0)
    assert folder.train.labels.tolist() == [0, 0, 0, 1, 1]


def test_no_such_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match="`directory` must be an existing folder.*absent"):
        index_folder(tmp_path / "absent")
    write_picture(tmp_path / "file.png")
    with pytest.raises(NotADirectoryError, match="which is a file"):
        index_folder(tmp_path / "file.png")


def test_no_pictures(tmp_path):
    with pytest.raises(ValueError, match="one subfolder a class.*without any subfolder"):
        index_folder(tmp_path)
    (tmp_path / "cat").mkdir()
    (tmp_path / "dog").mkdir()
    with pytest.raises(ValueError, match="No picture could be read"):
        index_folder(tmp_path)


def test_one_class(tmp_path):
    make_classes(tmp_path, ("cat",))
    with pytest.raises(ValueError, match="two classes or more.*'cat'"):
        index_folder(tmp_path)


@pytest.mark.parametrize("content", [None, b"broken"])
def test_a_class_without_pictures(tmp_path, content):
    make_classes(tmp_path)
    (tmp_path / "eel").mkdir()
    if content:
        (tmp_path / "eel" / "1.png").write_bytes(content)
    with pytest.raises(ValueError, match="class 'eel'"):
        index_folder(tmp_path)


def test_a_validation_class_that_is_not_trained_on(tmp_path):
    make_classes(tmp_path / "train")
    make_classes(tmp_path / "val", ("cat", "eel"))
    with pytest.raises(ValueError, match="must be trained on. Received: eel"):
        index_folder(tmp_path)


@pytest.mark.parametrize("fraction", [-0.1, 1.0])
def test_validation_fraction_range(tmp_path, fraction):
    with pytest.raises(ValueError, match=f"validation_fraction={fraction}"):
        index_folder(tmp_path, validation_fraction=fraction)
