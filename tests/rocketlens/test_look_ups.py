"""What the public face answers, from a store and over the wire, beside what recorded producers and consumers got."""

import functools
import gc
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import rocketlens
from broker_harness import service_of, serving_in_a_thread
from golden_store import G1, GOLDEN, unpack
from oracles import read_log
from rocketlens.opening import open_message_store
from space_oracle import count
from storage.store.message_store import MessageStore

Source = rocketlens.Store | rocketlens.RemoteStore


class Produced(NamedTuple):
    """A line of produced.tsv, or what consumers print of a message."""

    unique_key: str
    offset_message_id: str
    topic: str
    queue_id: int
    queue_offset: int
    keys: list[str]
    tags: str | None


def produced() -> list[Produced]:
    """The messages that were stored under their own topics when the producer was answered."""
    lines = [line.split("\t") for line in (G1 / "produced.tsv").read_text().splitlines()]
    found = [
        Produced(line[2], line[3], line[4], int(line[5]), int(line[6]), _keys(line[7]), _text(line[8]))
        for line in lines
        if len(line) == 9 and line[0] not in ("delay", "txc", "txr")
    ]
    assert len(found) > 15
    return found


def _text(text: str) -> str | None:
    return None if text == "null" else text


def _keys(text: str) -> list[str]:
    return [] if text == "null" else text.split()


def body_hash(body: bytes) -> int:
    """Java's `Arrays.hashCode`, which the recorded consumers printed."""
    value = functools.reduce(lambda hashed, byte: (31 * hashed + (byte ^ 0x80) - 0x80) & 0xFFFFFFFF, body, 1)
    return (value ^ 1 << 31) - (1 << 31)


def pull_all(source: Source, topic: str, queue_id: int, **options: str) -> Iterator[rocketlens.Message]:
    offset, end = 0, 1
    while offset < end:
        found = source.pull(topic, queue_id, offset, maximum=5, **options)  # type: ignore[arg-type]
        yield from found
        assert found.next_offset > offset
        offset, end = found.next_offset, found.max_offset


def test_every_message_that_was_produced_is_found_by_each_of_its_ids(source: Source) -> None:
    for sent in produced():
        by_unique_key = source.view(sent.unique_key, topic=sent.topic)
        (found,) = by_unique_key
        told = found.offset_message_id, found.topic, found.queue_id, found.queue_offset, found.keys, found.tags
        assert told == sent[1:]
        assert found.message_id == sent.unique_key
        assert tuple(source.view(sent.offset_message_id)) == tuple(source.view(found.physical_offset)) == (found,)


@pytest.mark.parametrize(
    ("recorded", "options"),
    [
        ("consumed-tag.tsv", {"tag": "TagA || Aa"}),
        ("consumed-sql.tsv", {"sql": "a > 10 AND a <= 30 AND region = 'hz'"}),
    ],
)
def test_a_pull_brings_what_the_recorded_consumer_got(source: Source, recorded: str, options: dict[str, str]) -> None:
    lines = [line.split("\t") for line in (G1 / recorded).read_text().splitlines()]
    expected = {
        (line[1], int(line[2]), int(line[3]), line[4], line[5], _text(line[6]), int(line[8]), int(line[9]))
        for line in lines
        if line[0] == "MSG"
    }
    assert len(expected) == int(lines[0][1]) > 4
    found = {
        (
            *(message.topic, message.queue_id, message.queue_offset, message.unique_key, message.offset_message_id),
            *(message.tags, len(message.body), body_hash(message.body)),
        )
        for queue_id in range(4)
        for message in pull_all(source, "TopicTest", queue_id, **options)
    }
    assert found == expected


def test_a_compressed_body_is_decompressed(source: Source) -> None:
    for kind in ("LZ4", "ZSTD", "ZLIB"):
        (found,) = source.query("TopicTest", key=f"big-{kind}")
        assert found.body.startswith(b"compressible payload ") or len(found.body) > 10 * len(found.stored_body)
        assert bytes(found.stored_body) != found.body


