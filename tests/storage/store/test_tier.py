"""A tier alone, and a store with its tier: every message by queue offset, time, tag, key and unique key, once."""

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from damaged_units import QueueImage
from oracles import read_record
from protocol.errors import NotAStore, StoreError
from protocol.message import decode_message, decode_messages
from protocol.question import KeyKind, Question
from queue_stores import queue_of
from storage.layout.tier_layout import TierLayout, recognise_tier
from storage.query.get_message import GetMessageStatus, get_message
from storage.queue._joined_queue import JoinedQueue
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.queue import TimeBoundary
from storage.queue.tier import Tier
from storage.store.message_store import MessageStore, StoreOptions
from store_kinds import tier_name, write_tier
from store_writer import StoreWriter, Written

MESSAGES = 120
IN_TIER = 100
"""Messages of each queue, as many of which its tier has; the store has those from `EXPIRED` on."""
EXPIRED = 60


@dataclass(frozen=True)
class Tiered:
    store: Path
    tier: Path
    written: dict[int, list[Written]]

    def open(self) -> MessageStore:
        return MessageStore.open(self.store, StoreOptions(tier=self.tier, keeps_state=False))

    def alone(self) -> MessageStore:
        return MessageStore.open(self.tier, StoreOptions(keeps_state=False))


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Tiered:
    directory = tmp_path_factory.mktemp("tiered")
    with StoreWriter(directory / "store", segment_size=4096) as writer:
        written: dict[int, list[Written]] = {0: [], 1: []}
        for number in range(MESSAGES * 2):
            queue_id = number % 2
            keys, tags = f"k{number} shared", ("TagA", "TagB")[number % 3 == 0]
            properties = {"a": str(number)}
            message = writer.append("T", b"x" * (number % 40), keys=keys, unique_key=f"U{number:04d}", tags=tags,
                                    queue_id=queue_id, properties=properties)  # fmt: skip
            written[queue_id].append(message)
    write_tier(directory / "tier", [message for each in written.values() for message in each[:IN_TIER]])
    first = written[0][EXPIRED].physical_offset
    for segment in (directory / "store" / "commitlog").iterdir():
        if int(segment.name) + 4096 <= first:
            segment.unlink()
    return Tiered(directory / "store", directory / "tier", written)


def copy_of(tiered: Tiered, directory: Path) -> Tiered:
    shutil.copytree(tiered.store, directory / "store")
    shutil.copytree(tiered.tier, directory / "tier")
    return Tiered(directory / "store", directory / "tier", tiered.written)


def pull_all(store: MessageStore, queue_id: int, start: int = 0) -> list[memoryview]:
    found: list[memoryview] = []
    offset, end = start, start + 1
    while offset < end:
        result = get_message(store.queues, "T", queue_id, offset, 32, 1 << 20)
        assert result.next_begin_offset > offset, result.status
        found += result.records
        offset, end = result.next_begin_offset, result.max_offset
    return found


def bodies(records: list[memoryview]) -> list[tuple[int, bytes]]:
    return [(message.queue_offset, bytes(message.body)) for message in map(decode_message, records)]


def expected(tiered: Tiered, queue_id: int, first: int, stop: int) -> list[tuple[int, bytes]]:
    records = [read_record(each.record, 0) for each in tiered.written[queue_id][first:stop]]
    return [(record.queue_offset, record.body) for record in records if record is not None]


@pytest.mark.parametrize("queue_id", [0, 1])
def test_a_queue_goes_on_from_the_tier_into_the_log_without_a_seam(tiered: Tiered, queue_id: int) -> None:
    store = tiered.open()
    assert store.problems == []
    queue = store.queues.queue("T", queue_id)
    assert isinstance(queue, JoinedQueue)
    assert (queue.min_offset, queue.max_offset) == (0, MESSAGES)
    seam = queue.parts[-1].first
    assert [(part.first, part.stop) for part in queue.parts] == [(0, seam), (seam, MESSAGES)]
    assert 0 < seam <= EXPIRED < IN_TIER
    for start in (0, 1, seam - 1, seam, seam + 1, IN_TIER - 1, IN_TIER, MESSAGES - 1):
        assert bodies(pull_all(store, queue_id, start=start)) == expected(tiered, queue_id, start, MESSAGES)


