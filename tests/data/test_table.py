import pathlib

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image

from keras_vit.config import PreprocessingConfig
from keras_vit.data.pipeline import evaluation_dataset, training_dataset
from keras_vit.data.table import index_table, index_table_split, is_table


def write_pictures(root: pathlib.Path, number: int = 10) -> list[str]:
    """Pictures of one colour each: `images/3.png` has the value 30."""
    (root / "images").mkdir(parents=True)
    names = [f"images/{index}.png" for index in range(number)]
    for index, name in enumerate(names):
        Image.fromarray(np.full((9, 7, 3), 10 * index, "uint8")).save(root / name)
    return names


def write_table(path: pathlib.Path, *rows: str, header: str = "path,label") -> pathlib.Path:
    path.write_text("\n".join([header, *rows, ""]))
    return path


@pytest.fixture
def names(tmp_path) -> list[str]:
    return write_pictures(tmp_path)


@pytest.fixture
def table(tmp_path, names) -> pathlib.Path:
    rows = (f"{name},{('dog', 'cat')[index % 2]}" for index, name in enumerate(names))
    return write_table(tmp_path / "t.csv", *rows)


def shown(split) -> list[str]:
    return [pathlib.Path(path).stem for path in split.paths]


def test_what_is_a_table(tmp_path):
    assert all(map(is_table, ("a.csv", "a.TSV", "~/b/a.parquet")))
    (tmp_path / "folder.csv").mkdir()
    assert not any(map(is_table, ("a", "a.csv.gz", "tfds:a", str(tmp_path / "folder.csv"))))


def test_a_table_without_split_is_divided(table, names):
    index = index_table(table)
    assert index.class_names == ("cat", "dog")
    assert len(index.train) == 8
    assert index.validation.labels.tolist() in ([0, 1], [1, 0])
    assert index.split_rule == "20% of every class, drawn with seed 0"
    assert sorted(shown(index.train) + shown(index.validation)) == list("0123456789")
    assert shown(index_table(table).train) == shown(index.train)
    assert shown(index_table(table, seed=1).train) != shown(index.train)
    assert len(index_table(table, validation_fraction=0).validation) == 0


def test_pictures_and_labels_stay_together(table, names):
    index = index_table(table)
    batches = evaluation_dataset(index.train, 3, (8, 8), PreprocessingConfig())
    for images, labels in batches:
        numbers = np.round(images[:, 0, 0, 0] / 10)
        np.testing.assert_array_equal(labels, (numbers + 1) % 2)  # even ones are dogs, 1
    images, labels = next(iter(training_dataset(index.train, 8, (8, 8))))
    np.testing.assert_array_equal(labels, (np.round(images[:, 0, 0, 0] / 10) + 1) % 2)
    assert labels.dtype == "int32"


@pytest.mark.parametrize(
    ("validation_name", "expected"), [("validation", "3"), ("VAL", "3"), ("test", "3")]
)
def test_split_column(tmp_path, names, validation_name, expected):
    rows = [f"{names[i]},{'ab'[i % 2]},train" for i in range(3)]
    rows += [f"{names[3]},a,{validation_name}", f"{names[4]},only_here,unused"]
    with pytest.raises(ValueError, match="Unknown split. Received: 'unused'.*line 6 of t.csv"):
        index_table(write_table(tmp_path / "t.csv", *rows, header="path,label,split"))
    index = index_table(write_table(tmp_path / "t.csv", *rows[:4], header="path,label,split"))
    assert shown(index.train) == ["0", "1", "2"]
    assert shown(index.validation) == [expected]
    assert index.split_rule == f"the rows of split {validation_name.lower()!r}"


def test_the_first_of_the_names_to_validate_on_is_taken(tmp_path, names):
    rows = [f"{names[0]},a,train", f"{names[1]},b,train"]
    rows += [f"{names[2]},c,test", f"{names[3]},b,validation"]  # classes of test are not read
    index = index_table(write_table(tmp_path / "t.csv", *rows, header="path,label,split"))
    assert (index.class_names, shown(index.validation)) == (("a", "b"), ["3"])


