import re
import shlex

import pytest

import keras_vit


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    path = tmp_path_factory.mktemp("labels") / "labels.txt"
    path.write_text("\N{BYTE ORDER MARK}Katze\r\nHünd\n\n", encoding="utf-8")
    return path


def test_what_is_printed_works(command, run_directory, pictures, labels, tmp_path, capsys):
    path = tmp_path / "it's/1"
    options = ("--labels", labels, "--top-k", 1, "--target", "cpu")
    result = command("export", run_directory, path, *options)
    assert result.code == 0, result.err
    assert b"FusedBatchNormV3" in (path / "saved_model.pb").read_bytes()
    for name in ("serving_default", "serve_float", "serve_bytes", "embed", "embed_bytes"):
        assert re.search(rf"\b{name}\b", result.out)
    assert "images: uint8 (?, ?, ?, 3)" in result.out
    assert "labels: string (?, 1)" in result.out
    code = shlex.split(result.out.splitlines()[-1])[2]
    exec(code.replace("PICTURE", str(pictures / "dog/0.png")), {})
    assert "H\\xc3\\xbcnd" in capsys.readouterr().out

    result = command("export", run_directory, path)
    assert (result.code, "must not exist yet" in result.err) == (1, True)


def test_a_model_of_other_channels_has_no_files_to_take(command, checkpoint, tmp_path):
    keras_vit.from_pretrained(checkpoint, num_channels=4).save(tmp_path / "four.keras")
    result = command("export", tmp_path / "four.keras", tmp_path / "out")
    assert result.code == 0, result.err
    assert "serve_bytes" not in result.out
    assert '["serving_default"]' in shlex.split(result.out.splitlines()[-1])[2]

    result = command("export", tmp_path / "four.keras", tmp_path / "out", "--overwrite")
    assert result.code == 0, result.err


def test_wrong_arguments(command, run_directory, tmp_path):
    (tmp_path / "three.txt").write_text("a\nb\nc\n")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\nb\n")
    (tmp_path / "file").touch()
    out = tmp_path / "out"
    for arguments, said in (
        ((run_directory, out, "--labels", tmp_path / "three.txt"), "3 labels, num_classes=2"),
        ((run_directory, out, "--labels", tmp_path / "latin.txt"), "text file in UTF-8"),
        ((run_directory, out, "--labels", tmp_path / "none.txt"), "No such file"),
        ((run_directory, tmp_path / "file/out"), "cannot be written"),
        ((tmp_path / "nowhere", out), "must be a file or folder that exists"),
    ):
        result = command("export", *arguments)
        assert result.code == 1
        assert result.err.startswith("error: ") and said in result.err, result.err
        assert not out.exists()
    assert command("export", run_directory, out, "--format", "onxn").code == 2
