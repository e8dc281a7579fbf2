"""The miniature of the benchmark's store, and our server on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark_store import SMALL, make_small
from benchmarks.measure import our_server
from benchmarks.server_process import ServerProcess
from benchmarks.store_plan import StorePlan


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The miniature store."""
    return make_small(tmp_path_factory.mktemp("store"), SMALL)


@pytest.fixture(scope="module")
def plan(store: Path) -> StorePlan:
    return StorePlan.load(store)


@pytest.fixture(scope="module")
def server(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with our_server(store, tmp_path_factory.mktemp("state")) as process:
        process.wait_until_open()
        yield process
