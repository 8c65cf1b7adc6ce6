# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
BIN := .venv/bin
STORE ?= ./ace-store
# Pins known to work together. Only names and versions: indexes are the machine's own.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt

.PHONY: demo test test-all lint bench clean

# Two processes: Ray tests wait a lot. Files stay together, for their fixtures' sake, and in order:
# the long ones are not the last.
PYTEST := $(BIN)/pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

# Installed once per change of the requirements; the stamps keep later calls instant.
.venv/base: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e .
	@touch $@

.venv/dev: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e '.[dev]'
	@touch .venv/base $@

.venv/bench: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) -e '.[bench]'
	@touch .venv/base $@

# The S3 endpoint of the tests; apart, for its requirements contradict ours.
.venv-moto/ready: tools/moto-requirements.txt
	$(PYTHON) -m venv .venv-moto
	.venv-moto/bin/python -m pip install --disable-pip-version-check --quiet -r $<
	@touch $@

demo: .venv/base
	$(BIN)/ace-ray demo --store $(STORE)

lint: .venv/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

test: lint .venv-moto/ready
	$(PYTEST)

test-all: lint .venv-moto/ready
	$(PYTEST) -m ''

bench: .venv/bench
	$(BIN)/python -m bench.calibration
	$(BIN)/python -m bench.corruptions
	$(BIN)/python -m bench.extraction
	$(BIN)/python -m bench.sweep
	$(BIN)/python -m bench.scale

clean:
	rm -rf .venv .venv-moto build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