def test_times_are_numbers_and_dates(source: Source) -> None:
    (found,) = source.view(6581)
    assert found.store_time == datetime.fromtimestamp(found.store_timestamp / 1000, UTC)
    assert found.born_timestamp <= found.store_timestamp
    assert str(found.store_host) == "127.0.0.1:10911"
    times = [found.store_timestamp for found in source.query("TopicTest", key="hotkey")]
    between = source.query("TopicTest", key="hotkey", begin=times[3], end=datetime.fromtimestamp(times[7] / 1000, UTC))
    assert [found.store_timestamp for found in between] == [each for each in times if times[3] <= each <= times[7]]


def test_nothing_found_says_why(source: Source) -> None:
    for found in (
        source.query("TopicTest", key="nosuchkey"),
        source.query("NoSuchTopic", key="a"),
        source.view(1),
        source.view("nobody"),
        source.pull("TopicTest", 0, 10_000),
        source.pull("TopicTest", 99, 0),
        source.pull("NoSuchTopic", 0, 0),
    ):
        assert not found
        assert len(found.reason) > 20
    found = source.query("TopicTest", key="hotkey")
    assert found.reason == ""


def test_topics_and_groups_are_those_of_the_recorded_broker(source: Source) -> None:
    queues = {topic.name: topic.read_queues for topic in source.topics()}
    assert {"TopicTest": 4, "SCHEDULE_TOPIC_XXXX": 18, "%RETRY%CG_SQL": 1}.items() <= queues.items()
    listed = (G1 / "mqadmin-out" / "topicList.txt").read_text().split()
    assert set(listed) - set(queues) <= {"TBW102", "broker-a"}
    groups = {group.name: group.offsets for group in source.groups()}
    assert {"CG_TAG", "CG_SQL", "TOOLS_CONSUMER"} <= set(groups)
    consumed = (G1 / "mqadmin-out" / "consumerProgress-g.txt").read_text()
    for queue_id, offset in groups["CG_TAG"]["TopicTest"].items():
        assert f"{queue_id}" in consumed
        assert f"{offset}" in consumed


def test_answers_are_sequences_that_stay(g1_store: Path) -> None:
    with rocketlens.open(g1_store) as store:
        found = store.query("TopicTest", key="hotkey", maximum=3)
    assert [*found][1:] == list(found[1:])
    assert found[-1] in found
    assert found[0].body == b"hot 37"
    assert repr(found[0]).startswith(f"<Message {found[0].unique_key} of TopicTest: queue ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "exactly one of key, unique_key and tag"),
        ({"key": "a", "tag": "b"}, "exactly one of"),
        ({"key": "a", "begin": 5, "end": 1}, "begin 5 is after end 1"),
        ({"key": "a", "begin": "soon"}, "neither milliseconds nor a time"),
        ({"key": "a", "maximum": 0}, "maximum 0: expected 1 or more"),
        ({"key": "a", "cursor": -1}, "cursor -1: expected the cursor of an earlier answer"),
    ],
)
def test_a_question_that_cannot_be_is_an_error(source: Source, arguments: dict[str, object], says: str) -> None:
    with pytest.raises(rocketlens.ConfigError, match=says):
        source.query("TopicTest", **arguments)  # type: ignore[arg-type]


def test_wrong_filters_and_ids_are_errors(source: Source) -> None:
    with pytest.raises(rocketlens.ConfigError, match="tag and sql exclude each other"):
        source.pull("TopicTest", 0, 0, tag="a", sql="a = 1")
    with pytest.raises(rocketlens.FilterSyntaxError):
        source.pull("TopicTest", 0, 0, sql="a >")
    with pytest.raises(rocketlens.ConfigError, match="the id is empty"):
        source.view("")


def test_what_is_closed_says_so(g1_store: Path) -> None:
    for closed in (rocketlens.open(g1_store), rocketlens.connect("127.0.0.1:1")):
        closed.close()
        closed.close()
        with pytest.raises(rocketlens.Error, match="is closed"):
            closed.view(0)
        with pytest.raises(rocketlens.Error, match="is closed"):
            closed.topics()


