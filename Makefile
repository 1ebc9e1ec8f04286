# Everything runs in virtual environments that these targets make; a machine needs only python3.
PYTHON ?= python3
BIN := .venv/bin
# For instance: make demo DEMO_ARGUMENTS='--directory runs/mine'
DEMO_ARGUMENTS ?=
# For instance: make bench BENCH_ARGUMENTS='--rows inference/float32/* --name here'
BENCH_ARGUMENTS ?=

.PHONY: bench demo test lint format clean

demo: .venv/.ready
	$(BIN)/keras-vit finetune $(DEMO_ARGUMENTS)

bench: .venv-parity/.ready
	.venv-parity/bin/python -m benchmarks $(BENCH_ARGUMENTS)

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

.venv-parity/.ready: pyproject.toml constraints.txt constraints-parity.txt
	$(PYTHON) -m venv .venv-parity
	.venv-parity/bin/python -m pip install --quiet --upgrade pip
	.venv-parity/bin/python -m pip install --quiet --constraint constraints.txt \
		--constraint constraints-parity.txt --editable '.[dev,parity]'
	touch $@
