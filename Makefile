# Two commands on a fresh machine: `make demo` and `make test`. Everything is installed into .venv, once.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
WORKERS ?= 8
# More workers than cores: the official clients spend most of their time asleep. Each worker reads all tests first, which
# takes some seconds of CPU.

# Hundreds of processes are started by tests: without this, where it is set, each of them compiles the package anew.
test compiled-tests test-durations test-all test-long test-entities test-proxy seeds: export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup demo test compiled-tests test-durations test-all test-long test-entities test-cluster test-stream test-ledger test-wheel test-sdk-versions test-languages test-proxy test-console test-alerts proxy-conditions test-search mutants conformance conformance-proxy pictures docs pages simulate seeds package lint bench attack chaos-syphon chaos-proxy soak azure-live clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## make .venv with everything that is needed; again only when pyproject.toml changed

demo: setup ## kill a namespace in the middle of sending, see sends go on and nothing lost
	@mkdir -p build && $(BIN)/twinbus demo --report build/demo.html

test: setup ## lint, then the tests that together take some minutes
	@$(MAKE) --no-print-directory -j2 lint compiled-tests
	@$(BIN)/pytest -n $(WORKERS) --dist loadscope  # who runs what: tests/conftest.py

# Beside the linters, on the other core: else every worker compiles all tests, with their assertions, for itself.
compiled-tests: setup
	@$(BIN)/pytest --collect-only -qq >/dev/null

test-durations: setup ## the same tests, and where their time went: seconds of CPU and of waiting by folder, file and test
	@$(BIN)/pytest -n $(WORKERS) --dist loadscope --cpu

test-all: lint ## the same with every seed of the simulations, and all suites that take longer; before a release
	@TWINBUS_SEEDS=all TWINBUS_EXAMPLES=all $(BIN)/pytest -n $(WORKERS) --dist loadscope -m "long or not long"
	@$(MAKE) --no-print-directory test-entities test-cluster test-stream test-ledger test-wheel test-sdk-versions test-languages test-console

test-long: setup ## tests that take long for what they add: the other client, further cases, every page and command
	@$(BIN)/pytest -n $(WORKERS) --dist loadscope -m long

test-entities: setup ## pairing with every kind of entity, on threads and on tasks
	@$(BIN)/pytest -n $(WORKERS) --dist worksteal -m "entities or not entities" tests/interop/test_pair_entities.py

test-cluster: setup ## Spark clusters of two and of four workers on this machine: drains with executors, workers and drivers killed
	@$(BIN)/pytest -m cluster tests/cluster

test-stream: setup ## a stream consumes 100,000 messages on a Spark cluster while drivers, executors and Python workers are killed
	@$(BIN)/pytest -s -m stream tests/cluster

test-ledger: setup ## a ledger of a million events with everything planted that can go wrong, many runs over parts of one, random ones on every kind of storage
	@command -v mvn >/dev/null || $(MAKE) --no-print-directory -s debian PACKAGE=maven
	@$(BIN)/pytest -m large tests/spark

test-wheel: setup ## build the wheel, install it into an empty virtualenv, and follow the tutorial there
	@$(BIN)/pytest -m wheel tests/packaging

test-sdk-versions: setup ## the paired client with the oldest and the newest supported version of the official SDK, from the package index
	@$(BIN)/pytest -m sdk_versions tests/packaging/test_sdk_versions.py

test-languages: setup ## the official clients of Node, Go, Java and Python, as far as they are installed, through outages behind a proxy
	@$(BIN)/pytest -m languages tests/languages

test-proxy: setup ## tests of namespaces once more through a proxy, and what `make conformance-proxy` does
	@TWINBUS_THROUGH_PROXY=1 $(BIN)/pytest -n $(WORKERS) --dist loadscope -m "long or not long" tests/interop
	@$(MAKE) --no-print-directory conformance-proxy

test-console: setup ## the console's pages in Chromium: an outage watched and steered, attacks, a crowd, axe-core
	@$(BIN)/pytest -m console tests/console

test-alerts: ## check the alert rules of deploy/prometheus, and when they fire, with promtool (Debian: prometheus)
	@command -v promtool >/dev/null || $(MAKE) --no-print-directory -s debian PACKAGE=prometheus
	@cd deploy/prometheus && promtool check rules twinbus-alerts.yml && promtool test rules twinbus-alerts-test.yml

proxy-conditions: setup ## see which refusals the official clients retry; writes docs/reference/proxy-conditions.md (ONLY="go java": some)
	@PYTHONPATH=tests:tests/support $(BIN)/python -m languages.conditions $(ONLY)

test-search: setup ## tests of properties with examples that nobody has tried yet, many of them; keeps what fails in .hypothesis
	@TWINBUS_EXAMPLES=search $(BIN)/pytest -n $(WORKERS) -m hypothesis

mutants: setup ## break each clause a little and see that its tests notice; minutes (ONLY=P16,A9.1: some; JOBS=2: at a time)
	@PYTHONPATH=tests/support $(BIN)/python tests/mutants/run.py $(if $(ONLY),--only $(ONLY)) $(if $(JOBS),--jobs $(JOBS))

pictures: setup ## pictures for the documents: of the demo in a terminal (needs tmux), and of the console in Chromium
	@$(BIN)/python docs/.site/demo_pictures.py
	@$(BIN)/python docs/.site/console_pictures.py

