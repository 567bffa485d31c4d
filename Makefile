# SPDX-License-Identifier: Apache-2.0
# Every target sets up what it needs in .venv; Python (3.11 to 3.13, for the versions of constraints.txt) and git must be there.
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARGS ?=

# One thread a process: the ranks and the test workers share the cores.
TESTENV := PYTHONSAFEPATH=1 OMP_NUM_THREADS=1
PYTEST := $(TESTENV) $(BIN)/python -m pytest
# Two workers for the tests that start few processes; the slow ones start several ranks each, and run alone.
WORKERS ?= 2

.PHONY: help setup train compare test test-all test-real lint format clean

help:
	@echo "make train      train the embedded model with its optimizations, and say what each did (ARGS='...' adds overrides)"
	@echo "make compare    the same run with and without them, in turn; prints the ratio of step times"
	@echo "make test       the tests that a change is checked with"
	@echo "make test-all   the slow tests as well: several ranks, signals, package builds, README's commands"
	@echo "make test-real  the tests against real packages, each in an environment of its own under .real/ (minutes each to install)"
	@echo "make lint       ruff and mypy"
	@echo "make clean      removes what builds, tests and runs left; keeps $(VENV) and .real"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || python3.11 -m venv $(VENV) || python3 -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt setuptools
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

train: $(READY)
	$(BIN)/turbo-train $(ARGS)

compare: $(READY)
	$(BIN)/python benchmarks/compare.py $(ARGS)

test: $(READY)
	$(PYTEST) -n $(WORKERS) -m "not slow and not real" $(ARGS)

test-all: $(READY)
	$(PYTEST) -m "slow and not real" $(ARGS)

test-real: $(READY)
	$(PYTEST) -m real $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	cd examples/tiny_vla && ../../$(BIN)/mypy --config-file= --disallow-untyped-defs train.py evaluate.py tiny_vla
	cd examples/lightning_tiny_vla && MYPYPATH=../tiny_vla:../.. ../../$(BIN)/mypy --config-file= --disallow-untyped-defs --follow-imports=silent --explicit-package-bases fit.py policy.py

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf build dist *.egg-info outputs multirun .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
