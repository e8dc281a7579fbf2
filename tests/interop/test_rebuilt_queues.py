"""The official broker on stores whose queues were rebuilt from a damaged or expired log.

What it delivers to a consumer that starts at offset 0 is every message that the log still has, in order; where it
counts on is where it was. A broker's own way of leaving places empty would cost messages: that is shown too.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from interop.official_broker import OfficialProcess, official_broker
from interop.pulling import FOUND, delivered, offset, pull
from interop.wire import ask
from job_runs import Rebuilt
from oracles import read_record
from protocol.codes import RequestCode
from queue_runs import unit
from spark_jobs.run.report import Damage
from store_files import PRE_BLANK, write_file
from store_writer import StoreWriter, Written

pytestmark = pytest.mark.interop

SEGMENT = 1 << 20
QUEUE_FILE = 20 * 1000
PROPERTIES = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "mappedFileSizeConsumeQueue": str(QUEUE_FILE),
    "maxHashSlotNum": "97",
    "maxIndexNum": "150",
    "fileReservedTime": "100000",
}
LOST = {"Whole": (0, 0), "Few": (40, 3), "Many": (40, 300), "More": (40, 1500), "Front": (0, 20), "Tail": (60, 40)}
"""Of each topic's messages: the first that is lost, and how many."""

BROKERS_WAY = "BrokersWay"
SEND, MAX_OFFSET, MIN_OFFSET = 10, 30, 31


def spoil(writer: StoreWriter, written: list[Written]) -> list[Damage]:
    for each in written:
        writer.overwrite(each.physical_offset + 4, b"\xff" * 4)
    return [Damage("log", each.physical_offset, each.size, "a record", "none") for each in written]


