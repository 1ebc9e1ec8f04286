"""The rules of the house that a machine can check."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "keras_vit"
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Lower rungs first; members of one rung never import each other.
LADDER = [
    {"checks", "files", "assets", "startup"},
    {"base_config"},
    {"config"},
    {"variants"},
    {"resample"},
    {"layers"},
    {"decoding"},
    {"preprocessing"},
    {"lora"},
    {"parts", "assembly"},
    {"image_model"},
    {"batches"},
    {"model", "mixer"},
    {"zoo"},
    {"pretrained", "saving"},
    {"augment"},
    {"data", "training", "evaluation", "exporters"},
    {"recipes"},
    {"runs"},
    {"bundled"},
    {"cli"},
    {"__main__"},
]
RUNG = {room: number for number, rooms in enumerate(LADDER) for room in rooms}
# Readers, key tables and resampling never see a model.
NUMPY_ONLY = [
    *(PACKAGE / f"{name}.py" for name in ("checks", "base_config", "config", "variants")),
    *(PACKAGE / "resample.py", *sorted((PACKAGE / "zoo").glob("*"))),
]
# Found by name in every mirror: a test file that checks a property across modules.
ACROSS = {
    *("test_house.py", "test_pretrained_memory.py", "test_examples.py", "test_readme.py"),
    *("test_mutations.py", "test_benchmarks.py"),
}


def _name(path: pathlib.Path) -> str:
    return str(path.relative_to(ROOT))


def _tree(path: pathlib.Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _room(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if parts[0] == "keras_vit" and len(parts) > 1 else None


def _imports(tree: ast.Module) -> list[str]:
    """Modules that are imported anywhere in a file, lazily too, by full name."""
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


def test_there_are_sources():
    assert len(SOURCES) > 20


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_imports_point_down_the_ladder(path):
    if path == PACKAGE / "__init__.py":
        return  # the top: it names everything
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    assert own in RUNG, f"{own} has no rung"
    for module in _imports(_tree(path)):
        room = _room(module)
        if room is None or room == own:
            continue
        if room not in RUNG:
            assert module.startswith("keras_vit.") and module.count(".") == 1, module
            continue  # a public name of the package itself
        assert RUNG[room] < RUNG[own], f"{own} imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_source_keeps_the_manners(path):
    tree = _tree(path)
    is_cli = path.is_relative_to(PACKAGE / "cli")
    lines = path.read_text(encoding="utf-8").count("\n")
    assert lines <= 400, f"{lines} lines"
    for node in ast.walk(tree):
        where = f"{_name(path)}:{getattr(node, 'lineno', 0)}"
        assert not isinstance(node, ast.Assert), f"assert at {where}"
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "print":
            assert is_cli, f"print at {where}"
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node, clean=False) or ""
            length = node.end_lineno - node.lineno + 1 - (text.count("\n") + 1 if text else 0)
            assert length <= 60, f"{node.name} at {where} has {length} lines"
    assert not [name for name in _imports(tree) if name.startswith("keras.src")]


@pytest.mark.parametrize("path", NUMPY_ONLY, ids=lambda path: path.name)
def test_readers_are_numpy_only(path):
    if path.suffix != ".py":
        return
    heavy = {"keras", "tensorflow", "jax", "torch"}
    assert not heavy & {name.split(".")[0] for name in _imports(_tree(path))}


def test_paths_of_users_are_read_by_one_function():
    """`expanduser` raises a bare RuntimeError; `files.local_path` does not."""
    users = [path.name for path in SOURCES if "expanduser" in path.read_text(encoding="utf-8")]
    assert users == ["files.py"]


def test_models_and_layers_use_keras_operations_only():
    """The backends that Keras has run the same model."""
    models = [PACKAGE / f"{name}.py" for name in ("image_model", "model", "mixer", "parts")]
    folders = [path for room in ("layers", "lora") for path in (PACKAGE / room).glob("*.py")]
    # What TensorFlow alone runs, imported where it is the backend.
    folders.remove(PACKAGE / "layers" / "tensorflow_kernels.py")
    for path in models + folders:
        tops = {name.split(".")[0] for name in _imports(_tree(path))}
        assert not tops & {"tensorflow", "jax", "torch"}, path


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("test_*.py")), ids=_name)
def test_tests_mirror_sources(path):
    folder = path.parent.relative_to(ROOT / "tests")
    if path.name in ACROSS or folder.parts[:1] == ("parity",):
        return
    source = PACKAGE / folder / path.name.removeprefix("test_")
    special = {"test_contract.py", "test_layers.py", "test_init.py"}
    assert source.exists() or (source.parent.is_dir() and path.name in special), source


def test_every_source_has_its_tests():
    """A module without a test of its own name is listed here with what tests it."""
    tested_elsewhere = {
        "layers": "tests/layers/test_contract.py and test_layers.py",
    }
    missing = []
    for path in SOURCES:
        relative = path.relative_to(PACKAGE)
        mirror = ROOT / "tests" / relative.parent / f"test_{path.name}"
        if path.name == "__init__.py" or relative.parts[0] in tested_elsewhere:
            continue
        if not mirror.exists():
            missing.append(_name(path))
    assert not missing
