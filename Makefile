# make demo and make test are all a newcomer needs; .ci/run calls make lint and make test, nothing else.

PORT    ?= 10911
VENV    ?= .venv
BIN     := $(VENV)/bin
export VENV
# One more than cores: tests of servers and JVMs wait much.
PROCESSES ?= $(shell expr $$(nproc 2>/dev/null || sysctl -n hw.ncpu) + 1)

# The kernels that are compiled when RocketLens is built: their .pyi are held against them.
STUBBED = $(subst /,.,$(basename $(wildcard */kernels/*.pyx)))

.PHONY: help demo test test-no-lane lint format soak fuzz atheris bench record docs lock wheel wheels clean

help:
	@echo 'make demo    serve a sample store and say what to type next (PORT=10911, PYTHON=python3)'
	@echo 'make test    all tests but the long ones; a JDK and Maven, Node.js, Go and Chromium are checked, or installed where we can'
	@echo 'make test-no-lane  tests of servers without the fast lane'
	@echo 'make lint    ruff, mypy --strict, the import contracts'
	@echo 'make format  ruff format, and the fixes ruff is sure of'
	@echo 'make soak    the tests that take minutes'
	@echo 'make fuzz    the property and fuzz tests with many more examples'
	@echo 'make atheris fuzz the decoders by coverage (SECONDS=60; Python 3.11 to 3.13)'
	@echo 'make bench   speed, beside the official Java broker on the same store'
	@echo 'make record  make the recorded stores of tests/golden/g2 anew with the official broker (11 minutes)'
	@echo 'make docs    write docs/cli.md anew from the commands'
	@echo 'make wheels  the wheels to publish, for x86_64 and arm64, any Python from 3.11 on: dist/'
	@echo 'make lock    choose versions anew: requirements*.lock'
	@echo 'make clean   remove what make made'

demo:
	@tests/setup.sh venv requirements.lock
	@exec $(BIN)/python docs/demo.py --port $(PORT)

test: .dev
	@tests/setup.sh java
	@tests/setup.sh clients
	@tests/setup.sh browser
	$(BIN)/python -m pytest -m 'not soak' -n $(PROCESSES) --cov --cov-report=term \
		--cov-fail-under=85 --durations=40

lint: .dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/stubtest --concise --allowlist tests/stubtest_allowlist.txt $(STUBBED)
	$(BIN)/lint-imports --no-logo

format: .dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

soak: .dev
	@tests/setup.sh java
	@tests/setup.sh clients
	$(BIN)/python -m pytest -m soak

# Those of servers, but for what is about the lane itself.
NO_LANE := $(addprefix tests/broker/,test_golden_replay.py test_port_fuzz.py test_connection.py test_long_polling.py \
	test_dispatcher.py test_server.py processors)
test-no-lane: .dev
	$(BIN)/python -m pytest -m 'not soak' --no-fast-lane -n $(PROCESSES) $(NO_LANE)

fuzz: .dev
	$(BIN)/python -m pytest --hypothesis-profile=fuzz tests/fuzz

# The wheel is for a few Python versions only, so no lock has it. What is found new stays in the corpus.
atheris: .dev
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target $(VENV)/atheris 'atheris>=3,<4'
	PYTHONPATH=.:$(VENV)/atheris $(BIN)/python tests/fuzz/decoders.py -max_total_time=$(or $(SECONDS),60) -max_len=4096

bench: .dev
	@tests/setup.sh java
	$(BIN)/python -m benchmarks

# Needs the ports 9876 and 10911 free, the latter on ::1 too.
record: .dev
	@tests/setup.sh java
	$(BIN)/python tests/golden/record/record.py

docs: .dev
	PYTHONPATH=. $(BIN)/python tests/support/cli_reference.py >docs/cli.md

# Universal locks (every platform, every Python from 3.11) with hashes. Nothing of this machine's configuration gets in.
UPGRADE ?= --upgrade
LOCK := env -u UV_INDEX_URL -u UV_FIND_LINKS $(BIN)/uv pip compile --quiet --no-config --universal --generate-hashes \
	--python-version 3.11 --no-emit-package rocketlens --custom-compile-command 'make lock' $(UPGRADE)
lock: .dev
	$(LOCK) --group build -o requirements-build.lock
	$(LOCK) --group zig -o requirements-build-zig.lock
	$(LOCK) --group wheels -o requirements-wheels.lock
	$(LOCK) pyproject.toml -c requirements-build.lock -o requirements.lock
	$(LOCK) pyproject.toml --extra spark -c requirements.lock -o requirements-spark.lock
	$(LOCK) pyproject.toml --extra dev -c requirements-spark.lock -c requirements-build.lock -o requirements-dev.lock

wheel: .dev
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

# Installed beside the others for once: nobody but who publishes wheels needs these.
wheels: .dev
	$(BIN)/python -m pip install --quiet --upgrade --require-hashes --target $(VENV)/wheels -r requirements-wheels.lock
	PYTHONPATH=$(abspath $(VENV)/wheels) $(BIN)/python build_backend/wheels.py $(MACHINES)

clean:
	rm -f */kernels/*.so
	rm -rf $(VENV) .demo build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

.PHONY: .dev
.dev:
	@tests/setup.sh venv requirements-dev.lock