def found_offsets(store: MessageStore, key: str, kind: KeyKind, **options: int) -> list[tuple[int, int]]:
    answer = store.query(Question("T", key, kind, **options))
    return [(message.queue_id, message.queue_offset) for message in decode_messages(answer.records)]


@pytest.mark.parametrize("is_alone", [False, True])
def test_times_are_found_over_both_parts_and_each_message_by_its_keys_once(tiered: Tiered, is_alone: bool) -> None:
    store, stop = (tiered.alone(), IN_TIER) if is_alone else (tiered.open(), MESSAGES)
    queue = queue_of(store.queues, queue_id=1)
    times = [each.store_timestamp for each in tiered.written[1][:stop]]
    for number, time in list(enumerate(times))[::5]:
        assert queue.store_timestamp_at(number) == time
        assert queue.offset_by_timestamp(time, TimeBoundary.LOWER) == number
        assert queue.offset_by_timestamp(time, TimeBoundary.UPPER) == number
        assert queue.offset_by_timestamp(time - 1, TimeBoundary.LOWER) == number
    assert queue.offset_by_timestamp(times[-1] + 1, TimeBoundary.LOWER) == stop
    assert queue.offset_by_timestamp(0, TimeBoundary.LOWER) == 0
    for queue_id, written in tiered.written.items():
        for offset in range(0, stop, 25):
            number = offset * 2 + queue_id
            assert written[offset].queue_offset == offset
            assert found_offsets(store, f"U{number:04d}", KeyKind.UNIQUE) == [(queue_id, offset)]
            assert found_offsets(store, f"k{number}", KeyKind.KEY) == [(queue_id, offset)]
    everything = sorted((queue_id, offset) for queue_id in (0, 1) for offset in range(stop))
    assert sorted(found_offsets(store, "shared", KeyKind.KEY, maximum=1000)) == everything
    tagged = [each for each in everything if (each[1] * 2 + each[0]) % 3 == 0]
    assert sorted(found_offsets(store, "TagB", KeyKind.TAG, maximum=1000)) == tagged


def test_times_are_found_in_the_store_where_its_first_units_are_damaged(tiered, tmp_path) -> None:
    copied = copy_of(tiered, tmp_path)
    seam = queue_of(copied.open().queues).parts[-1].first
    image = QueueImage(copied.store / "consumequeue" / "T" / "0")
    for number in range(seam, seam + 10):
        image.put(number, b"\xff" * 20)
    queue = queue_of(copied.open().queues)
    for number in range(seam, seam + 11):
        time = tiered.written[0][number].store_timestamp
        assert [queue.offset_by_timestamp(time, boundary) for boundary in TimeBoundary] == [number, number]


def test_the_newest_matches_come_first_and_what_is_left_out_is_said(tiered: Tiered) -> None:
    alone = tiered.alone().query(Question("T", "shared", KeyKind.KEY, maximum=10))
    offsets = [(message.queue_offset, message.queue_id) for message in decode_messages(alone.records)]
    assert offsets == [(offset, queue_id) for offset in range(IN_TIER - 5, IN_TIER) for queue_id in (0, 1)]
    assert alone.incomplete == "older matches in the tier are left out: narrow the time to get them"
    joined = tiered.open()
    first = joined.query(Question("T", "shared", KeyKind.KEY, maximum=100))
    assert first.truncated
    before = first.physical_offsets[0]
    second = joined.query(Question("T", "shared", KeyKind.KEY, maximum=1000, before_physical_offset=before))
    assert first.count + second.count == 2 * MESSAGES
    assert not second.truncated
    assert second.incomplete is None


