# `make quickstart` and `make test` need Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV ?= .venv
# Processes that run tests: each needs about 3 GB.
WORKERS ?= 2
BIN = $(VENV)/bin

.PHONY: quickstart test test-all lint benchmark clean

$(VENV)/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --upgrade pip
	$(BIN)/python -m pip install -e .
	touch $@

$(VENV)/installed-dev: $(VENV)/installed
	$(BIN)/python -m pip install -e '.[dev,tfds,serving,index,milvus,report,demo,parse,regions,captions]'
	touch $@

quickstart: $(VENV)/installed
	$(BIN)/python -m pipelines.quickstart

test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m 'not slow and not real_data' -n $(WORKERS) --dist loadfile

test-all: $(VENV)/installed-dev
	$(BIN)/python -m pytest

lint: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

benchmark: $(VENV)/installed-dev
	$(BIN)/python -m tests.benchmarks.training
	$(BIN)/python -m tests.benchmarks.order
	$(BIN)/python -m tests.benchmarks.trees
	$(BIN)/python -m tests.benchmarks.search
	$(BIN)/python -m tests.benchmarks.serving

clean:
	rm -rf $(VENV) quickstart build *.egg-info
