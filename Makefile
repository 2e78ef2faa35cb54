# Two commands do everything: `make demo` (the main job, GPU or not) and `make test`. All make .venv themselves.
# `make redteam` lets every attack and every honest kernel of tests/redteam be judged, which takes a while.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3)
BIN := .venv/bin
GPU_PYTHON ?= python3
JOBS ?= 3
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist worksteal
unexport PYTHONDONTWRITEBYTECODE  # without bytecode, each process of a test compiles the package anew

.PHONY: demo test fast-tests test-slow test-all gpu docs redteam mutants kernels lint clean

demo: .venv/ready
	$(BIN)/tilewright demo

# A few tests take most of the time. They are marked `slow`, and `make test-slow` runs them.
test: .venv/ready
	$(MAKE) --jobs=2 lint fast-tests

fast-tests: .venv/ready
	$(PYTEST) -m "not slow"

test-slow: .venv/ready
	$(PYTEST) -m slow

test-all: test test-slow

# Capture and replay, where a GPU is, with the machine's own Python; what ran is noted among the evidence.
gpu:
	TILEWRIGHT_GPU_RECORD=benchmarks/evidence/gpu-tests.json $(GPU_PYTHON) -m pytest -m gpu tests/gpu/replaying

# The documentation, served on http://localhost:8000.
docs: .venv/ready
	$(BIN)/zensical serve

redteam: .venv/ready
	$(BIN)/python -m tests.redteam.battery --record

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

# Wrong kernels, made from right ones, against the correctness check.
mutants: .venv/ready
	$(BIN)/python -m benchmarks.check.mutants --json benchmarks/evidence/mutants.json.gz

# The replayer's own kernels, which are in the tree.
kernels: .venv/ready
	$(BIN)/python -m tilewright.replay.build

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache
