"""Makes `hub_server` importable: pytest's importlib mode puts no test folder on the path."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parent))
