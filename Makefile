# Two commands set everything up on a fresh machine: `make demo` and `make test`.

# The cluster's ordinary users must be able to run it, so the system's Python comes before one in somebody's home.
PYTHON ?= $(shell for p in /usr/bin/python3 python3; do \
	"$$p" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 9))' 2>/dev/null && { echo "$$p"; break; }; done)
VENV := .venv
RUN := $(VENV)/bin/python
SHELL_FILES := wrappers/safe-srun .ci/run $(wildcard shellhooks/*.bash shellhooks/*.sh src/handwash/srun/*.sh tests/testbed/programs/*.sh)
MAN_PAGES := $(wildcard man/man1/*.1 man/man5/*.5 man/zh_CN/man1/*.1 man/zh_CN/man5/*.5)

.PHONY: help demo test lint pytest bench fault-matrix messages clean

help:
	@echo "make demo   install into $(VENV) and show safe-srun against plain srun on a leaky script"
	@echo "make test   lint and all tests (a test that lacks a part is skipped, with the reason)"
	@echo "make bench  what handwash costs, as ratios"
	@echo "make fault-matrix  every escapee in every way to end, on real clusters, with srun and with safe-srun (under half an hour)"
	@echo "make clean  remove $(VENV) and all build output"

# An editable install copies the wrapper and the manual pages.
$(VENV)/installed: pyproject.toml hatch_build.py wrappers/safe-srun $(MAN_PAGES) $(wildcard src/handwash/messages/locale/*/LC_MESSAGES/*.po) | require-python
	"$(PYTHON)" -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[test,lint]'
	touch $@

.PHONY: require-python
require-python:
	@test -n "$(PYTHON)" || { echo "No Python 3.9 or newer with venv was found. On Debian: apt-get install python3-venv" >&2; exit 1; }

demo: $(VENV)/installed
	$(RUN) tests/testbed/demo.py

test: lint pytest

# In CI every tool has to be there; elsewhere a missing one is named and passed over.
lint: $(VENV)/installed
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	@if command -v shellcheck >/dev/null; then shellcheck $(SHELL_FILES) && echo "shellcheck: clean"; \
	elif [ -n "$$CI" ]; then echo "shellcheck is missing" >&2; exit 1; else echo "shellcheck is not installed: passed over"; fi
	@if command -v mandoc >/dev/null; then mandoc -Tlint -W warning $(MAN_PAGES) && echo "mandoc: clean"; \
	elif [ -n "$$CI" ]; then echo "mandoc is missing" >&2; exit 1; else echo "mandoc is not installed: passed over"; fi

pytest: $(VENV)/installed
	$(RUN) tests/testbed/halves.py

bench: $(VENV)/installed
	$(RUN) benchmarks/check_cost.py
	$(RUN) benchmarks/beside_others.py
	$(RUN) benchmarks/source_cost.py
	$(RUN) tests/testbed/cluster.py run -- "$(PYTHON)" "$(CURDIR)/benchmarks/safe_srun_cost.py"
	$(RUN) tests/testbed/cluster.py run -- "$(PYTHON)" "$(CURDIR)/benchmarks/safe_srun_load.py"
	$(RUN) benchmarks/hooks.py

fault-matrix: $(VENV)/installed
	$(RUN) tests/faults/matrix.py

messages: $(VENV)/installed
	$(RUN) tools/messages.py update

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
