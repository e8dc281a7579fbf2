# make demo and make test are all a newcomer needs; .ci/run calls make lint and make test, nothing else.

PORT    ?= 10911
# One environment for each Python that is named: none takes the place of another's.
ifndef VENV
VENV    := .venv$(if $(PYTHON),-$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
endif
BIN     := $(VENV)/bin
export VENV
# Two more than cores: tests of servers and JVMs wait much; with three more the run took no less time.
PROCESSES ?= $(shell expr $$(nproc 2>/dev/null || sysctl -n hw.ncpu) + 2)

# Tests start thousands of processes: with compiled modules in __pycache__ these need not compile them each time.
unexport PYTHONDONTWRITEBYTECODE

# The kernels that are compiled when RocketLens is built: their .pyi are held against them.
STUBBED = $(subst /,.,$(basename $(wildcard */kernels/*.pyx)))

.PHONY: help demo test test-no-lane coverage lint format hooks soak fuzz atheris sanitize mutants coverage-kernels bench record docs lock protos wheel wheels \
	release clean

help:
	@echo 'make demo    serve a sample store and say what to type next (PORT=10911, PYTHON=python3)'
	@echo 'make test    all tests but the long ones (PYTHON=python3.13: with that one, in .venv-3.13); those that need a program that is missing are counted at the end (INSTALL=no: install none)'
	@echo 'make test-no-lane  tests of servers without the fast lane'
	@echo 'make coverage  what of the whole product the tests run, branches too; a quarter of an hour'
	@echo 'make lint    ruff, mypy --strict, the import contracts'
	@echo 'make format  ruff format, and the fixes ruff is sure of'
	@echo 'make hooks   have git check each commit: format, lint, the subject of its message'
	@echo 'make soak    the tests that take minutes, and those by drawn examples with many more of these'
	@echo 'make fuzz    the property and fuzz tests with many more examples'
	@echo 'make atheris fuzz the decoders by coverage (SECONDS=60; Python 3.11 to 3.13)'
	@echo 'make sanitize  what drives the kernels, under AddressSanitizer and UBSan'
	@echo 'make mutants  how many of 200 small faults in pure Python the tests find: tests/mutants.tsv; half an hour'
	@echo 'make coverage-kernels  lines of the kernels that their tests run'
	@echo 'make bench   speed, beside the official Java broker on the same store'
	@echo 'make record  make the recorded stores of tests/golden/g2 anew with the official broker (24 minutes)'
	@echo 'make docs    make all pages, and the help of every command, a site: build/site'
	@echo 'make wheels  the wheels to publish, for x86_64 and arm64, any Python from 3.11 on: dist/'
	@echo 'make release publish nothing, but make all of it: VERSION=0.2.0 (docs/releasing.md)'
	@echo 'make lock    choose versions anew: requirements*.lock'
	@echo 'make protos  make the modules of the gRPC messages of their .proto'
	@echo 'make clean   remove what make made'

demo:
	@tests/setup.sh venv requirements.lock
	@exec $(BIN)/python docs/demo.py --port $(PORT)

test: .dev
	@for tools in java clients browser; do tests/setup.sh $$tools || true; done
	$(BIN)/python -m pytest -m 'not soak' -n $(PROCESSES) --durations=40 \
		$(if $(ALONE),|| { [ $$? = 1 ] && $(FAILED_ALONE); })

# What failed while others ran, once more and by itself: a machine that stood still for a second is no defect. Every test
# that passes only now is listed, and is to be made steady.
FAILED_ALONE = { echo 'These failed. Each runs once more by itself; one that passes now is unsteady:'; \
	$(BIN)/python -m pytest -m 'not soak' -v --tb=long --maxfail=1 --last-failed --last-failed-no-failures none; }

# The whole product, in every process that the tests start.
coverage: export COVERAGE_FILE = $(abspath $(VENV))/cache/product-coverage/data
coverage: .dev
	@tests/setup.sh java
	@tests/setup.sh clients
	@tests/setup.sh browser
	rm -rf $(dir $(COVERAGE_FILE))
	mkdir -p $(dir $(COVERAGE_FILE))
	code=0; $(BIN)/coverage run --rcfile=tests/coverage.ini -m pytest -m 'not soak' -n $(PROCESSES) || code=$$?; \
		$(BIN)/coverage combine --rcfile=tests/coverage.ini --quiet && \
		$(BIN)/coverage report --rcfile=tests/coverage.ini --fail-under=95 && exit $$code

lint: .dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/stubtest --concise --allowlist tests/stubtest_allowlist.txt $(STUBBED)
	$(BIN)/lint-imports --no-logo

format: .dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

hooks: .dev
	$(BIN)/pre-commit install

soak: .dev
	@tests/setup.sh java
	@tests/setup.sh clients
	$(BIN)/python -m pytest -m 'soak or hypothesis' --hypothesis-profile=soak

test-no-lane: .dev
	@tests/setup.sh java
	@tests/setup.sh clients
	$(BIN)/python -m pytest -m 'not soak' --no-fast-lane -n $(PROCESSES) tests/broker tests/damage tests/fuzz tests/interop

fuzz: .dev
	$(BIN)/python -m pytest --hypothesis-profile=fuzz tests/fuzz

# The wheel is for a few Python versions only, so no lock has it. What is found new stays in the corpus.
atheris: .dev
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target $(VENV)/atheris 'atheris>=3,<4'
	PYTHONPATH=.:$(VENV)/atheris $(BIN)/python tests/fuzz/decoders.py -max_total_time=$(or $(SECONDS),60) -max_len=4096

sanitize: .dev
	$(BIN)/python build_backend/judges.py sanitizers -n $(PROCESSES)

mutants: .dev
	$(BIN)/python tests/support/mutants.py record
	$(BIN)/python tests/support/mutants.py run

coverage-kernels: .dev
	$(BIN)/python build_backend/judges.py coverage

bench: .dev
	@tests/setup.sh java
	$(BIN)/python -m benchmarks

# Needs the ports 9876 and 10911 free, the latter on ::1 too.
record: .dev
	@tests/setup.sh java
	$(BIN)/python tests/golden/record/record.py

# What git knows of pages and pictures, as it lies here, so that a link is the same in the repository and in the site.
docs: .dev $(VENV)/docs/installed
	rm -rf build/docs
	mkdir -p build/docs
	git ls-files -coz --exclude-standard '*.md' 'docs/*.png' 'docs/*.json' 'deploy/*.yaml' 'deploy/*.service' | xargs -0 cp --parents -t build/docs
	cd build/docs && PYTHONPATH=$(CURDIR):$(CURDIR)/tests $(CURDIR)/$(BIN)/python $(CURDIR)/tests/support/made_parts.py $$(grep -rl '^<!-- made: ' --include='*.md' .)
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=$(VENV)/docs $(BIN)/python -m mkdocs build --strict

$(VENV)/docs/installed: requirements-docs.lock
	@tests/setup.sh venv requirements-dev.lock
	rm -rf $(VENV)/docs
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --target $(VENV)/docs -r requirements-docs.lock
	touch $@

# Universal locks (every platform, every Python from 3.11) with hashes. Nothing of this machine's configuration gets in.
UPGRADE ?= --upgrade
LOCK := env -u UV_INDEX_URL -u UV_FIND_LINKS $(BIN)/uv pip compile --quiet --no-config --universal --generate-hashes \
	--python-version 3.11 --no-emit-package rocketlens --custom-compile-command 'make lock' $(UPGRADE)
lock: .dev
	$(LOCK) --group build -o requirements-build.lock
	$(LOCK) --group install -o requirements-install.lock
	$(LOCK) --group zig -o requirements-build-zig.lock
	$(LOCK) --group wheels -o requirements-wheels.lock
	$(LOCK) pyproject.toml -c requirements-build.lock -o requirements.lock
	$(LOCK) pyproject.toml --extra spark -c requirements.lock -o requirements-spark.lock
	$(LOCK) pyproject.toml --extra dev -c requirements-spark.lock -c requirements-build.lock -c requirements-install.lock \
		-o requirements-dev.lock
	$(LOCK) --group docs -c requirements-dev.lock -o requirements-docs.lock
	$(LOCK) --group assistants -o tests/interop/mcp/requirements.txt

# The modules of the gRPC messages; a test holds them against the .proto.
protos: .dev
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. $(wildcard broker/grpc/messages/*.proto)

wheel: .dev
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

# Installed beside the others for once: nobody but who publishes wheels needs these.
wheels: .dev
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --require-hashes --target $(VENV)/wheels -r requirements-wheels.lock
	PYTHONPATH=$(abspath $(VENV)/wheels) $(BIN)/python build_backend/wheels.py $(MACHINES)

# Everything but pushing; says at its end what is left to type.
release: .dev
	$(BIN)/python build_backend/release.py $(VERSION)

clean:
	rm -f */kernels/*.so
	rm -rf .venv .venv-* .demo build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.PHONY: .dev
.dev:
	@tests/setup.sh venv requirements-dev.lock
