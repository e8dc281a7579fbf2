"""The miniature of the benchmark's store, and our server on it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmark_store import SMALL
from benchmarks import make_store
from benchmarks.measure import our_server
from benchmarks.server_process import ServerProcess
from benchmarks.store_plan import StorePlan
from oracles import read_log
from store_writer import StoreWriter


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The miniature store; queues and index by the tests' writer, where a run has the official broker make them."""
    root = make_store.make_store(tmp_path_factory.mktemp("bench"), SMALL, jars=None)
    records = read_log(root / "commitlog")
    copy = tmp_path_factory.mktemp("copy")
    # One file a queue, as in the real one: a pull ends where a file does.
    sizes = {"segment_size": SMALL.segment_size, "queue_file_size": 20 * SMALL.count}
    writer = StoreWriter(copy, index_slots=97, index_entries=20000, **sizes)
    for record in records:
        writer.append_record(record)
    writer.close()
    for name in ("consumequeue", "index", "checkpoint"):
        (copy / name).rename(root / name)
    return root


@pytest.fixture(scope="module")
def plan(store: Path) -> StorePlan:
    return StorePlan.load(store)


@pytest.fixture(scope="module")
def server(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with our_server(store, tmp_path_factory.mktemp("state")) as process:
        process.wait_until_open()
        yield process
