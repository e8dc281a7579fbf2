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
from rocketlens.opening import open_message_store
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
