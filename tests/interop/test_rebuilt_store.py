"""A stock broker takes index and queues that we rebuilt for its own: it keeps the files, answers from them, goes on."""

import pytest

from blocking_client import eventually
from golden_store import G1
from interop.conftest import ENTRIES, rebuild_all, served
from interop.jars import NEWEST_BROKER_VERSION, SERVER_VERSION
from interop.wire import ask
from oracles import read_log
from protocol.errors import StoreError
from queue_runs import files_under
from spark_jobs.commands.run import run_compact
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.publish._open_writers import find_writers
from spark_jobs.publish.store_lock import StoreLock
from spark_jobs.run.progress import Silence

pytestmark = pytest.mark.interop

SEND_MESSAGE, QUERY_MESSAGE = 10, 12
TOPIC = "TopicTest"


def compact(store) -> None:
    assert run_compact(CompactRequest(store=str(store)), Silence()).exit_code == 0


OTHERS = {
    "stopped cleanly": ("store", rebuild_all, SERVER_VERSION),
    "of 5.5.1": ("store-crashed", rebuild_all, NEWEST_BROKER_VERSION),
    "compacted": ("store", compact, SERVER_VERSION),
}
"""Archive, what is done to it, and the broker's version: each is like the one that crashed, or less."""


@pytest.fixture(
    scope="module", params=["crashed", *(pytest.param(name, marks=pytest.mark.soak) for name in OTHERS)], name="served"
)
def running(request, tmp_path_factory):
    if request.param == "crashed":
        yield request.getfixturevalue("stock")
        return
    with served(tmp_path_factory.mktemp("rebuilt"), *OTHERS[request.param]) as other:
        yield other


def produced(store) -> list[tuple[str, str, list[str]]]:
    """Unique key, topic and keys of every message that the broker acknowledged, each message of a batch included."""
    rows = [line.split("\t") for line in (G1 / "produced.tsv").read_text().splitlines() if line]
    in_batches = {key for row in rows if row[0] == "batch" for key in row[1].split(",")}
    known = [record for record in read_log(store / "commitlog") if record.properties.get("UNIQ_KEY") in in_batches]
    found = [(one.properties["UNIQ_KEY"], one.topic, one.properties.get("KEYS", "").split()) for one in known]
    assert len({unique_key for unique_key, _, _ in found}) == len(in_batches) == 10
    singles = [row for row in rows if row[0] not in ("batch", "txr")]
    assert {row[1] for row in singles} == {"SEND_OK"}
    return found + [(row[2], row[4], row[7].split() if row[7] != "null" else []) for row in singles]


def test_the_broker_keeps_every_file_and_every_queue(served) -> None:
    """After a crash its replay puts the last record's entries once more, into the tail file; it touches no other."""
    (before, queues_before), (now, queues) = served.before, served.after
    assert sorted(now) == sorted(before)
    tail = max(now)
    changed = [name for name in now if now[name] != before[name]]
    assert changed in ([], [tail])
    if served.archive != "store-crashed":
        assert changed == [] or now[tail][40:] == before[tail][40:]
    assert [name for name, data in queues_before.items() if queues.get(name) != data] == []


def test_a_broker_that_runs_is_refused_by_its_lock_and_by_its_files(served) -> None:
    process = served.pair.broker.process
    with pytest.raises(StoreError, match=rf"lock: is locked by process {process.pid} \(java\)"):
        StoreLock(served.store).__enter__()
    # By these it is known before it takes the lock.
    for directory in ("index", "consumequeue", "commitlog"):
        found, _ = find_writers([served.store / directory])
        assert [each.pid for each in found] == [process.pid], directory


def test_mqadmin_finds_every_message_under_every_key(served, java) -> None:
    client = java(SERVER_VERSION, "JSON")
    by_key: dict[tuple[str, str], set[str]] = {}
    for unique_key, topic, keys in produced(served.store):
        for key in keys:
            by_key.setdefault((topic, key), set()).add(unique_key)
    for (topic, key), unique_keys in by_key.items():
        where = ("-t", topic, "-k", key, "-b", "0", "-n", served.pair.name_server.text_address)
        printed = client.mqadmin("queryMsgByKey", *where)
        assert {unique_key for unique_key in unique_keys if unique_key not in printed} == set(), key


def test_every_unique_key_is_found(served) -> None:
    for unique_key, topic, _ in produced(served.store):
        assert unique_key.encode() in query(served, topic, unique_key), unique_key


def test_new_messages_come_behind_ours(served) -> None:
    """Enough of them to fill our last file: the next one's name sorts after ours."""
    before, end = files_under(served.store / "index"), max(served.before[0])
    keys = [f"new-{number}" for number in range(ENTRIES + 10)]
    for key in keys:
        send(served, key)
    for key in keys:
        eventually(lambda key=key: key.encode() in query(served, TOPIC, key), f"{key} in the index")
    after = files_under(served.store / "index")
    assert {name for name in before if name != end and after[name] != before[name]} == set()
    assert set(before) < set(after)
    assert min(set(after) - set(before)) > end


def query(served, topic, key) -> bytes:
    fields = {"topic": topic, "key": key, "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}
    return ask(served.pair.broker.address, QUERY_MESSAGE, fields).body


def send(served, key) -> None:
    fields = {
        "producerGroup": "rebuilt", "topic": TOPIC, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
        "queueId": "0", "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "reconsumeTimes": "0",
        "unitMode": "false", "batch": "false", "maxReconsumeTimes": "0",
        "properties": f"KEYS\x01{key}\x02UNIQ_KEY\x01UNIQUE{key}\x02",
    }  # fmt: skip
    answer = ask(served.pair.broker.address, SEND_MESSAGE, fields, body=f"body of {key}".encode())
    assert answer.code == 0, answer.header
