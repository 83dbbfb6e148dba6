# Entry points of the project; `make help` lists them. The work is done by CMake (see CMakePresets.json) and scripts/.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
PREFIX ?= /usr/local
PROMPT ?= Why is the sky blue? Answer in two sentences.

# A compiler cache, where there is one, makes the second build of the sanitizer and cross stages quick.
ifneq ($(shell command -v ccache),)
export CMAKE_C_COMPILER_LAUNCHER ?= ccache
export CMAKE_CXX_COMPILER_LAUNCHER ?= ccache
endif

.PHONY: help setup build build-all demo demo-model wheel site test lint format bench install clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: ## install the build's packages (Debian 12 and relatives)
	@scripts/setup build

build: setup ## build the command: build/bin/mlxlm
	@cmake --preset release --log-level=WARNING > /dev/null
	@cmake --build build --target bin/mlxlm
	@echo "built build/bin/mlxlm"

build-all: setup ## build everything: command, shared library and tests
	@cmake --preset release --log-level=WARNING > /dev/null
	@cmake --build build

demo-model: ## make the demo model and print its folder, nothing else
	@$(MAKE) build >&2
	@scripts/demo-model

demo: ## build, make the demo model and let it answer PROMPT
	@model=$$($(MAKE) demo-model) && echo "model: $$model" && \
	  build/bin/mlxlm generate --model "$$model" --prompt "$(PROMPT)" --max-tokens 120

wheel: setup ## build a Python wheel that needs no compiler: dist/mlxlm-*.whl
	@scripts/wheel

site: ## write the documentation as a site: build/site
	@scripts/setup test
	@.venv-test/bin/mkdocs build --quiet
	@echo "wrote build/site/index.html"

test: ## run every test: unit, whole-program, parity, aarch64, sanitizers, fuzzing
	@scripts/test

lint: ## check formatting and run clang-tidy
	@scripts/lint

format: ## rewrite the C++ files in the project's format
	@git ls-files '*.cc' '*.h' | xargs clang-format-14 -i

bench: build ## measure against the rivals on the demo model
	@bench/run

install: build ## install the headers, library, command and CMake package below PREFIX
	@cmake --build build --target mlxlm_shared
	@cmake --install build --prefix "$(PREFIX)"

clean: ## delete the build folders and test environments
	@rm -rf build build-* dist .venv-test .venv-bench .venv-wheel rust/target
