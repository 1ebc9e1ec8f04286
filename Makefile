# Everything runs in virtual environments that these targets make; a machine needs only python3.
PYTHON ?= python3
BIN := .venv/bin
# For instance: make demo DEMO_ARGUMENTS='--directory runs/mine'
DEMO_ARGUMENTS ?=

.PHONY: demo test lint format clean

demo: .venv/.ready
	$(BIN)/keras-vit finetune $(DEMO_ARGUMENTS)

test: .venv/.ready
	$(BIN)/python -m pytest -n auto --dist worksteal

lint: .venv/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv/.ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .venv-* dist build runs .pytest_cache .ruff_cache

.venv/.ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed. Set PYTHON=...")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
