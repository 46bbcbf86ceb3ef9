# What to do with a checkout.  `make help` lists it.

PYTHON   ?= python3
VENV     ?= .venv
PORT     ?= 8100
TESTOPTS ?=

PY   = $(VENV)/bin/python
PIP  = $(PY) -m pip --quiet --disable-pip-version-check
TEST = $(PY) -m tests.shards

# A test says with `level` where it runs: 1, which it need not say, is
# `make check`, 2 `make test`, 3 `make test-all`; each has those before it.

.PHONY: help venv run lint size check test test-all test-oldest etcd docs docs-build dist dist-check clean

help:
	@echo "make run          serve an example database over ZEO (PORT=$(PORT)), and show it"
	@echo "make lint         run ruff and mypy"
	@echo "make check        the same, and the tests that are short"
	@echo "make test         run the tests"
	@echo "make test-all     run the tests, the long ones too"
	@echo "make test-oldest  run the tests with the oldest dependencies allowed"
	@echo "make etcd         build etcd, for the tests that need one (needs Go)"
	@echo "make size         show how large each room is, and hold its ceiling"
	@echo "make docs         build the documents into docs/_build/html"
	@echo "make dist         build the wheel and the sdist into dist/, and check them"
	@echo "make dist-check   install each in an empty environment, and try it"
	@echo "make venv         set up what lint, test and docs need, at once"
	@echo "make clean        remove what was built, and .venv; the data in var/ stay"
	@echo
	@echo "Each sets up what it needs in a virtual environment first."
	@echo "  VENV=$(VENV)  the directory of the virtual environment"
	@echo "  PYTHON=$(PYTHON)  the Python to make it with (3.10 or newer)"
	@echo "  TESTOPTS=  options for the test runner, for example"
	@echo "             make test TESTOPTS='-m test_pipeline'"

# The package is built once for all of it; nothing is done where all is there.
venv: INSTALLED = $(foreach extra,check docs test,$(VENV)/.installed-$(extra))
venv: $(VENV)/.made
	@$(MAKE) --silent --question $(INSTALLED) || { \
	  echo "Installing all that it needs into $(VENV)"; \
	  $(PIP) install --editable '.[check,docs,test]' && touch $(INSTALLED); }
	@$(PY) -c "from fsyncstorage import core; core.IN_USE == 'C' or print( \
	  'The core was not built (no C compiler?): plain Python is used.')"

run: $(VENV)/.installed-test
	@$(PY) examples/zeo/serve.py --port $(PORT)

lint: $(VENV)/.installed-check
	$(PY) -m ruff check .
	$(PY) -m mypy

check: lint $(VENV)/.installed-test
	$(TEST) $(TESTOPTS)

test: $(VENV)/.installed-test
	$(TEST) --at-level 2 $(TESTOPTS)

test-all: $(VENV)/.installed-test
	$(TEST) --all $(TESTOPTS)

# In an environment of its own, made anew each time.
test-oldest: OLDEST = $(VENV)-oldest
test-oldest: $(VENV)/.made
	@$(PIP) install uv
	rm -rf $(OLDEST)
	$(PY) -m venv $(OLDEST)
	$(PY) -m uv pip install --quiet --python $(OLDEST)/bin/python \
	  --resolution lowest-direct --editable '.[test]'
	touch $(OLDEST)/.made $(OLDEST)/.installed-test
	@$(MAKE) --no-print-directory test VENV=$(OLDEST)

# Its release is in go.mod, the sums of all that it is built from in go.sum.
etcd:
	@command -v go >/dev/null || { \
	  echo "Go is missing: install Go 1.26 or newer (on Debian or Ubuntu:" \
	       "golang-go)." >&2; exit 1; }
	cd tests/quorum/go && GOFLAGS=-mod=readonly CGO_ENABLED=0 \
	  go build -trimpath -o $(CURDIR)/build/etcd/etcd .
	@build/etcd/etcd --version

size:
	@$(PYTHON) -m tests.size

docs: $(VENV)/.installed-docs
	@$(MAKE) --no-print-directory docs-build PY=$(PY)

# The second line: README and CHANGES are the page of the package in an index,
# which accepts plain reStructuredText only.
docs-build:
	$(PY) -m sphinx -q -W --keep-going -b html docs docs/_build/html
	cat README.rst CHANGES.rst | $(PY) -m docutils --writer=null --report=info --halt=info --no-raw --no-file-insertion -
	@echo "The documents are in docs/_build/html."

dist: $(VENV)/.made
	@$(PIP) install build twine
	rm -rf dist
	$(PY) -m build --quiet
	$(PY) -m twine check --strict dist/*

# As a new user would, in an empty directory.
dist-check: dist
	@set -e; for package in $(CURDIR)/dist/*; do \
	  scratch=$$(mktemp -d); trap "rm -rf $$scratch" EXIT; cd $$scratch; \
	  echo "Trying $$package"; \
	  $(PYTHON) -m venv venv; \
	  venv/bin/pip --quiet --disable-pip-version-check install $$package; \
	  venv/bin/fsync-backup --help >help; \
	  venv/bin/fsync-check --help >help; \
	  venv/bin/fsync-info --help >help; \
	  venv/bin/fsync-pack --help >help; \
	  venv/bin/fsync-runzeo --help >help; \
	  venv/bin/python -c "from fsyncstorage.metrics import page; list(map(page.page_file, page.FILES))"; \
	  venv/bin/pip --quiet --disable-pip-version-check install $$package'[commands]'; \
	  venv/bin/fsync-top --help >help; \
	  venv/bin/fsync-time commits --quick; \
	  rm -rf $$scratch; \
	done

# The stamp files say what was installed; they are out of date when the
# metadata of the package change.
$(VENV)/.installed-%: pyproject.toml | $(VENV)/.made
	@echo "Installing fsyncstorage[$*] and what it needs into $(VENV)"
	@$(PIP) install --editable '.[$*]'
	@touch $@

# An environment that is there already is used as it is.  One without pip is
# what a failed try leaves on Debian and Ubuntu, where venv is a package of its
# own.
$(VENV)/.made:
	@$(PY) -m pip --version >/dev/null 2>&1 || { \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	    echo "$(PYTHON) is missing or older than Python 3.10." \
	         "Name another: make PYTHON=python3.12 ..." >&2; exit 1; }; \
	  $(PYTHON) -m venv $(VENV) || { \
	    echo "$(PYTHON) cannot make a virtual environment." \
	         "On Debian or Ubuntu, install python3-venv." >&2; exit 1; }; }
	@touch $@

clean:
	rm -rf .venv .venv-oldest build dist docs/_build src/*.egg-info .hypothesis .tox .mypy_cache .ruff_cache
	find src tests perf docs -name __pycache__ -prune -exec rm -rf {} +
