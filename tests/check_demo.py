"""Check what `make demo` left: python tests/check_demo.py DIRECTORY."""

import json
import pathlib
import sys

directory = pathlib.Path(sys.argv[1])
comparison = json.loads((directory / "comparison.json").read_text())
pretrained, random = comparison["pretrained"], comparison["random"]
assert len(pretrained) == len(random) == 5, comparison
assert min(pretrained) > max(random), comparison
assert (directory / "saved_model" / "saved_model.pb").is_file()
assert (directory / "pretrained" / "best.keras").is_file()
print(f"demo: lowest pre-trained {min(pretrained):.3f} > highest random {max(random):.3f}")
