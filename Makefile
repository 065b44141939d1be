# Run `make` or `make help` for the list of targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
JOBS ?= 2
REPORT_ARGS ?=
FIGURES_ARGS ?=
LAB_ARGS ?=
PYTEST_ARGS ?=
TRAIN_ARGS ?=
BENCH_ARGS ?=
TORCHRUN ?=

ALLOW_ROOT := $(shell test "$$(id -u)" = 0 && { test -e /.dockerenv || test -e /run/.containerenv || test -n "$$container"; } && echo --allow-root)

# Two processes on two cores: one thread each is faster than two threads that fight.
export OMP_NUM_THREADS ?= 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The debugger's note about frozen modules and Jupyter's about its old folders say nothing to a reader of the report.
export PYDEVD_DISABLE_FILE_VALIDATION := 1
export JUPYTER_PLATFORM_DIRS := 1

.PHONY: help setup report figures lab train test test-gpu chromium lint format typecheck verify bench clean distclean

help: ## show this list
	@echo "usage: make TARGET"
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 14

setup: $(STAMP) ## create the environment in .venv (only when requirements.txt or pyproject.toml changed)

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) was not found; install Python 3.11 or newer, or name one: make setup PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; v = "%d.%d" % sys.version_info[:2]; sys.exit(0 if sys.version_info >= (3, 11) else "error: Python 3.11 or newer is needed, but $(PYTHON) is Python " + v + "; name a newer one: make setup PYTHON=/path/to/python3.11")'
	@$(PYTHON) -m venv $(VENV) || { echo "error: $(PYTHON) cannot create a virtual environment; install its venv module (Debian: apt install python3-venv)" >&2; rm -rf $(VENV); exit 2; }

$(STAMP): requirements.txt pyproject.toml | $(BIN)/python
	@echo "Installing the pinned packages into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install -qq -r requirements.txt
	@$(BIN)/python -m pip install -qq --no-deps -e .
	@mkdir -p $(VENV)/share/jupyter/lab/settings
	@echo '{"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}' \
		> $(VENV)/share/jupyter/lab/settings/overrides.json
	@touch $@

report: $(STAMP) ## run every notebook; write report/index.html, report/report.pdf and figures/
	@$(BIN)/python -m analysis report --jobs $(JOBS) $(REPORT_ARGS)

figures: $(STAMP) ## draw every figure again by running its notebook
	@$(BIN)/python -m analysis figures --fresh $(FIGURES_ARGS)

# One process that a reader waits for: it takes every core, unless OMP_NUM_THREADS was set outside.
# A container's user is root, which JupyterLab refuses unless told; elsewhere it stays refused.
lab: $(STAMP) ## open the notebooks in JupyterLab (without a browser: make lab LAB_ARGS="--no-browser --port 9000")
	@$(if $(filter file,$(origin OMP_NUM_THREADS)),env -u OMP_NUM_THREADS )$(BIN)/jupyter lab $(ALLOW_ROOT) $(LAB_ARGS) --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate --notebook-dir=notebooks

train: $(STAMP) ## train a recipe: make train RECIPE=vittt-baseline TRAIN_ARGS="--output my-run --set steps=300 --set data.images=5000"
	@test -n "$(RECIPE)" || { echo "error: expected a recipe; run make train RECIPE=name, or see the names with: $(BIN)/ttt-analysis recipes" >&2; exit 2; }
	@if [ -n "$(TORCHRUN)" ]; then $(BIN)/torchrun $(TORCHRUN) -m analysis train $(RECIPE) $(TRAIN_ARGS); else $(BIN)/python -m analysis train $(RECIPE) $(TRAIN_ARGS); fi

test: $(STAMP) chromium ## run the tests on the CPU (some of them: make test PYTEST_ARGS="-k inspect")
	@$(BIN)/python -m pytest -n $(JOBS) -q -m "not gpu" $(PYTEST_ARGS)

test-gpu: $(STAMP) ## run the tests that need a CUDA device
	@$(BIN)/python -m pytest -q -m gpu $(PYTEST_ARGS)

# Only the browser tests need it. Without it they skip, except under CI=true, where a skip would hide a broken page.
chromium:
	@if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then \
		if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
			echo "Installing Chromium for the browser tests"; \
			{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } >/dev/null 2>&1 \
				|| echo "Chromium could not be installed; the browser tests cannot run" >&2; \
		else echo "Chromium is missing; the browser tests will be skipped" >&2; fi; fi

lint: $(STAMP) ## check style and formatting
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

format: $(STAMP) ## repair style and formatting
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

typecheck: $(STAMP) ## check types strictly where a wrong type is a wrong result
	@$(BIN)/mypy

verify: $(STAMP) ## check the paper's theorems in float64
	@$(BIN)/python -m analysis verify

bench: $(STAMP) ## measure speed after correctness: the kernels on a CUDA device, else the backends (on CUDA: make bench BENCH_ARGS="--suite ladder")
	@$(BIN)/python -m analysis bench $(BENCH_ARGS)

clean: ## remove generated output (keeps .venv, checkpoints, tracked records, and the measurements in .cache/records)
	@git clean -fdXq figures report
	@rm -rf .cache/executed .cache/run-* .pytest_cache .mypy_cache .ruff_cache build *.egg-info
	@find . \( -name __pycache__ -o -name .ipynb_checkpoints \) -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean ## also remove .cache with every measurement made here, and .venv
	@rm -rf .cache $(VENV)