def put_into_place(rebuilt: Rebuilt, store: Path) -> None:
    shutil.rmtree(store / "consumequeue")
    shutil.copytree(rebuilt.work.staged / "consumequeue", store / "consumequeue")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    """Three segments: losses in the first, the second missing, and the third for the broker to recover."""
    root = tmp_path_factory.mktemp("damaged") / "store"
    writer = StoreWriter(root, segment_size=SEGMENT, queue_file_size=QUEUE_FILE)
    damages: list[Damage] = []
    for topic, (first, count) in LOST.items():
        written = [writer.append(topic, b"%d" % number) for number in range(first + count + 60 * (topic != "Tail"))]
        damages += spoil(writer, written[first : first + count])
    for number in range(50):
        writer.append("Hole", b"%d" % number)
        writer.append(BROKERS_WAY, b"%d" % number, queue_offset=number if number < 20 else number + 10)
    writer.roll()
    for number in range(900):
        writer.append("Hole", b"%d" % number)
    writer.roll()
    for number in range(50):
        writer.append("Hole", b"%d" % number)
    writer.close()
    missing = writer.log.segments.pop(SEGMENT)
    missing.unlink()
    writer.written = [each for each in writer.written if each.physical_offset // SEGMENT != 1]
    damages.append(Damage(str(missing.parent), SEGMENT, SEGMENT, "a segment", "no file"))
    put_into_place(Rebuilt(root, root.parent / "work", damages=tuple(damages)), root)
    own = [unit(each.physical_offset, each.size, 0) for each in writer.written if each.topic == BROKERS_WAY]
    content = b"".join([*own[:20], *[PRE_BLANK] * 10, *own[20:]])
    write_file(root / "consumequeue" / BROKERS_WAY / "0" / f"{0:020d}", QUEUE_FILE, {0: content})
    return writer


@pytest.fixture(scope="module")
def broker(damaged: StoreWriter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OfficialProcess]:
    with official_broker(damaged.root, tmp_path_factory.mktemp("broker"), properties=PROPERTIES) as running:
        yield running


def send(broker: OfficialProcess, topic: str) -> int:
    """Send a message; its queue offset."""
    fields = {
        "producerGroup": "P", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": "", "reconsumeTimes": "0",
        "unitMode": "false", "batch": "false",
    }  # fmt: skip
    answer = ask(broker.address, SEND, fields, body=b"new")
    assert answer.code == FOUND, answer.header
    return int(answer.header["extFields"]["queueOffset"])


@pytest.mark.parametrize(
    ("topic", "maximum"), [("Few", 1), ("Many", 1024), *((topic, 32) for topic in [*LOST, "Hole"])]
)
def test_every_message_that_is_left_is_delivered_in_order(
    topic: str, maximum: int, damaged: StoreWriter, broker: OfficialProcess
) -> None:
    expected = [record.physical_offset for record in damaged.records if record.topic == topic]
    assert len(expected) >= 60
    assert offset(broker, MIN_OFFSET, topic) == 0
    assert delivered(broker, topic, maximum) == expected


@pytest.mark.parametrize("topic", [*LOST, "Hole"])
def test_messages_stand_at_the_offsets_that_consumers_remember(
    topic: str, damaged: StoreWriter, broker: OfficialProcess
) -> None:
    records = [record for record in damaged.records if record.topic == topic]
    assert len(records) >= 60
    for record in records[::17]:
        found = read_record(pull(broker, topic, record.queue_offset, 1).body, 0)
        assert found is not None
        assert (found.physical_offset, found.queue_offset) == (record.physical_offset, record.queue_offset)


def test_empty_places_as_a_broker_makes_them_would_cost_messages(damaged: StoreWriter, broker: OfficialProcess) -> None:
    expected = [record.physical_offset for record in damaged.records if record.topic == BROKERS_WAY]
    found = delivered(broker, BROKERS_WAY, 32)
    assert found == expected[:20]


def test_a_time_is_found_behind_repeated_messages(damaged: StoreWriter, broker: OfficialProcess) -> None:
    record = [record for record in damaged.records if record.topic == "Many"][-1]
    fields = {"topic": "Many", "queueId": "0", "timestamp": str(record.store_timestamp)}
    assert (
        int(ask(broker.address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields).header["extFields"]["offset"])
        == record.queue_offset
    )


@pytest.mark.parametrize("topic", ["Few", "Tail"])
def test_the_broker_counts_on_where_it_was(topic: str, broker: OfficialProcess) -> None:
    first, count = LOST[topic]
    following = first + count + 60 * (topic != "Tail")
    assert offset(broker, MAX_OFFSET, topic) == following
    assert send(broker, topic) == following


@pytest.mark.soak  # in each run: the units of such a queue, tests/spark_jobs/build
def test_on_an_expired_log_minimum_and_numbers_are_right(tmp_path: Path) -> None:
    """Filler before the first message, a queue that the log has nothing of, and stale units behind its end."""
    store = tmp_path / "store"
    writer = StoreWriter(store, segment_size=SEGMENT, queue_file_size=QUEUE_FILE)
    for _ in range(1200):
        writer.append("Plain")
    for _ in range(30):
        writer.append("Silent")
    writer.roll()
    for _ in range(50):
        writer.append("Plain")
    writer.close()
    writer.log.segments[0].unlink()
    stale = store / "consumequeue" / "Silent" / "0" / f"{0:020d}"
    write_file(stale, QUEUE_FILE, {30 * 20: unit(SEGMENT + 91, 100, 0) * 3})
    put_into_place(Rebuilt(store, tmp_path / "work"), store)
    with official_broker(store, tmp_path, properties=PROPERTIES) as broker:
        assert (offset(broker, MIN_OFFSET, "Plain"), offset(broker, MAX_OFFSET, "Plain")) == (1200, 1250)
        assert (offset(broker, MIN_OFFSET, "Silent"), offset(broker, MAX_OFFSET, "Silent")) == (30, 30)
        expected = [each.physical_offset for each in writer.written if each.physical_offset >= SEGMENT]
        assert delivered(broker, "Plain", start=1200) == expected
        assert (send(broker, "Plain"), send(broker, "Silent")) == (1250, 30)
