# Each target sets up what it needs, once, in a virtual environment of its own under .make/.
# PYTHON is any Python from 3.11 on.

PYTHON ?= python3
RANKMUSTER = .make/run/bin/rankmuster
PYTEST_ARGS ?=

.PHONY: demo test test-engines lint types docs bench fuzz soak clean

demo: .make/run/installed  ## muster eight processes, then eight of which one holds another program
	sh examples/demo.sh $(RANKMUSTER)

test: .make/test/installed  ## everything that needs no engine
	.make/test/bin/python -m pytest -m "not engines and not nightly" $(PYTEST_ARGS)

test-engines: .make/engines/installed  ## what needs jax, MPI or torch
	.make/engines/bin/python -m pytest -m "engines and not nightly" $(PYTEST_ARGS)

lint: .make/dev/installed
	.make/dev/bin/ruff format --check .
	.make/dev/bin/ruff check .

types: .make/dev/installed
	.make/dev/bin/mypy

docs: .make/test/installed  ## write anew what the pages show
	.make/test/bin/python tests/test_docs.py

bench: .make/bench/installed  ## ours and its peers by turns, one ratio a row
	.make/bench/bin/python benchmarks/run.py $(BENCH_ARGS)

fuzz: .make/test/installed  ## the long searches
	HYPOTHESIS_PROFILE=nightly .make/test/bin/python -m pytest -m nightly $(PYTEST_ARGS)

soak: .make/test/installed  ## hundreds of bring-ups in one process, then the tests of real processes, over and over
	.make/test/bin/python -m pytest -q -m nightly tests/session/test_soak.py $(PYTEST_ARGS)
	for round in 1 2 3 4 5 6 7 8 9 10; do \
	  .make/test/bin/python -m pytest -q tests/transport tests/session tests/cli $(PYTEST_ARGS) || exit 1; \
	done

clean:
	rm -rf .make build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# .make/NAME/installed: a virtual environment with the project and its extras for NAME.
.make/run/installed: EXTRAS =
.make/test/installed: EXTRAS = [test]
.make/engines/installed: EXTRAS = [test,engines]
.make/dev/installed: EXTRAS = [test,dev]
.make/bench/installed: EXTRAS = [bench]
.make/%/installed: pyproject.toml
	rm -rf .make/$*
	$(PYTHON) -m venv .make/$*
	.make/$*/bin/python -m pip install --quiet --disable-pip-version-check --editable '.$(EXTRAS)'
	touch $@
