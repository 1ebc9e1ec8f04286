import pathlib

import pyarrow
import pyarrow.parquet
import pytest

from keras_vit.data.table_rows import Columns, Row, read_rows, tell_rows


def write(path: pathlib.Path, text: str, encoding: str = "utf-8") -> pathlib.Path:
    path.write_bytes(text.encode(encoding))
    return path


def write_parquet(file: pathlib.Path, **columns) -> pathlib.Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), file)
    return file


def read(table: pathlib.Path, **columns):
    return [(row.number, row.path, row.labels) for row in read_rows(table, Columns(**columns))]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_text(tmp_path, encoding, end):
    lines = ["id,label,path", '1,"cat, big",a.png', "", '2,käse,"b,1.png"', ", ,", "3,5,c.png"]
    table = write(tmp_path / "t.csv", end.join([*lines, "", " ", ""]), encoding)
    assert read(table) == [
        (2, "a.png", ("cat, big",)),
        (4, "b,1.png", ("käse",)),
        (6, "c.png", ("5",)),
    ]


def test_tabs_and_other_names(tmp_path):
    table = write(tmp_path / "t.TSV", 'file\tspecies\na,b.png\t"x"\n')
    assert read(table, path="file", label="species") == [(2, "a,b.png", ("x",))]


def test_spaces_after_commas(tmp_path):
    table = write(tmp_path / "t.csv", 'path, label\na, "cat"\n "b,1", dog\n')
    assert read(table) == [(2, "a", ("cat",)), (3, "b,1", ("dog",))]


def test_a_cell_over_two_lines_keeps_the_numbers_right(tmp_path):
    table = write(tmp_path / "t.csv", 'path,label,note\na,x,"one\ntwo\u2028three"\nb,y,\n')
    assert read(table) == [(2, "a", ("x",)), (4, "b", ("y",))]


def test_several_labels(tmp_path):
    table = write(tmp_path / "t.csv", "path,label\na,cat | dog\nb,cat|cat\nc,|\nd,dog\n")
    rows = read_rows(table, Columns())
    assert [row.labels for row in rows] == [("cat", "dog"), ("cat",), (), ("dog",)]
    assert [row.is_list for row in rows] == [True, True, True, False]


