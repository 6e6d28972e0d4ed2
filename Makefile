# `make demo` and `make test` each work alone on a fresh clone: they make what they need, once.

.PHONY: help demo test quick fuzz check docs demo-data gpu-matrix gpu-benchmarks clean
.DEFAULT_GOAL := help

ready := .venv/ready
ready_for_tests := .venv/ready-for-tests
pytest := .venv/bin/python -m pytest
# Four files at a time: two cores are what CI has, and a third of the tests wait for servers, stores and clusters. In
# the order of conftest.py, which begins with the slow ones.
together := $(pytest) --numprocesses 4 --dist loadfile --no-loadscope-reorder

help:
	@echo "make demo        fine-tune a small model on this machine and see what it learned (3 minutes)"
	@echo "make test        everything: style, types, all tests"
	@echo "make quick       the tests that take seconds"
	@echo "make fuzz        thousands of damaged files through the command line (CASES=5000 of each kind)"
	@echo "make check       style and types"
	@echo "make docs        build the documentation site: build/site/index.html"
	@echo "make gpu-matrix  every family with every option on a CUDA device: build/gpu-matrix/matrix.md"
	@echo "make gpu-benchmarks  every figure that needs a GPU: build/gpu/summary.md (WHISPER=tiny.en AN4=folder)"
	@echo "make demo-data   make the demo's speech anew (needs espeak-ng)"
	@echo "make clean       remove everything that was made here, .venv too"

demo: $(ready)
	@.venv/bin/attune demo

test: check
	@$(together) -m "not network"

quick: $(ready_for_tests)
	@$(together) -m "not recipe and not gpu and not network"

fuzz: $(ready_for_tests)
	@CASES=$(or $(CASES),5000) $(pytest) tests/fuzz

check: $(ready_for_tests)
	@scripts/check

docs: $(ready_for_tests)
	@.venv/bin/python scripts/make-reference
	@NO_MKDOCS_2_WARNING=1 .venv/bin/mkdocs build --quiet --strict
	@echo "build/site/index.html"

gpu-matrix: $(ready_for_tests)
	@.venv/bin/python benchmarks/gpu_matrix.py build/gpu-matrix

gpu-benchmarks: $(ready_for_tests)
	@.venv/bin/python benchmarks/gpu.py --to build/gpu --minutes 60 $(if $(WHISPER),--whisper $(WHISPER)) $(if $(AN4),--an4 $(AN4))

demo-data: $(ready_for_tests)
	@.venv/bin/python scripts/make-demo

$(ready): pyproject.toml constraints.txt scripts/set-up
	@scripts/set-up
	@touch $@

$(ready_for_tests): pyproject.toml constraints.txt scripts/set-up
	@scripts/set-up dev
	@touch $@ $(ready)

clean:
	rm -rf .venv build dist .mypy_cache .ruff_cache .pytest_cache src/*.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
