# Everything runs in .venv, made on first use. With PY=python3 an existing environment is used as it is.
VENV ?= .venv
PYTHON ?= python3
SHARD ?= 1/1
# Processes that test. Each takes neighbouring tests, which share fixtures, then helps the others.
JOBS ?= auto
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
export TVM_CUDA_COMPILE_MODE := nvcc

ifdef PY
BASE :=
DEV :=
else
PY := $(VENV)/bin/python
BASE := $(VENV)/.base
DEV := $(VENV)/.dev
endif

.DEFAULT_GOAL := help
.PHONY: help demo test quick verify-all lint types gpu package wheel clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 20

demo: $(BASE)  ## pipeline a GEMM, explain it, show its CUDA, check it without a GPU
	@$(PY) -m pipeliner demo

# numpy's threads would be as many again for each process; bytecode is kept, because tests start
# many processes, each of which would compile the package anew.
test quick: export OPENBLAS_NUM_THREADS := 1
test quick: export PYTHONDONTWRITEBYTECODE :=
test: $(DEV)  ## all tests that this machine can run
	$(PY) -m pytest -q -n $(JOBS) --dist worksteal

quick: $(DEV)  ## passes, cost model, choice and emulator: what takes no nvcc and no three seconds
	$(PY) -m pytest -q -n $(JOBS) --dist worksteal -m "not nvcc and not slow" tests/passes tests/cost tests/emulator

verify-all: $(DEV)  ## all cases of tests, deep tests, all options, 10^4 random programs of each kind: hours; SHARD=2/8 does a part
	$(PY) -m pytest -q -n $(JOBS) --dist worksteal -m "part or deep" --all-cases --shard $(SHARD)
	$(PY) -m tests.verify.product --shard $(SHARD)
	$(PY) -m tests.verify.random_trials --shard $(SHARD)
	$(PY) -m tests.verify.edited_plans --shard $(SHARD)
	$(PY) -m tests.verify.records_stress

gpu: $(DEV)  ## the tests that need an NVIDIA GPU
	$(PY) -m pytest -q -m gpu

lint: $(DEV)  ## style and format
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .

types: $(DEV)  ## mypy --strict
	$(PY) -m mypy

package: $(DEV)  ## sdist and wheel, built, installed in a fresh environment and run there
	$(PY) -m tests.fresh_install

wheel: $(DEV)  ## dist/*.whl
	$(PY) -m pip wheel -qq --no-deps -w dist .

clean:  ## remove .venv and what was built
	rm -rf $(VENV) build dist *.egg-info

$(VENV)/bin/python:
	@echo "making $(VENV) (TVM is a download of 100 MB)" >&2
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.base: pyproject.toml | $(VENV)/bin/python
	@$(VENV)/bin/python -m pip install -qq -e '.[cli]'
	@touch $@

$(VENV)/.dev: $(VENV)/.base
	@$(VENV)/bin/python -m pip install -qq -e '.[cli,test,dev]'
	@touch $@
