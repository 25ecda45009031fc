# Each target makes its own .venv and installs what it needs; nothing else is expected but Python 3.11 or newer.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: demo test quick check format bench generated clean

demo: .venv/demo
	$(BIN)/edgewise demo

test: .venv/dev
	$(BIN)/python -m pytest

# The same without what takes more than a few seconds.
quick: .venv/dev
	$(BIN)/python -m pytest -m "not slow and not model"

check: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/python -m edgewise.diagrams --check

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# What is committed and made from the code.
generated: .venv/dev
	$(BIN)/python -m edgewise.diagrams

bench: .venv/dev
	$(BIN)/python tests/bench/run.py

clean:
	rm -rf .venv .bench build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("Edgewise needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.11") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(PIP) --upgrade "pip>=25.1"

.venv/demo: .venv/bin/python pyproject.toml
	$(PIP) --editable ".[cli,local]"
	@touch $@

.venv/dev: .venv/bin/python pyproject.toml
	$(PIP) --editable ".[all]" --group dev
	@touch $@
