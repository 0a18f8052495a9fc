# One command each; all of them set up .venv first if need be.
#   make demo    the main job on example data        make test   checks and tests, on two cores
#   make check   linter, formatter, type checker     make quick  checks and the short tests, without Spark and sockets
#   make bench   every benchmark, ratios and JSON    make soak   long tests
#   make clean   remove what these made
PYTHON ?= $(shell scripts/find-python)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test quick check soak bench clean setup
.DELETE_ON_ERROR:

# Every test worker, broker and Spark worker would compile the source again.
unexport PYTHONDONTWRITEBYTECODE

demo: $(READY)
	@$(BIN)/thatch demo --all

# The type checker works beside the tests, which leave a core to it while brokers and Spark are waited for.
test: $(READY)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy > $(VENV)/mypy.log 2>&1 & types=$$!; \
	    $(BIN)/python -m pytest -n 2; tests=$$?; \
	    wait $$types; checked=$$?; cat $(VENV)/mypy.log; [ $$checked -eq 0 ] && exit $$tests; exit 1

quick: check
	@$(BIN)/python -m pytest -n 2 --quick

check: $(READY)
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

soak: $(READY)
	@THATCH_SOAK=1 $(BIN)/python -m pytest

bench: $(READY)
	@for file in $$(grep -l '^if __name__' benchmarks/*.py | grep -v _peers); do \
	    $(BIN)/python -m benchmarks.$$(basename $$file .py) || exit 1; done

setup: $(READY)

# Installed again when the dependencies change, and only then. PySpark is 450 MB: pip's cache keeps it.
$(READY): pyproject.toml constraints.txt
	@scripts/check-tools "$(PYTHON)"
	@echo "Setting up $(VENV): about 800 MB, some minutes the first time; then a minute to compile"
	@test -x $(BIN)/python || "$(PYTHON)" -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev,bench,demo]'
	@$(BIN)/thatch warm
	@touch $@

clean:
	rm -rf $(VENV) build results .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
