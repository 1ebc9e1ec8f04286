"""What a table of speeds is worth nothing without: machine, versions, settings."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

LIBRARIES = (
    *("keras-vit-zoo", "tensorflow", "keras", "keras-hub", "torch", "timm", "transformers"),
    *("jax", "jaxlib", "onnx", "onnxruntime", "openvino", "numpy"),
)
FLAGS = ("avx2", "avx512f", "avx512_bf16", "amx_tile", "amx_bf16")
# What makes libraries compute otherwise.
SETTINGS = ("TF_ENABLE_ONEDNN_OPTS", "OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", "XLA_FLAGS")


def describe(root: Path) -> dict[str, Any]:
    """Return date, commit of `root`, processor, threads, versions and settings."""
    fields = _cpu()
    flags = fields.get("flags", "").split()
    onednn = os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1 (default)")
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": _commit(root),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": fields.get("model name", platform.processor()),
        "cpu_model": fields.get("model"),
        "flags": {flag: flag in flags for flag in FLAGS},
        "threads": len(os.sched_getaffinity(0)),
        "tensorflow_onednn": onednn,
        "environment": {name: os.environ[name] for name in SETTINGS if name in os.environ},
        "versions": {name: _version(name) for name in LIBRARIES},
    }


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu() -> dict[str, str]:
    """The first processor's fields of `/proc/cpuinfo`."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0]
    pairs = (line.split(":", 1) for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def _commit(root: Path) -> str | None:
    """The commit, with a `+` behind it if files differ from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return None
