# Everything here makes the .venv it needs; python3 (3.11 or later) and make are enough.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help run test check e2e bench bench-reference mutations soak clean

help: ## Show what can be made
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed; set PYTHON=...")'
	@echo "Installing into $(VENV) (once; about half a minute)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

run: $(STAMP) ## Start a cluster with the autoscaler in it and run the tutorial (in a terminal: stay up)
	@if [ -t 1 ]; then exec $(BIN)/karpenter up; else exec $(BIN)/karpenter up --script tutorial --exit-when-settled; fi

test: $(STAMP) ## Run the fast tests
	@$(BIN)/pytest -n 2 --dist worksteal

check: $(STAMP) ## Types, style, and the doors between rooms
	@$(BIN)/ruff check src tests benchmarks tools
	@$(BIN)/ruff format --check src tests benchmarks tools
	@$(BIN)/mypy
	@$(BIN)/lint-imports

e2e: $(STAMP) ## Build a real control plane (Go) and run the end-to-end suite on it
	@$(BIN)/pytest -m e2e tests/e2e -v

bench: $(STAMP) ## Print every benchmark's table
	@for script in benchmarks/*.py; do echo "== $$script"; PYTHONPATH=src:. $(BIN)/python $$script || exit 1; done

bench-reference: $(STAMP) ## Build the original's scheduler (Go), run it and ours on the same scenarios (ONLY=name picks)
	@PYTHONPATH=src:. $(BIN)/python benchmarks/against_reference.py --full $(if $(ONLY),--only "$(ONLY)")

mutations: $(STAMP) ## Break the deciding code of ROOM (scheduling, disruption) in COUNT (20) places that SEED (1) picks
	@PYTHONPATH=src:. $(BIN)/python tools/mutations.py --room $(or $(ROOM),scheduling) \
	    --seed $(or $(SEED),1) --count $(or $(COUNT),20)

soak: $(STAMP) ## The slow checks at their full counts
	@KARPENTER_SOAK=1 $(BIN)/pytest -m slow tests -v

clean: ## Remove what was installed and cached here
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