def test_a_store_and_its_tier_are_followed_while_both_grow(tmp_path: Path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        written = [writer.append("T", b"%d" % number, unique_key=f"U{number}") for number in range(40)]
        write_tier(tmp_path / "tier", written[:20])
        writer.flush()
        store = MessageStore.open(writer.root, StoreOptions(tier=tmp_path / "tier", keeps_state=False))
        follower = store.follower()
        for own, in_tier in ((40, 20), (55, 20), (55, 50), (90, 70)):
            while len(written) < own:
                number = len(written)
                written.append(writer.append("T", b"%d" % number, unique_key=f"U{number}"))
            write_tier(tmp_path / "tier", written[:in_tier])
            writer.flush()
            follower.watch()
            for _ in range(6):  # the last record is seen, found unchanged, and dispatched
                follower.poll()
            assert bodies(pull_all(store, 0)) == [(number, b"%d" % number) for number in range(own)]
            assert found_offsets(store, f"U{own - 1}", KeyKind.UNIQUE) == [(0, own - 1)]
        assert store.problems == []


def test_a_tier_that_begins_later_and_a_log_that_begins_later_still_leave_what_there_is(tmp_path, tiered) -> None:
    write_tier(tmp_path / "tier", tiered.written[0][20:40])
    store = MessageStore.open(tiered.store, StoreOptions(tier=tmp_path / "tier", keeps_state=False))
    queue = store.queues.queue("T", 0)
    assert (queue.min_offset, queue.max_offset) == (20, MESSAGES)
    seam = queue.parts[-1].first
    assert seam > 40
    parts = [(part.first, part.stop, part.queue is None) for part in queue.parts]
    assert parts == [(20, 40, False), (40, seam, True), (seam, MESSAGES, False)]
    result = get_message(store.queues, "T", 0, 40, 32, 1 << 20)
    assert result.status is GetMessageStatus.MESSAGE_WAS_REMOVING
    assert result.lost.count == seam - 40
    found = bodies(pull_all(store, 0, start=20))
    assert found == expected(tiered, 0, 20, 40) + expected(tiered, 0, seam, MESSAGES)


def test_the_tier_of_another_store_is_left_out_and_named(tmp_path: Path, tiered: Tiered) -> None:
    other = StoreWriter(tmp_path / "other")
    written = [other.append("T", b"other", keys="shared") for _ in range(IN_TIER)]
    write_tier(tmp_path / "tier", written)
    store = MessageStore.open(tiered.store, StoreOptions(tier=tmp_path / "tier", keeps_state=False))
    queue = store.queues.queue("T", 0)
    assert isinstance(queue, ConsumeQueue)
    assert bodies(pull_all(store, 0, start=queue.min_offset)) == expected(tiered, 0, queue.min_offset, MESSAGES)
    (problem,) = store.problems
    assert str(tmp_path / "tier") in problem
    assert "another store" in problem


@pytest.mark.parametrize(("kind", "lacks"), [("COMMIT_LOG", "no record"), ("CONSUME_QUEUE", "no unit")])
def test_half_a_queue_is_refused_by_name_and_never_empty(tmp_path: Path, tiered: Tiered, kind: str, lacks: str) -> None:
    copied = copy_of(tiered, tmp_path)
    (directory,) = copied.tier.glob(f"*/*/T/0/{kind}")
    shutil.rmtree(directory)
    for store in (copied.alone(), copied.open()):
        with pytest.raises(StoreError, match=lacks) as raised:
            get_message(store.queues, "T", 0, 0, 32, 1 << 20)
        assert str(directory) in str(raised.value)
        assert bodies(pull_all(store, 1))[:IN_TIER] == expected(tiered, 1, 0, IN_TIER)


def test_one_of_several_brokers_has_to_be_named(tmp_path: Path, tiered: Tiered) -> None:
    copied = copy_of(tiered, tmp_path)
    (broker,) = copied.tier.glob("*/broker-a")
    shutil.copytree(broker, broker.with_name("broker-b"))
    with pytest.raises(NotAStore, match=r"2 brokers.*broker-a.*broker-b"):
        copied.alone()
    one = MessageStore.open(broker, StoreOptions(keeps_state=False))
    assert bodies(pull_all(one, 0)) == expected(tiered, 0, 0, IN_TIER)


def test_cut_metadata_and_files_that_it_names_and_the_tier_lacks_are_named(tmp_path, tiered) -> None:
    copied = copy_of(tiered, tmp_path)
    path = copied.store / "config" / "tieredStoreMetadata.json"
    path.parent.mkdir(exist_ok=True)
    for text in ("", '{"commitLogFileSegmentTable":{"broker-a/T/0":{0:{', "[1]"):
        path.write_text(text)
        store = copied.open()
        assert any(str(path) in problem and "by its files alone" in problem for problem in store.problems)
    assert bodies(pull_all(store, 0)) == expected(tiered, 0, 0, MESSAGES)
    path.write_text(
        '{"commitLogFileSegmentTable":{"broker-a/T/0":{0:{"baseOffset":0,"status":0,"size":99999999},'
        '7:{"baseOffset":7,"status":0,"size":1},8:{"baseOffset":8,"status":2,"size":1},'
        '9:{"baseOffset":-9,"status":0,"size":1},10:{"baseOffset":10,"status":0,"size":"1"}},"../x/0":{0:{}},'
        '"broker-a/T\\u0000/0":{0:{"baseOffset":0,"status":0,"size":3}}}}'
    )
    problems = [problem for problem in copied.open().problems if "tieredStoreMetadata" in problem]
    assert len(problems) == 3
    assert any("T\0/0" in problem and "is missing" in problem for problem in problems)
    assert any(tier_name(7) in problem and "is missing" in problem for problem in problems)
    assert any(tier_name(0) in problem and "99999999" in problem for problem in problems)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 20))])
