# `make` alone lists what there is. Every target sets up what it needs first.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PACKAGES := catalogue images infra launch playbooks rehearsal
ALL_TESTS := pytest --numprocesses 3 --dist loadfile --no-loadscope-reorder
PYTHON_FILES := $(PACKAGES) tests tools bench $(wildcard fabfile.py)

export PATH := $(CURDIR)/.venv/bin:$(PATH)
export PULUMI_SKIP_UPDATE_CHECK := 1

.PHONY: help setup setup-bench frameworks demo test coverage test-chaos test-frameworks test-frameworks-few azurite see test-azure test-azure-few soak test-environments test-environments-few test-data test-data-few test-health test-health-few test-see test-see-few pictures test-setup test-setup-few check format lock bench-scale bench-fanout bench-launch bench-jobs bench-environments bench-data bench-health bench-see clean

help: ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-20s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Debian packages, .venv, .venv-node and the Pulumi CLI; instant when nothing changed
	@tools/setup

demo: setup ## the main job on a rehearsed 4-node cluster: up, push, jobs, collect, down
	@tools/demo

# Tests wait most of their time, for nodes, limits and ends: more files at once than there are cores. Files come in
# the order of their names, so that the long ones, in tests/e2e, do not come last and alone.
test: azurite check ## the gates and all tests
	$(ALL_TESTS)

coverage: azurite ## all tests with branch coverage, which takes half as much processor time again
	$(ALL_TESTS) --cov --cov-report=term:skip-covered

test-chaos: setup ## jobs whose ranks, nodes, launchers or operators break, on 64 rehearsed nodes: a table of what was seen
	pytest -m 'chaos and not soak' tests/chaos

frameworks: ## environments with the training guide's frameworks and MPIs, Horovod built from source
	@tools/setup --frameworks

test-frameworks: frameworks ## every way the training guide starts a job, by the frameworks themselves on rehearsed nodes
	pytest -m frameworks tests/frameworks

test-frameworks-few: frameworks ## one row of each framework and of another MPI, and the job files: what every change has to pass
	pytest -m for_every_change tests/frameworks

see: ## Prometheus and its node exporter, which the metrics are compared with; Chromium, which opens the reports
	@tools/setup --see

azurite: ## Microsoft's storage emulator, the rehearsed Azure's blob endpoint; a registry and a builder of container images
	@tools/setup --azure

test-azure: azurite ## clusters of every form on the rehearsed Azure: request bodies, policies, recipes, scaling, money, faults
	pytest -m 'not soak' --numprocesses 3 --dist loadfile --no-loadscope-reorder tests/azure

test-azure-few: azurite ## of these, one or a few of each kind
	pytest -m 'azure and for_every_change' --numprocesses 3 --dist loadfile --no-loadscope-reorder tests/azure

soak: setup ## 500 jobs on one head, then a hundred clusters made and removed in a row: nothing may be left of any
	pytest -m soak tests/chaos tests/azure

# Tests wait most of their time here, too; each file, or class, has nodes of its own.
test-environments: azurite ## jobs that bring their packages and images to rehearsed nodes without any
	pytest -m environments --numprocesses 3 --dist loadscope tests/environments tests/chaos

test-environments-few: azurite ## of these, one of each kind of environment, runtime and end
	pytest -m 'environments and for_every_change' --numprocesses 3 --dist loadscope tests/environments tests/chaos

# Each file has a rehearsed Azure of its own.
test-data: azurite ## data in storage: addresses, staging, uploads, and what breaks meanwhile, on rehearsed nodes
	pytest -m data --numprocesses 3 --dist loadfile --no-loadscope-reorder tests/data

test-data-few: azurite ## of these, one of each kind
	pytest -m 'data and for_every_change' --numprocesses 3 --dist loadfile --no-loadscope-reorder tests/data

test-health: setup ## devices of rehearsed nodes that break: looks, the gate before jobs, probes, checks, replacement
	pytest -m health tests/health

test-health-few: setup ## of these, one of each kind
	pytest -m 'health and for_every_change' tests/health

test-see: see ## what operators see of running jobs: top, metrics, reports, scaling, hanging jobs, on rehearsed nodes
	pytest -m see tests/see

test-see-few: see ## of these, one of each kind
	pytest -m 'see and for_every_change' tests/see

pictures: see ## docs/images: what operators see of jobs that ran on rehearsed nodes
	WRITE_PICTURES=1 pytest -m see -k picture tests/see

test-setup: azurite ## every set-up in a Debian root that has git, make and python3 alone, killed at some steps and completed
	pytest -m setup tests/setup

test-setup-few: azurite ## of these, `make setup` alone and not killed
	pytest -m for_every_change tests/setup

check: setup ## formatting, lint and types
	ruff format --check .
	ruff check .
	mypy

format: setup ## fix formatting, and what lint can fix by itself
	ruff format .
	ruff check --fix .

# Kept versions stay unless the .in file asks otherwise; each lock holds the one it builds on to its versions.
lock: setup ## requirements/*.txt from requirements/*.in, with hashes
	tools/lock

setup-bench:
	@tools/setup --bench

bench-scale: setup-bench ## up and down of 1 to 300 rehearsed nodes: table, JSON and chart in bench/results/
	python -m bench.scale

bench-fanout: setup-bench ## one command on 64 and 300 nodes, beside asyncssh, Fabric, pdsh, clush and ansible
	python -m bench.fanout

bench-launch: setup-bench ## launch overhead and push, beside plain mpirun and parallel rsync
	python -m bench.launch

bench-jobs: setup-bench ## start, cancel and failure of jobs on 64 and 300 nodes, beside mpirun and torchrun
	python -m bench.jobs

bench-environments: setup ## packages made once and spread to 1 to 64 nodes, beside every node's own install
	python -m bench.environments

bench-data: setup ## data on 1 to 64 nodes: bytes that leave storage, time behind a slow link, beside other ways
	python -m bench.data
	python -m bench.data_uploads

bench-health: setup ## what a look costs a launch of 8 and 64 nodes, and how soon a slow node among them is found
	python -m bench.health

bench-see: setup ## what the sampling of a job costs a node, how fresh 300 nodes' samples and fab top are, how soon fab debug answers
	python -m bench.see
	python -m bench.see_top
	python -m bench.see_debug

clean: ## what setup, tests and runs have left here; the caches in ~/.cache stay
	@if [ -e .ranklift/rehearsal/rehearsal.json ]; then fab rehearsal.stop; fi
	rm -rf .venv .venv-node .venv-bench .venv-azurite .venv-frameworks .venv-openmpi .venv-mpich .venv-impi .venv-horovod \
		.venv-oracles .ranklift .coverage* .hypothesis .mypy_cache .pytest_cache .ruff_cache build *.egg-info
	find $(PYTHON_FILES) -name __pycache__ -prune -exec rm -rf {} +