def test_a_table_to_train_on_only_is_divided(tmp_path, names):
    rows = [f"{names[i]},{'ab'[i % 2]},train" for i in range(4)]
    index = index_table(write_table(tmp_path / "t.csv", *rows, header="path,label,split"))
    assert len(index.validation) == 2
    rows = [row.replace("train", "test") for row in rows]
    with pytest.raises(ValueError, match="must have pictures to train on.*splits test"):
        index_table(write_table(tmp_path / "t.csv", *rows, header="path,label,split"))


def test_another_table_to_validate_on(tmp_path, table, names):
    other = write_pictures(tmp_path / "there", 2)
    held_out = write_table(tmp_path / "there" / "v.tsv", f"{other[1]}\tcat", header="path\tlabel")
    index = index_table(table, held_out)
    assert (len(index.train), index.validation.labels.tolist()) == (10, [0])
    assert index.split_rule == "the table 'v.tsv'"
    with_split = write_table(
        tmp_path / "there" / "s.csv", f"{other[0]},cat,test", header="path,label,split"
    )
    with pytest.raises(ValueError, match="exclude each other. Received: s.csv with t.csv"):
        index_table(table, with_split)
    with pytest.raises(ValueError, match="`validation` must be a .csv"):
        index_table(table, tmp_path)


def test_absolute_paths_and_other_columns(tmp_path, names):
    rows = [f"{tmp_path / names[0]},1,a,train", f"{names[1]},2,b,train", f"{names[2]},3,b,val"]
    table = write_table(tmp_path / "t.csv", *rows, header="file,id,kind,part")
    index = index_table(table, path_column="file", label_column="kind", split_column="part")
    assert (shown(index.train), shown(index.validation)) == (["0", "1"], ["2"])


@pytest.mark.parametrize(
    ("labels", "class_names"),
    [
        (("10", "9", "-1"), ("-1", "9", "10")),
        (("10", "9", "a"), ("10", "9", "a")),
        (("1", "01", "a"), ("01", "1", "a")),
        (("9", "1" * 5000), ("1" * 5000, "9")),
    ],
)
def test_classes_are_sorted_by_number_where_all_are(tmp_path, names, labels, class_names):
    rows = [f"{name},{label}" for name, label in zip(names, labels, strict=False)]
    index = index_table(write_table(tmp_path / "t.csv", *rows), validation_fraction=0)
    assert index.class_names == class_names
    assert [class_names[label] for label in index.train.labels] == list(labels)


@pytest.mark.parametrize("labels", [("01", "1"), ("-0", "0")])
def test_a_number_is_written_in_one_way(tmp_path, names, labels):
    rows = [f"{name},{label}" for name, label in zip(names, ("2", *labels), strict=False)]
    with pytest.raises(ValueError, match="the labels {!r} and {!r}".format(*labels)):
        index_table(write_table(tmp_path / "t.csv", *rows))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_multi_label(tmp_path, names, kind):
    labels = [["b", "a"], ["c"], [], ["a"]]
    if kind == "csv":
        rows = [
            f"{name},{'|'.join(each) or '|'}" for name, each in zip(names, labels, strict=False)
        ]
        table = write_table(tmp_path / "t.csv", *rows)
    else:
        table = tmp_path / "t.parquet"
        pyarrow.parquet.write_table(pyarrow.table({"path": names[:4], "label": labels}), table)
    index = index_table(table, validation_fraction=0)
    expected = [[1, 1, 0], [0, 0, 1], [0, 0, 0], [1, 0, 0]]
    assert index.is_multi_label
    assert index.class_names == ("a", "b", "c")
    np.testing.assert_array_equal(index.train.labels, expected)
    if kind == "csv":
        images, shown_classes = next(iter(training_dataset(index.train, 4, (8, 8))))
        assert shown_classes.dtype == "float32"
        numbers = np.round(images[:, 0, 0, 0] / 10).astype(int)
        np.testing.assert_array_equal(shown_classes, np.array(expected)[numbers])