def test_whatever_is_damaged_answers_are_messages_or_an_error_that_names_a_file(seed, tmp_path, tiered) -> None:
    """Bytes changed, files cut, removed, or filled with large numbers: never another message, nor any other error."""
    copied, chance = copy_of(tiered, tmp_path), random.Random(seed)
    files = sorted(copied.tier.glob("*/*/T/0/*/*"))
    for path in chance.sample(files, chance.randint(1, 3)):
        content = bytearray(path.read_bytes())
        at, kind = chance.randrange(len(content)), chance.choice(["cut", "byte", "large", "gone"])
        if kind == "gone":
            path.unlink()
            continue
        if kind == "cut":
            del content[at:]
        else:
            piece = chance.randbytes(chance.randint(1, 8)) if kind == "byte" else b"\x7f" + b"\xff" * 7
            content[at : at + len(piece)] = piece
        path.write_bytes(content)
    known = dict(expected(tiered, 0, 0, MESSAGES))
    for store in (copied.alone(), copied.open()):
        try:
            found = bodies(pull_all(store, 0))
            keyed = list(decode_messages(store.query(Question("T", "shared", KeyKind.KEY, maximum=1000)).records))
        except StoreError as error:
            assert "T/0" in str(error)  # noqa: PT017 - it names the file
            continue
        assert all(known[offset] == body for offset, body in found)
        assert [offset for offset, _ in found] == sorted({offset for offset, _ in found})
        assert all(known[message.queue_offset] == message.body for message in keyed if message.queue_id == 0)
        assert len({message.queue_offset for message in keyed if message.queue_id == 1}) >= IN_TIER
        assert bodies(pull_all(store, 1))[:IN_TIER] == expected(tiered, 1, 0, IN_TIER)


def test_a_topic_that_comes_while_topics_are_listed_is_noticed(tmp_path, tiered, monkeypatch) -> None:
    layout = recognise_tier(copy_of(tiered, tmp_path).tier)
    os.utime(layout.broker, (1, 1))
    listed = TierLayout.topics

    def topics(self: TierLayout) -> frozenset[str]:
        found = listed(self)
        (self.broker / "Came").mkdir(exist_ok=True)
        return found

    monkeypatch.setattr(TierLayout, "topics", topics)
    tier = Tier(layout)
    assert "Came" not in tier.topics
    assert tier.has_changed()
    assert "Came" in Tier(layout, tier).topics
