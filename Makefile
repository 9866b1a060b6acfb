# `make help` lists the targets.

PYTHON ?= python3
BIN := .venv/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# lint, types and docs run at the same time.
MAKEFLAGS += --jobs=2

.DEFAULT_GOAL := help
.PHONY: help demo quick test slow check lint types docs bench prove mutate fuzz soak words stubs blocks picture captures fmt clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: .venv/core ## install the core and see a killed process remembered
	@$(BIN)/standfast demo

quick: check ## every check, then the features on SQLite
	@$(BIN)/python -m pytest -n 2 -q --quick tests/features tests/project/test_project.py

test: check ## every check, then the tests that a merge needs, on SQLite and on a real PostgreSQL
	@$(BIN)/python -m pytest -n 3 -q -m "not slow"

slow: .venv/dev ## the tests that take long: campaigns, storms, agent frameworks
	@$(BIN)/python -m pytest -n 2 -q -m slow

check: lint types docs ## formatter, linter, types, import contracts, the documentation site

lint: .venv/dev ## formatter, linter, import contracts
	@$(BIN)/ruff format --check --quiet . || { echo "make fmt would change the files above"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/lint-imports --no-logo --no-cache

types: .venv/dev ## mypy --strict
	@$(BIN)/mypy --no-error-summary src prove/src examples
	@$(BIN)/mypy --no-error-summary --cache-dir .mypy_cache/aio src/standfast/aio.py  # aio.pyi hides it above

docs: $(BIN)/mkdocs ## build the documentation into site/, without a network
	@report=$$(NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build 2>&1) || { echo "$$report"; exit 1; }

bench: .venv/dev ## ratios against the usual ways, side by side in one run
	@$(BIN)/standfast bench --all $(ARGS)

prove: .venv/dev ## the evaluation: kills, power loss, races, and seeded bugs that must be found
	@$(BIN)/standfast prove $(ARGS)

mutate: .venv/dev ## change 400 places of the code, SQL and schema, one at a time: a test must fail each time
	@$(BIN)/python -m standfast_prove.mutate $(ARGS)

fuzz: .venv/dev ## random input to every interface: values, verbs, files, hooks, commands, requests, broken stores
	@$(BIN)/standfast prove --only inputs $(ARGS)

evaluation: .venv/dev ## docs/internals/evaluation.md from the data in prove/results
	@$(BIN)/standfast prove --report --results prove/results >docs/internals/evaluation.md.part
	@mv docs/internals/evaluation.md.part docs/internals/evaluation.md

soak: .venv/dev ## an hour of everything at once under random kills, then every invariant
	@$(BIN)/standfast prove --only soak --minutes 60 $(ARGS)

words: .venv/dev ## write the counts of words to avoid into tests/words.toml
	@$(BIN)/python -m tests.words

blocks: .venv/dev ## write the real output of commands into the pages that show them (PAGES=docs/start/shell.md)
	@$(BIN)/python -m tests.blocks $(PAGES)

captures: .venv/dev ## write docs/operating/screens.md from what the screens print
	@$(BIN)/python -m tests.captures

picture: .venv/dev ## draw docs/images/demo.svg from what the demo prints
	@$(BIN)/python -m tests.picture

stubs: .venv/dev ## write src/standfast/aio.pyi, the types of the asynchronous handle
	@$(BIN)/python -m tests.aio_stub

fmt: .venv/dev ## format and fix what can be fixed
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

clean: ## remove the environment and every cache
	@rm -rf .venv build dist site .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache .mutate
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What users install: the demo needs nothing else. The lock pins it without adding to it.
.venv/core: pyproject.toml requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "standfast needs Python 3.11 or newer, and '$(PYTHON)' is not: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	  echo "standfast: creating .venv and installing" >&2; $(PYTHON) -m venv --clear .venv; }
	@$(BIN)/python -m pip install -qq --constraint requirements-dev.txt --editable .
	@touch $@

.venv/dev: .venv/core prove/pyproject.toml
	@echo "standfast: installing what the tests need" >&2
	@$(BIN)/python -m pip install -qq --requirement requirements-dev.txt --editable ./prove
	@touch $@

$(BIN)/mkdocs: | .venv/dev
	@$(BIN)/python -m pip install -qq --requirement requirements-dev.txt
