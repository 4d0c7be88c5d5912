# Everything a fresh clone needs, with nothing but Python 3.10 or newer, git and make on the machine.
# `make help` lists the goals. The environment is made once and again when pyproject.toml or constraints.txt change.

VENV ?= .venv
JOBS ?= auto
ARGS ?=
BENCHMARKS ?= $(sort $(wildcard benchmarks/*.py))

PYTHON_IN_VENV := $(VENV)/bin/python
READY := $(VENV)/.ostinato-ready

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test lint lint-style lint-layout lint-types lint-imports format docs bench clean

help:
	@echo "make demo    draw two people, train a swap for a few minutes, show what it learned"
	@echo "make test    run the whole test suite          (ARGS='tests/loop -k trigger' passes arguments to pytest)"
	@echo "make lint    style, types and import directions"
	@echo "make format  let ruff put imports and layout in order"
	@echo "make docs    build the documentation into docs/_build/html"
	@echo "make bench   run the benchmarks                 (BENCHMARKS=benchmarks/loop_overhead.py for one of them)"
	@echo "make setup   only make the environment in $(VENV)   (VENV=/elsewhere, PYTHON=python3.12 to choose)"
	@echo "make clean   remove what was built; $(VENV) and run folders stay"

setup: $(READY)

demo: $(READY)
	"$(VENV)/bin/ostinato" demo $(ARGS)

# One thread a test: the workers already keep every core busy, and exact results need a fixed number of threads.
test: $(READY)
	OMP_NUM_THREADS=1 "$(PYTHON_IN_VENV)" -m pytest -n $(JOBS) --dist worksteal $(ARGS)

# Four goals, so that `make --keep-going lint` runs all of them.
lint: lint-style lint-layout lint-types lint-imports

lint-style: $(READY)
	"$(PYTHON_IN_VENV)" -m ruff check .

lint-layout: $(READY)
	"$(PYTHON_IN_VENV)" -m ruff format --check .

lint-types: $(READY)
	"$(VENV)/bin/pyrefly" check

lint-imports: $(READY)
	"$(VENV)/bin/lint-imports"

format: $(READY)
	"$(PYTHON_IN_VENV)" -m ruff check --fix .
	"$(PYTHON_IN_VENV)" -m ruff format .

docs: $(READY)
	"$(PYTHON_IN_VENV)" -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

bench: $(READY)
	@for script in $(BENCHMARKS); do \
	    echo "== $$script"; "$(PYTHON_IN_VENV)" "$$script" $(ARGS) || exit 1; \
	done

clean:
	rm -rf build dist docs/_build .pytest_cache .ruff_cache .hypothesis .import_linter_cache .pyrefly_cache
	find src tests benchmarks examples docs -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last, so that an installation that was cut off is taken up again.
$(READY): pyproject.toml constraints.txt tools/find_python.sh
	@if [ ! -x "$(PYTHON_IN_VENV)" ]; then \
	    python=$$(sh tools/find_python.sh "$(PYTHON)") || exit 1; \
	    echo "Making an environment in $(VENV) with $$python"; \
	    "$$python" -m venv "$(VENV)" || exit 1; \
	fi
	"$(PYTHON_IN_VENV)" -m pip install --quiet --disable-pip-version-check 'pip>=22'
	"$(PYTHON_IN_VENV)" -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs]'
	@touch "$(READY)"