def test_unreadable_and_hidden_pictures_are_left_out(tmp_path, table, names):
    (tmp_path / "images" / "notes.png").write_text("not a picture")
    (tmp_path / "images" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    hidden = tmp_path / "images" / "._0.png"
    hidden.write_bytes((tmp_path / names[0]).read_bytes())
    with table.open("a") as file:
        file.write("images/notes.png,cat\nimages/gone.png,dog\nimages/._0.png,dog\n")
    index = index_table(table)
    assert len(index.train) + len(index.validation) == 10
    reasons = {pathlib.Path(path).name: reason for path, reason in index.unreadable}
    assert reasons.keys() == {"notes.png", "gone.png", "._0.png"}
    assert "rename it" in reasons["._0.png"]
    assert "3 unreadable files left out" in index.summary


def test_missing_pictures(tmp_path, names):
    table = write_table(tmp_path / "t.csv", f"{names[0]},a", "x.png,b", "y.png,b")
    with pytest.raises(FileNotFoundError, match="lines 3, 4 of t.csv, the first with '.*x.png'"):
        index_table(table)


@pytest.mark.parametrize(
    ("second", "where"),
    [
        ("./images/0.png,a,train", "line 2 of t.csv and in line 4"),
        ("images/../images/0.png,b,train", "line 2 of t.csv and in line 4"),
        ("images/0.png,a,validation", "line 2 of t.csv and in line 4"),
    ],
)
def test_a_picture_is_named_once(tmp_path, names, second, where):
    table = write_table(
        tmp_path / "t.csv", f"{names[0]},a,train", f"{names[1]},b,train", second,
        header="path,label,split",
    )  # fmt: skip
    with pytest.raises(ValueError, match=where):
        index_table(table)


def test_a_picture_of_two_tables_is_named_once(tmp_path, table, names):
    held_out = write_table(tmp_path / "v.csv", f"{names[3]},cat")
    with pytest.raises(ValueError, match="in line 5 of t.csv and in line 2 of v.csv"):
        index_table(table, held_out)


def test_a_class_to_validate_on_is_trained_on(tmp_path, names):
    rows = [f"{names[0]},cat,train", f"{names[1]},dog,train", f"{names[2]},catt,test"]
    table = write_table(tmp_path / "t.csv", *rows, header="path,label,split")
    with pytest.raises(ValueError, match="'catt'. Did you mean: cat.*line 4 of t.csv"):
        index_table(table)


def test_nothing_to_learn(tmp_path, names):
    with pytest.raises(ValueError, match="two classes or more.*'cat'"):
        index_table(write_table(tmp_path / "t.csv", f"{names[0]},cat", f"{names[1]},cat"))
    with pytest.raises(ValueError, match="two classes or more.*none"):
        index_table(write_table(tmp_path / "t.csv", f"{names[0]},|", f"{names[1]},|"))
    (tmp_path / "bad.png").write_text("broken")
    with pytest.raises(ValueError, match="class 'dog'"):
        index_table(write_table(tmp_path / "t.csv", f"{names[0]},cat", "bad.png,dog"))


def test_no_such_table(tmp_path):
    with pytest.raises(FileNotFoundError, match="`table` must be an existing file.*absent.csv"):
        index_table(tmp_path / "absent.csv")
    with pytest.raises(ValueError, match="validation_fraction=1"):
        index_table(tmp_path / "absent.csv", validation_fraction=1)


def test_one_split_to_be_asked_about(tmp_path, names):
    """It may be of one class; others are not decoded, and classes are the table's."""
    rows = [f"{names[0]},cat,train", f"{names[1]},dog,Test", f"{names[2]},dog,test"]
    path = write_table(tmp_path / "t.csv", *rows, header="path,label,split")
    index = index_table_split(path, ("val", "test"))
    assert (index.class_names, shown(index.train)) == (("cat", "dog"), ["1", "2"])
    assert index.train.labels.tolist() == [1, 1] and not len(index.validation)
    assert index.split_rule == "the rows of split 'test'"
    assert index_table_split(path, ("val",)) is None
    plain = write_table(tmp_path / "plain.csv", f"{names[0]},cat")
    assert index_table_split(plain, ("train",)) is None
