"""Loading L/16 (1.2 GB) must not hold the weights twice (FAULTS H6)."""

import json
import subprocess
import sys

import numpy as np
import pytest

from keras_vit import VARIANTS, PreprocessingConfig
from keras_vit.zoo import hf_safetensors
from keras_vit.zoo.variables import variable_shapes
from keras_vit.zoo.writing import Contents

LOAD = """
import json, resource, sys
import psutil
import keras, keras_vit
import keras_vit.pretrained, tensorflow
before = psutil.Process().memory_info().rss
model = keras_vit.from_pretrained(sys.argv[1])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
mapped = [line for line in open("/proc/self/maps") if sys.argv[1] in line]
value = float(model.get_layer("head").bias.numpy().sum())
print(json.dumps({"growth": peak - before, "parameters": model.count_params(),
                  "mapped": mapped, "value": value}))
"""


@pytest.mark.slow
def test_peak_memory_of_a_large_model(tmp_path, capsys):
    config = VARIANTS["L/16"]
    shapes = variable_shapes(config)
    rng = np.random.default_rng(0)
    contents = Contents(
        config=config,
        preprocessing=PreprocessingConfig(),
        read_ours=lambda path: rng.normal(0.0, 0.02, shapes[path]).astype("float32"),
    )
    hf_safetensors.write(contents, tmp_path)
    process = subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path)], capture_output=True, text=True, check=True
    )
    result = json.loads(process.stdout.splitlines()[-1])
    weights = 4 * result["parameters"]
    with capsys.disabled():
        print(f"\nL/16: peak growth {result['growth'] / weights:.2f} x the weights")
    assert weights > 1.2e9 and result["value"] != 0.0
    assert result["growth"] < 1.08 * weights
    assert result["mapped"] == []
