# Each target sets up what it needs: a virtual environment in .venv with the project and its tools.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Tests run on both cores unless told otherwise: make test WORKERS=0
WORKERS ?= auto

# Compiled files are kept, or every process that a test starts would compile the package anew.
# Slow tests start first, each for itself; modules that share a fixture stay on one core.
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

.PHONY: demo check every fast test soak lint format bench lock clean
.DEFAULT_GOAL := help

.PHONY: help
help: ## Show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: veiltab needs Python 3.11 or newer; $(PYTHON) is older" >&2; \
	    echo "hint: name a newer one, as in: make test PYTHON=python3.12" >&2; exit 1; }
	@echo "Setting up $(VENV) (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(VENV)/.installed ## A whole study on this machine: server, curators, researchers, report
	@$(BIN)/veiltab demo

check: $(VENV)/.installed ## Lint, types, layers and the fast tests: the check before a commit
	@$(MAKE) --no-print-directory --jobs 2 --keep-going lint fast

# Lint and tests run side by side, so that both cores are busy to the end.
test: $(VENV)/.installed programs ## Lint, types, layers and every test
	@$(MAKE) --no-print-directory --jobs 2 --keep-going lint every

# A browser, and what reads PDF files: installed where that is possible, and else said to be missing.
.PHONY: programs pictures
programs: $(VENV)/.installed
	@$(BIN)/python -m tests.support.programs

pictures: $(VENV)/.installed programs ## Draw the pictures of the documentation anew, from real pages
	@$(BIN)/python -m tests.support.pictures

soak: $(VENV)/.installed programs ## The long runs: hundreds of crashes, heavy load, large tables, many examples
	VEILTAB_ALL_EXAMPLES=1 $(BIN)/python -m pytest -n 0 -m 'soak or hypothesis' -rA

# The other half of `make test`, and of `make check`; mypy keeps one core busy for half a minute.
every: $(VENV)/.installed
	$(PYTEST)

fast: $(VENV)/.installed
	VEILTAB_FAST_TESTS=1 $(PYTEST) -q -m 'not slow and not soak'

lint: $(VENV)/.installed ## ruff, mypy --strict and the layer contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed ## Let ruff format the sources and mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.installed ## Speed, as ratios against a reference measured in the same run
	$(BIN)/python -m benchmarks

lock: ## Take the newest versions of everything into constraints.txt
	@rm -rf build/lock && $(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip install --quiet --disable-pip-version-check '.[dev]'
	@build/lock/bin/python -m pip freeze --exclude veiltab | LC_ALL=C sort -f > constraints.txt

clean: ## Remove the virtual environment and every cache
	rm -rf $(VENV) build demo .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
