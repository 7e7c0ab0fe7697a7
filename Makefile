# make sweep   measure the quickstart frontier on this machine
# make test    everything a change must pass: lint and all tests
# make lint    formatting, types, import contracts and the page's scripts; under a minute
# make unit    the unit and contract tests; a few minutes
# make chaos   break a real cluster a hundred times, and write what came of it into docs/reliability.md
# make audit   known vulnerabilities of the pinned packages; asks PyPI, so it needs the network
# make docs    build the documentation as a site; fails on a link that leads nowhere
# make style   how heavy the project is: lines, functions, constants, repeated names
# make schema  regenerate the config's JSON schema, its reference page, the table's schema page and
#              the rows of configs/all_techniques.yaml that are not written by hand
# make clean   remove what these targets made

PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 3
# Three workers on two cores, because tests of a cluster mostly wait. A file's tests stay together
# and in their order, because they share what takes long to start.
# The slowest tests are listed at the end.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder \
	--durations 20 --durations-min 10
SOURCES := orchestrator jobs tests docs
SCRIPTS := orchestrator/reporting/html/scripts

.PHONY: sweep test tests lint unit audit chaos docs style schema clean
.DEFAULT_GOAL := sweep

sweep: .venv/.installed
	$(BIN)/python -m orchestrator.sweep configs/quickstart.yaml

test: .venv/.installed-test
	$(MAKE) --jobs 2 --output-sync lint tests

tests: .venv/.installed-test
	$(PYTEST)

lint: .venv/.installed-test
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/oxlint --deny-warnings $(SCRIPTS)

unit: .venv/.installed-test
	$(PYTEST) tests/unit tests/contracts

# Strict: a package that the service does not know is a failure, not a pass.
audit: .venv/.installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[audit]'
	$(BIN)/pip-audit --strict --no-deps --disable-pip --requirement constraints.txt

chaos: .venv/.installed-test
	$(BIN)/python -m tests.chaos --faults 100 --seed 1 --page docs/reliability.md

docs: .venv/.installed
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

style: .venv/.installed-test
	$(BIN)/python -m tests.benchmarks.style

schema: .venv/.installed
	$(BIN)/python -m orchestrator.planning.keys.schema > configs/schema.json
	$(BIN)/python -m orchestrator.reporting.reference.config_reference > docs/configuration.md
	$(BIN)/python -m orchestrator.reporting.reference.schema_page > docs/schema.md
	$(BIN)/python -m tests.support.all_techniques

clean:
	rm -rf .venv build dist runs site *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

# torch is pinned together with everything else: alone, pip would take a build of gigabytes.
.venv/.installed: pyproject.toml constraints.txt
	@echo "installing into .venv: some minutes, in which pip is quiet"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[full]'
	touch $@

.venv/.installed-test: pyproject.toml constraints.txt
	@echo "installing into .venv: some minutes, in which pip is quiet"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[test]'
	touch $@ .venv/.installed