docs: setup ## the documentation as a site, in build/site; any warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

pages: setup ## write what is made from the code: docs/reference, tables on other pages, the client for threads
	@export PYTHONPATH=tests; for page in pairing_pages failover_page command_pages; do \
	  $(BIN)/python -m pages.$$page docs/reference || exit 1; done; \
	  mkdir -p build && $(BIN)/python -m pages.ledger_page > build/ledger.md && mv build/ledger.md docs/reference/ledger.md && \
	  $(BIN)/python -m pages.rooms ARCHITECTURE.md && $(BIN)/python -m pages.proxy_figures docs/how-to/any-language.md && \
	  $(BIN)/python -m pages.spark_figures docs && \
	  $(BIN)/python -m pages.sync_client

simulate: setup ## simulate with a seed and see its trace (ARGS="--pair --first 17 --seeds 1 --trace"; no ARGS: help)
	@PYTHONPATH=tests $(BIN)/python -m sim $(or $(ARGS),--help)

seeds: setup ## write down which seed finds each planted bug (tests/sim/found_at.json), after simulations have changed
	@echo '{}' > tests/sim/found_at.json
	@TWINBUS_SEEDS=learn $(BIN)/pytest -n $(WORKERS) -m "long or not long" tests/sim

package: setup ## wheel and source archive, in dist
	@rm -rf dist && $(BIN)/python -m hatchling build -d dist

conformance: setup ## official clients in four languages against our server; writes docs/sdk-suite.md, docs/conformance-clients.md
	@PYTHONPATH=tests:tests/support $(BIN)/python -m sdk_suite.run
	@PYTHONPATH=tests:tests/support $(BIN)/python -m conformance_clients.run

conformance-proxy: setup ## the same clients through a proxy in front of a pair; writes their columns of these pages
	@PYTHONPATH=tests:tests/support $(BIN)/python -m sdk_suite.run --through-proxy
	@PYTHONPATH=tests:tests/support $(BIN)/python -m conformance_clients.run --through-proxy

lint: setup ## ruff and mypy --strict over src, tests and bench; the client for threads is up to date
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "lint: run $(BIN)/ruff format ." >&2; exit 1; }
	@PYTHONPATH=tests $(BIN)/python -m pages.sync_client --check
	@$(BIN)/mypy --no-error-summary src tests bench

bench: setup ## measure, beside RabbitMQ; prints a table and appends to bench/results (QUICK=1: two minutes)
	@$(BIN)/python -m bench.run $(if $(QUICK),--quick)

chaos-syphon: setup ## kill the syphon and both namespaces RUNS=50 times, at random moments, and count (SEED=1: the same again)
	@$(BIN)/python -m bench.chaos_syphon --runs $(or $(RUNS),50) $(if $(SEED),--seed $(SEED))

chaos-proxy: setup ## kill the proxy under load RUNS=50 times, without a spool and with one (then namespaces too), and count (SEED=1)
	@$(BIN)/python -m bench.chaos_proxy --runs $(or $(RUNS),50) $(if $(SEED),--seed $(SEED))

attack: setup ## try to take a namespace down in every way we know; writes the table of docs/security.md (ONLY="a b": some rows)
	@PYTHONPATH=tests/support $(BIN)/python tests/attack/run_attacks.py $(if $(ONLY),--only $(ONLY)) --write docs/security.md

soak: setup ## 50 threads and 50 tasks send through random outages, and everything is counted (MINUTES=10)
	@$(BIN)/python -m bench.soak --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

azure-live: setup ## try pairing on TWINBUS_LIVE_PRIMARY and TWINBUS_LIVE_SECONDARY; says the cost first (YES=1: no question)
	@YES=$(YES) $(BIN)/python tests/azure_live/run.py

clean: ## remove .venv, caches and builds
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	@find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp is written last: an installation that was interrupted is made again.
$(INSTALLED): pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "setup: needs Python 3.11 or newer: apt-get install python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "setup: needs Python 3.11 or newer, $(PYTHON) is $$($(PYTHON) -V); choose with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || $(MAKE) --no-print-directory -s debian PACKAGE=python3-venv
	@command -v cc >/dev/null || $(MAKE) --no-print-directory -s debian PACKAGE=gcc
	@$(PYTHON) -c '$(HAS_HEADERS)' || $(MAKE) --no-print-directory -s debian PACKAGE=python3-dev
	@command -v java >/dev/null || $(MAKE) --no-print-directory -s debian PACKAGE=openjdk-17-jre-headless
	@command -v chromium >/dev/null || $(MAKE) --no-print-directory -s debian PACKAGE=chromium
	@echo "setup: installing into .venv"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,spark,connect]'
	@touch $@

# A test peer (Qpid Proton) comes as source: it wants a compiler and the Python headers.
HAS_HEADERS := import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))

.PHONY: debian
debian:
	@command -v apt-get >/dev/null || { echo "setup: $(PACKAGE) is missing and this is no Debian: install it" >&2; exit 1; }
	@as=; [ "$$(id -u)" = 0 ] || as="sudo -n"; \
	  apt="$$as apt-get -o Acquire::Retries=5 -qq"; { $$apt update && $$apt install -y $(PACKAGE); } >/dev/null 2>&1 || \
	  { echo "setup: $(PACKAGE) is missing: sudo apt-get install $(PACKAGE)" >&2; exit 1; }
