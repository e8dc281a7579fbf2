"""The miniature of the benchmark's store, and our server on it."""

import pytest

from benchmark_store import SMALL, make_small
from benchmarks.measure import our_server
from benchmarks.store_plan import StorePlan


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return make_small(tmp_path_factory.mktemp("store"), SMALL)


@pytest.fixture(scope="module")
def plan(store):
    return StorePlan.load(store)


@pytest.fixture(scope="module")
def server(store, tmp_path_factory):
    with our_server(store, tmp_path_factory.mktemp("state")) as process:
        process.wait_until_open()
        yield process
