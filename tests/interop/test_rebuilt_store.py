"""A stock broker takes index and queues that we rebuilt for its own: it keeps the files, answers from them, goes on."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blocking_client import eventually
from golden_store import G1, unpack
from interop.conftest import Java
from interop.jars import NEWEST_BROKER_VERSION, SERVER_VERSION
from interop.official_broker import G1_PROPERTIES, OfficialPair, official_broker, official_name_server
from interop.wire import ask
from oracles import read_log
from protocol.errors import StoreError
from queue_runs import files_under
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_compact, run_rebuild
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.publish._open_writers import find_writers
from spark_jobs.publish.store_lock import StoreLock
from spark_jobs.run.progress import Silence

pytestmark = pytest.mark.interop

SEND_MESSAGE, QUERY_MESSAGE = 10, 12
TOPIC = "TopicTest"
ENTRIES = 149

Contents = dict[str, bytes]
Prepare = Callable[[Path], None]


def forget_index_and_queues(store: Path) -> None:
    shutil.rmtree(store / "index")
    shutil.rmtree(store / "consumequeue")


def rebuild_all(store: Path) -> None:
    """Rebuild from the log alone, with the counts and sizes that the broker is configured with."""
    forget_index_and_queues(store)
    request = RebuildRequest(
        store=str(store), index=True, queues=True, slots=97, entries=ENTRIES + 1, queue_file_size=2000
    )
    report = run_rebuild(request, Silence())
    assert report.exit_code == 0, report.damages


def compact(store: Path) -> None:
    assert run_compact(CompactRequest(store=str(store)), Silence()).exit_code == 0


NEWEST = "crashed, of 5.5.1"
"""A newer broker opens what the older one opens; that it does is looked at in the long tests."""

STORES: dict[str, tuple[str, Prepare, str]] = {
    "stopped cleanly": ("store", rebuild_all, SERVER_VERSION),
    "crashed": ("store-crashed", rebuild_all, SERVER_VERSION),
    NEWEST: ("store-crashed", rebuild_all, NEWEST_BROKER_VERSION),
    "compacted": ("store", compact, SERVER_VERSION),
}
"""Archive, what is done to the store, and the version of the broker that opens it."""

IN_EACH_RUN = ["crashed"]
"""What a broker does with a store that was stopped cleanly it does with one that crashed too, besides recovering it."""


class Served:
    """A rebuilt store, what was in its index before the broker started, and the broker."""

    def __init__(self, archive: str, store: Path, pair: OfficialPair, index: Contents, queues: Contents) -> None:
        self.archive, self.store, self.pair, self.index, self.queues = archive, store, pair, index, queues


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[] if name in IN_EACH_RUN else pytest.mark.soak) for name in STORES],
)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    archive, prepare, version = STORES[request.param]
    work = tmp_path_factory.mktemp("rebuilt")
    store = unpack(archive, work)
    prepare(store)
    assert (store / "abort").exists() == (archive == "store-crashed")
    index, queues = files_under(store / "index"), files_under(store / "consumequeue")
    with (
        official_name_server(work) as name_server,
        official_broker(store, work, properties=G1_PROPERTIES, name_server=name_server, version=version) as broker,
    ):
        yield Served(archive, store, OfficialPair(name_server, broker), index, queues)


def produced(store: Path) -> list[tuple[str, str, list[str]]]:
    """Unique key, topic and keys of every message that the broker acknowledged, each message of a batch included.

    Topic and keys of a batch's messages are in the log only. The transaction that was rolled back has no message.
    """
    rows = [line.split("\t") for line in (G1 / "produced.tsv").read_text().splitlines() if line]
    in_batches = {key for row in rows if row[0] == "batch" for key in row[1].split(",")}
    found = [
        (record.properties["UNIQ_KEY"], record.topic, record.properties.get("KEYS", "").split())
        for record in read_log(store / "commitlog")
        if record.properties.get("UNIQ_KEY") in in_batches
    ]
    assert len({unique_key for unique_key, _, _ in found}) == len(in_batches) == 10
    singles = [row for row in rows if row[0] not in ("batch", "txr")]
    assert {row[1] for row in singles} == {"SEND_OK"}
    return found + [(row[2], row[4], row[7].split() if row[7] != "null" else []) for row in singles]


def test_the_broker_keeps_every_file_and_every_queue(served: Served) -> None:
    """After a crash its replay puts the last record's entries once more, into the tail file; it touches no other."""
    now = files_under(served.store / "index")
    assert sorted(now) == sorted(served.index)
    tail = max(now)
    changed = [name for name in now if now[name] != served.index[name]]
    assert changed in ([], [tail])
    if served.archive != "store-crashed":
        assert changed == [] or now[tail][40:] == served.index[tail][40:]
    queues = files_under(served.store / "consumequeue")
    assert [name for name, data in served.queues.items() if queues.get(name) != data] == []


def test_a_broker_that_runs_is_refused_by_its_lock_and_by_its_files(served: Served) -> None:
    process = served.pair.broker.process
    with pytest.raises(StoreError, match=rf"lock: is locked by process {process.pid} \(java\)"):
        StoreLock(served.store).__enter__()
    # By these it is known before it takes the lock.
    for directory in ("index", "consumequeue", "commitlog"):
        found, _ = find_writers([served.store / directory])
        assert [each.pid for each in found] == [process.pid], directory


def test_mqadmin_finds_every_message_under_every_key(served: Served, java: Java) -> None:
    client = java(SERVER_VERSION, "JSON")
    by_key: dict[tuple[str, str], set[str]] = {}
    for unique_key, topic, keys in produced(served.store):
        for key in keys:
            by_key.setdefault((topic, key), set()).add(unique_key)
    for (topic, key), unique_keys in by_key.items():
        printed = client.mqadmin(
            "queryMsgByKey", "-t", topic, "-k", key, "-b", "0", "-n", served.pair.name_server.text_address
        )
        assert {unique_key for unique_key in unique_keys if unique_key not in printed} == set(), key


def test_every_unique_key_is_found(served: Served) -> None:
    for unique_key, topic, _ in produced(served.store):
        assert unique_key.encode() in query(served, topic, unique_key), unique_key


def test_new_messages_come_behind_ours(served: Served) -> None:
    """Enough of them to fill our last file: the next one's name sorts after ours."""
    before, end = files_under(served.store / "index"), max(served.index)
    keys = [f"new-{number}" for number in range(ENTRIES + 10)]
    for key in keys:
        send(served, key)
    for key in keys:
        eventually(lambda key=key: key.encode() in query(served, TOPIC, key), f"{key} in the index")
    after = files_under(served.store / "index")
    assert {name for name in before if name != end and after[name] != before[name]} == set()
    assert set(before) < set(after)
    assert min(set(after) - set(before)) > end


def query(served: Served, topic: str, key: str) -> bytes:
    fields = {"topic": topic, "key": key, "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}
    return ask(served.pair.broker.address, QUERY_MESSAGE, fields).body


def send(served: Served, key: str) -> None:
    fields = {
        "producerGroup": "rebuilt", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "0", "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "reconsumeTimes": "0",
        "unitMode": "false", "batch": "false", "maxReconsumeTimes": "0",
        "properties": f"KEYS\x01{key}\x02UNIQ_KEY\x01UNIQUE{key}\x02",
    }  # fmt: skip
    answer = ask(served.pair.broker.address, SEND_MESSAGE, fields, body=f"body of {key}".encode())
    assert answer.code == 0, answer.header
