"""The command in a process of its own."""

import signal
import subprocess
import sys
import time

import keras
import numpy as np
from PIL import Image

import keras_vit


def test_ctrl_c_leaves_the_last_checkpoint_whole(tiny_config, tmp_path):
    keras_vit.save_pretrained(keras_vit.ViT(tiny_config), tmp_path / "model")
    for name in ("cat", "dog"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for index in range(3):
            image = Image.fromarray(np.full((16, 16, 3), index, "uint8"))
            image.save(tmp_path / "data" / name / f"{index}.png")
    run = tmp_path / "run"
    command = [sys.executable, "-m", "keras_vit", "finetune", str(tmp_path / "data")]
    command += ["-d", str(run), "-m", str(tmp_path / "model"), "--epochs", "100000"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A test runner in the background may ignore the signal, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        end = time.monotonic() + 120
        while not (run / "last.keras").exists() and process.poll() is None:
            assert time.monotonic() < end
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, errors
    assert "interrupted; the last checkpoint is whole" in errors
    assert errors.endswith("--epochs 100000 --resume\n")
    assert "Traceback" not in errors
    assert isinstance(keras.saving.load_model(run / "last.keras"), keras_vit.ViT)
    assert not [path for path in run.iterdir() if path.name.startswith(".")]