def test_closing_does_not_wait_for_another_threads_opening(g1_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opens, goes_on = threading.Event(), threading.Event()

    def open_slowly(*arguments: Any, **options: Any) -> MessageStore:
        opens.set()
        assert goes_on.wait(60)
        return open_message_store(*arguments, **options)

    monkeypatch.setattr("rocketlens.store.open_message_store", open_slowly)
    store = rocketlens.open(g1_store)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(store.topics)
        assert opens.wait(60)
        store.close()
        goes_on.set()
        with pytest.raises(rocketlens.Error, match="is closed"):
            asked.result(60)
    with pytest.raises(rocketlens.Error, match="is closed"):
        store.topics()


def test_opening_leaves_the_hosts_garbage_collector_alone(g1_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("disable", "freeze", "set_threshold"):
        monkeypatch.setattr(gc, name, lambda *_arguments: pytest.fail("the collector is the host's"))
    with rocketlens.open(g1_store) as store:
        assert len(store.query("TopicTest", key="hotkey")) == 40


def test_what_is_no_store_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(rocketlens.NotAStore, match="is no store that can be served"):
        rocketlens.open(tmp_path)


def test_options_that_cannot_be_are_errors(g1_store: Path) -> None:
    with pytest.raises(rocketlens.ConfigError, match="index_slots and index_entries: give both or neither"):
        rocketlens.open(g1_store, index_slots=5)
    with pytest.raises(rocketlens.ConfigError, match=r"state_directory .* inside the store"):
        rocketlens.open(g1_store, state_directory=g1_store / "state")


def test_a_batch_in_one_record_is_pulled_as_its_messages(tmp_path: Path) -> None:
    """The producer got the queue offset of the first message of each batch, and labelled each batch by its size."""
    recorded = GOLDEN / "g2" / "g2-queues"
    store_path = unpack("store", tmp_path, archives=recorded)
    lines = [line.split("\t") for line in (recorded / "produced.tsv").read_text().splitlines()]
    batches = {
        int(line[6]): int(line[0].removeprefix("inner-batch-")) for line in lines if line[4:6] == ["BatchCqTopic", "1"]
    }
    assert batches == {0: 3, 3: 1, 4: 5}
    with serving_in_a_thread(service_of(MessageStore.open(store_path))) as address:
        for source in (rocketlens.open(store_path), rocketlens.connect(str(address))):
            with source:
                found = list(pull_all(source, "BatchCqTopic", 1))
                assert [message.queue_offset for message in found] == list(range(sum(batches.values())))
                assert len({message.unique_key for message in found}) == len(found)
                inside = source.pull("BatchCqTopic", 1, 1, maximum=1)
                assert [message.queue_offset for message in inside] == [1, 2]
                assert inside.next_offset == 3


def test_what_takes_the_disk_is_counted_as_by_the_oracle(g1_store: Path, tmp_path: Path) -> None:
    records = read_log(g1_store / "commitlog")
    expected = count(records)
    (tmp_path / "broker.conf").write_text("fileReservedTime=24\n")
    with rocketlens.open(g1_store) as store:
        space = store.space(broker_config=tmp_path / "broker.conf")
        assert (space.messages, space.size) == (len(records), sum(record.total_size for record in records))
        topics = {each.names: [each.messages, each.size] for each in space.topics}
        assert topics == {(str(name, "utf-8"),): row for name, row in expected.topics.items()}  # type: ignore[call-overload]
        counts = {
            "queues": expected.queues, "tags": expected.tags, "hosts": expected.hosts, "hours": expected.hours
        }  # fmt: skip
        for name, rows in counts.items():
            found = [[each.messages, each.size] for each in getattr(space, name)]
            assert sorted(found) == sorted(rows.values()), name
        assert list(space.largest) == expected.largest[:100]
        assert store.view(space.largest[0][1])[0].physical_offset == expected.largest[0][1]
        assert space.forecast is not None
        assert space.forecast.settings.reserved_hours == 24
        assert space.notes == ()
        with pytest.raises(rocketlens.StoreError, match="nowhere"):
            store.space(broker_config=tmp_path / "nowhere")
