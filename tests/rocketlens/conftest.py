"""The recorded store g1, opened and served; jobs of commands run in the test's own process."""

import pytest

import rocketlens
from broker_harness import service_of, serving_in_a_thread
from loop_engine import run_jobs_here
from storage.store.message_store import MessageStore


@pytest.fixture(autouse=True)
def jobs_run_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks of the local engine run in the test's process: to start processes for each command takes seconds."""
    run_jobs_here(monkeypatch)


@pytest.fixture(scope="module")
def server(g1_store):
    with serving_in_a_thread(service_of(MessageStore.open(g1_store))) as endpoint:
        yield endpoint


@pytest.fixture(scope="module", params=["store", "broker"])
def source(request, g1_store, server):
    opened = rocketlens.open(g1_store) if request.param == "store" else rocketlens.connect(str(server))
    with opened:
        yield opened