def test_split_column(tmp_path):
    table = write(tmp_path / "t.csv", "path,label,split,fold\na,x,train,1\nb,y,val,2\n")
    assert [row.split for row in read_rows(table, Columns())] == ["train", "val"]
    assert [row.split for row in read_rows(table, Columns(split="fold"))] == ["1", "2"]
    table = write(tmp_path / "u.csv", "path,label\na,x\n")
    assert read_rows(table, Columns())[0].split is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns none"),
        ("path,label\n\n", "a line for each picture"),
        ("a.png,cat\nb.png,dog\n", "path_column='path'.*columns 'a.png', 'cat'.*Name the columns"),
        ("path;label\na;x\n", "columns 'path;label'.*with commas between in a .csv"),
        ("paths,label\na,x\n", "Did you mean: paths"),
        ("path,Label\na,x\n", "label_column='label'.*Did you mean: Label"),
        ("path,path,label\na,a,x\n", "columns 'path', 'path', 'label'"),
        ("path,label,Split\na,x,train\n", "which pictures to validate on.*Did you mean: Split"),
        ("path,label\na,x\nb,y,z\n", "line 3 of t.csv with 3 cells"),
        ("path,label\na\n", "line 2 of t.csv with 1 cells"),
        ("path,label\n\na,\n", "Every `label`.*line 3 of t.csv with ''"),
        ("path,label\na,x||y\n", "line 2 of t.csv with 'x||y'"),
        ("path,label\n ,x\n", "Every picture needs a `path`.*line 2 of t.csv"),
        ("path,label,split\na,x,\n", "Every picture needs a `split`.*line 2"),
        ('path,label\na,x\nb,"y\nc,z\n', "line 3 of t.csv.*Close every quote"),
        ('path,label\na,"x"y\n', "line 2 of t.csv.*Close every quote"),
        ("path,label\na,x\nb,\0\n", "line 3 of t.csv with a zero byte"),
    ],
)
def test_malformed_text(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_rows(write(tmp_path / "t.csv", text), Columns())


def test_other_encodings(tmp_path):
    table = write(tmp_path / "t.csv", "path,label\na,cat\nb,käse\n", "latin-1")
    with pytest.raises(ValueError, match=r"line 3 of t.csv with b'\\xe4'. Save it as UTF-8"):
        read_rows(table, Columns())


def test_parquet(tmp_path):
    table = write_parquet(tmp_path / "t.parquet", other=[0, 0], label=[3, 1], path=["a", "b"])
    assert read(table) == [(1, "a", ("3",)), (2, "b", ("1",))]
    categories = pyarrow.array(["cat", "dog|cat"]).dictionary_encode()
    table = write_parquet(tmp_path / "c.parquet", path=["a", "b"], label=categories)
    assert read(table) == [(1, "a", ("cat",)), (2, "b", ("dog", "cat"))]


def test_parquet_lists(tmp_path):
    labels = [["a|b", "c"], [], ["c"]]
    table = write_parquet(tmp_path / "t.parquet", path=["x", "y", "z"], label=labels)
    rows = read_rows(table, Columns())
    assert [row.labels for row in rows] == [("a|b", "c"), (), ("c",)]
    assert all(row.is_list for row in rows)


BITS = [[0, 1, 1], [1, 0, 0]]


def test_one_bit_a_class_is_refused(tmp_path):
    """Each picture would show the classes "0" and "1"."""
    for labels in (BITS, [[bool(bit) for bit in row] for row in BITS]):
        table = write_parquet(tmp_path / "t.parquet", path=["a", "b"], label=labels)
        with pytest.raises(ValueError, match="each lists 3 values that are 0 or 1.*places of"):
            read_rows(table, Columns())
    with pytest.raises(ValueError, match="t.csv, in which each lists 3 values"):
        read_rows(write(tmp_path / "t.csv", "path,label\na,0|1|1\nb,1|0|0\n"), Columns())


@pytest.mark.parametrize("labels", [[[0], [1]], [[0, 1], [1]], [[0, 1], [1, 2]], [[0, 1], []]])
def test_indices_of_classes_are_not_bits(tmp_path, labels):
    table = write_parquet(tmp_path / "t.parquet", path=["a", "b"], label=labels)
    assert [[*map(int, row.labels)] for row in read_rows(table, Columns())] == labels


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (dict(path=["a"], labels=["x"]), "Did you mean: labels"),
        (dict(path=["a", None], label=["x", "y"]), "row 2 of t.parquet with None"),
        (dict(path=["a", "b"], label=["x", None]), "Every `label`.*row 2 of t.parquet"),
        (dict(path=["a"], label=[1.5]), "row 1 of t.parquet with 1.5"),
        (dict(path=["a"], label=[["x", None]]), r"row 1 of t.parquet with \['x', None\]"),
        (dict(path=[b"a"], label=["x"]), "row 1 of t.parquet with b'a'"),
        (dict(path=pyarrow.array([], "string"), label=pyarrow.array([], "string")), "a row for"),
    ],
)
def test_malformed_parquet(tmp_path, columns, message):
    with pytest.raises(ValueError, match=message):
        read_rows(write_parquet(tmp_path / "t.parquet", **columns), Columns())


@pytest.mark.parametrize("content", [b"", b"path,label\na,x\n"])
def test_what_is_no_parquet(tmp_path, content):
    (tmp_path / "t.parquet").write_bytes(content)
    with pytest.raises(ValueError, match="a whole Parquet file"):
        read_rows(tmp_path / "t.parquet", Columns())


def test_rows_are_told_of(tmp_path):
    rows = [Row(number, "a", ("x",), None, False) for number in range(2, 10)]
    assert tell_rows(tmp_path / "t.csv", rows[:1]) == "line 2 of t.csv"
    assert tell_rows(tmp_path / "t.csv", rows) == "lines 2, 3, 4, 5, 6 and 3 more of t.csv"
    assert tell_rows(tmp_path / "t.parquet", rows[:2]) == "rows 2, 3 of t.parquet"
