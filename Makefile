# `make quickstart` and `make test` need Python 3.11 or newer and nothing else.
PYTHON ?= python3
VENV ?= .venv
# Processes that run tests. On two processors the third works while one waits for servers and processes of its own.
WORKERS ?= 3
BIN = $(VENV)/bin

.PHONY: quickstart check test peers test-slow test-all test-lowest test-newest faults fuzz soak audit sbom coverage lint ruff mypy pyright release docs benchmark pretrained-check clean

$(VENV)/installed: setup.cfg pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --upgrade pip
	$(BIN)/python -m pip install -e .
	touch $@

# In one go: `models` needs an older TensorFlow than a user's environment has. `models` and `regions` each bring an
# OpenCV, and the latter's, with selective search, must be the last.
$(VENV)/installed-dev: setup.cfg pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --upgrade pip
	$(BIN)/python -m pip install -e '.[dev,models,tfds,hf,datasets,serving,sign,onnx,litert,index,milvus,report,demo,parse,regions,captions,beam,dask,docs]'
	touch $(VENV)/installed $@

quickstart: $(VENV)/installed
	$(BIN)/python -m pipelines.quickstart

# Before a commit, in a minute: lint, types, and the tests that what changed since BASE touches most.
BASE ?= HEAD
check: lint
	tests=$$($(BIN)/python -m tests.affected --base $(BASE)) && \
	    { test -z "$$tests" || $(BIN)/python -m pytest -q -m 'not slow and not real_data' --processes $(WORKERS) $$tests; }

# The files that take minutes begin, so that none of them is alone at the end.
LONGEST = tests/e2e tests/runs/test_devices.py tests/runs/test_jax.py tests/test_docs.py tests/training/test_strategies.py
# The quick tests. With MARKS= all, in one go, so that tests of a file that share a training share it.
MARKS ?= not slow and not real_data
test: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m '$(MARKS)' --processes $(WORKERS) $(LONGEST) tests

# transformers and open_clip, which slow tests compare with where they are installed: 6 GB, in an environment of their
# own, because torch needs a newer setuptools than TensorBoard.
$(VENV)/peers/installed: $(VENV)/installed
	$(PYTHON) -m venv $(VENV)/peers
	$(VENV)/peers/bin/python -m pip install --quiet torch torchvision 'transformers >= 5' safetensors sentencepiece protobuf pillow open_clip_torch
	touch $@

peers: $(VENV)/peers/installed

# The long ones: trainings on several devices, every command of the documentation, real data.
# Files without such tests are not even collected.
test-slow: $(VENV)/installed-dev
	$(BIN)/python -m pytest -m 'slow or real_data' --processes $(WORKERS) $(LONGEST) \
	    $$(grep -rlE 'mark\.(slow|real_data)' tests --include='test_*.py' | sort)

test-all: MARKS =
test-all: test

# The quick tests with the oldest releases that setup.cfg allows, in an environment of their own. uv resolves them.
test-lowest:
	$(PYTHON) -m venv build/lowest
	build/lowest/bin/python -m pip install uv
	build/lowest/bin/python -m uv pip install --python build/lowest/bin/python --resolution lowest-direct -e '.[dev,serving,index,report,captions]'
	build/lowest/bin/python -m pytest -m 'not slow and not real_data' --processes $(WORKERS) tests

# The quick tests with the newest TensorFlow that setup.cfg allows, in an environment of their own, without the extras
# that need an older one.
test-newest:
	$(PYTHON) -m venv build/newest
	build/newest/bin/python -m pip install --upgrade pip
	build/newest/bin/python -m pip install -e '.[dev,tfds,hf,datasets,serving,sign,onnx,litert,milvus,report,demo,parse,regions,captions,beam,dask,docs]'
	build/newest/bin/python -m pytest -m 'not slow and not real_data' --processes $(WORKERS) tests

# Damaged files and requests, drawn anew: EXAMPLES for each test.
EXAMPLES ?= 2000
fuzz: $(VENV)/installed-dev
	VSEMB_FUZZ=$(EXAMPLES) $(BIN)/python -m pytest -q -m '' --processes $(WORKERS) tests/fuzz

# A server under load and faults.
MINUTES ?= 30
soak: $(VENV)/installed-dev
	$(BIN)/python -m tests.load --minutes $(MINUTES)

# Before a release: known vulnerabilities of the installed packages. Strict: a package without an answer fails.
audit: $(VENV)/installed-dev
	mkdir -p build && $(BIN)/python -m pip freeze --exclude-editable > build/installed.txt
	$(BIN)/python -m pip_audit --strict --no-deps --disable-pip -r build/installed.txt

# Before a release: the packages that a user gets, in the form of CycloneDX.
sbom: $(VENV)/installed-dev
	$(PYTHON) -m venv build/sbom
	build/sbom/bin/python -m pip install '.[serving]'
	$(BIN)/python -m cyclonedx_py environment build/sbom/bin/python -o build/vsemb.cdx.json

# Kills, full disks, rivals and flipped bits, for 40 minutes of one core; see docs/design/faults.md. QUICK=1 for a few.
faults: $(VENV)/installed-dev
	$(BIN)/python -m tests.faults $(if $(QUICK),--quick)

# Lines and branches that the quick tests execute.
coverage: $(VENV)/installed-dev
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/python -m coverage run -m pytest -q -m 'not slow and not real_data' --processes $(WORKERS)
	$(BIN)/python -m coverage combine -q
	$(BIN)/python -m coverage report --skip-covered

# `make --jobs 2 lint` runs both checks of types at once.
lint: ruff mypy pyright

ruff: $(VENV)/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

mypy: $(VENV)/installed-dev
	$(BIN)/mypy

pyright: $(VENV)/installed-dev
	$(BIN)/basedpyright --pythonpath $(BIN)/python

# The distributions in dist/, and the tag. The version of vsemb/__init__.py must have a section in the changelog.
release: $(VENV)/installed-dev
	version=$$($(BIN)/python -c 'import vsemb; print(vsemb.__version__)') && \
	    { grep -qx "## $$version" CHANGELOG.md || { echo "CHANGELOG.md must have a section '## $$version'."; exit 1; }; } && \
	    rm -rf dist && $(BIN)/python -m build && $(BIN)/python -m twine check --strict dist/* && \
	    $(BIN)/check-wheel-contents dist/*.whl && \
	    git tag -a "v$$version" -m "vsemb $$version"

# Strict: a broken link, an unknown reference or a request to another machine fails.
docs: $(VENV)/installed-dev
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# PyTorch, FAISS and NLTK, which the numbers are ratios to, each in an environment of its own. A peer that cannot be
# installed is a row of the benchmark, so `-` goes on. Reports are kept in benchmarks/. QUICK=1 for small sizes.
PEERS = $(patsubst tests/benchmarks/peers/%.txt,build/peers/%/installed,$(wildcard tests/benchmarks/peers/*.txt))

build/peers/%/installed: tests/benchmarks/peers/%.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install -r $<
	touch $@

benchmark: $(VENV)/installed-dev
	-$(MAKE) --keep-going $(PEERS)
	$(BIN)/python -m tests.benchmarks --history benchmarks $(if $(QUICK),--quick)

# Published figures of pretrained models again, from the network: DATA is Flickr30k, made by `vsemb prepare`.
DATA ?= data/flickr30k
pretrained-check: $(VENV)/installed-dev
	$(BIN)/python -m pipelines.pretrained_check --data $(DATA)

clean:
	rm -rf $(VENV) quickstart build site *.egg-info
