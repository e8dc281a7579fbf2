"""Fixtures of the interop tests: JVMs that are started when first asked for, and stores that these are to load."""

import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from golden_store import unpack
from interop.jars import SERVER_VERSION
from interop.java_client import JavaClient
from interop.official_broker import G1_PROPERTIES, OfficialPair, official_broker, official_name_server
from interop.recovery_oracle import SHAPES_BY, recovery_oracle
from interop.stages import official_stage, our_stage
from interop.stored import stored
from loop_engine import run_jobs_here
from queue_runs import files_under
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_rebuild
from spark_jobs.run.progress import Silence
from trial_stores import SHAPES, old

ENTRIES = 149
"""Of an index file of the recorded stores."""

STOCK_PROPERTIES = G1_PROPERTIES | {"autoCreateTopicEnable": "false", "waitTimeMillsInSendQueue": "60000"}


class Java:
    """``java(version, form, *properties)``: the client of that version that writes headers in that form."""

    def __init__(self, factory: pytest.TempPathFactory) -> None:
        self._factory = factory
        self._started: dict[tuple[str, ...], JavaClient] = {}

    def __call__(self, version: str, form: str, *properties: str) -> JavaClient:
        key = (version, form, *properties)
        if key not in self._started:
            self._started[key] = JavaClient(version, form, self._factory.mktemp(f"java-{version}-{form}"), *properties)
        return self._started[key]

    def disconnect(self, name_server: str) -> None:
        for running in self._started.values():
            running.disconnect(name_server)

    def close(self) -> None:
        for running in self._started.values():
            running.close()


@pytest.fixture(scope="session")
def java(tmp_path_factory):
    clients = Java(tmp_path_factory)
    yield clients
    clients.close()


@pytest.fixture
def client(java):
    return java(SERVER_VERSION, "JSON")


@pytest.fixture(scope="session")
def store(tmp_path_factory):
    """The recorded store g1; no test may change it."""
    return stored("g1", tmp_path_factory.mktemp("stored-g1"))


@pytest.fixture(scope="module", params=["ours", pytest.param("official", marks=pytest.mark.soak)])
def stage(request, store, tmp_path_factory):
    work = tmp_path_factory.mktemp("stage")
    with (our_stage if request.param == "ours" else official_stage)(store.root, work) as running:
        yield running


@pytest.fixture(
    scope="session",
    params=[pytest.param(each, marks=[] if each == SERVER_VERSION else pytest.mark.soak) for each in SHAPES_BY],
)
def version(request: pytest.FixtureRequest) -> str:
    """Each version whose store classes judge; in each run one of them."""
    return str(request.param)


@pytest.fixture(scope="session")
def oracle(tmp_path_factory, version):
    with recovery_oracle(tmp_path_factory.mktemp("oracle"), version) as running:
        yield running


@pytest.fixture(scope="session")
def goods(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    shapes = SHAPES | {"old": old}
    return {name: shapes[name](folder / name) for names in SHAPES_BY.values() for name in names}


@dataclass(frozen=True)
class Served:
    """A recorded store with index and queues of ours, and a broker on it; both before it started and right after."""

    archive: str
    store: Path
    pair: OfficialPair
    before: tuple[dict[str, bytes], dict[str, bytes]]
    after: tuple[dict[str, bytes], dict[str, bytes]]


def index_and_queues(store: Path) -> tuple[dict[str, bytes], dict[str, bytes]]:
    return files_under(store / "index"), files_under(store / "consumequeue")


def rebuild_all(store: Path) -> None:
    shutil.rmtree(store / "index")
    shutil.rmtree(store / "consumequeue")
    sizes = {"slots": 97, "entries": ENTRIES + 1, "queue_file_size": 2000}
    request = RebuildRequest(store=str(store), index=True, queues=True, **sizes)
    with pytest.MonkeyPatch.context() as patch:
        run_jobs_here(patch)
        report = run_rebuild(request, Silence())
    assert report.exit_code == 0, report.damages


@contextlib.contextmanager
def served(work, archive, prepare, version=SERVER_VERSION):
    store = unpack(archive, work)
    prepare(store)
    assert (store / "abort").exists() == (archive == "store-crashed")
    before = index_and_queues(store)
    with (
        official_name_server(work) as name_server,
        official_broker(store, work, properties=STOCK_PROPERTIES, name_server=name_server, version=version) as broker,
    ):
        yield Served(archive, store, OfficialPair(name_server, broker), before, index_and_queues(store))


@pytest.fixture(scope="session")
def stock(tmp_path_factory):
    """A broker on a store that crashed and was rebuilt, for all that is asked of a broker that goes on."""
    with served(tmp_path_factory.mktemp("stock"), "store-crashed", rebuild_all) as running:
        yield running
