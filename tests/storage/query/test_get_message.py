"""Pulls: a plain model of the broker's rules, and what a damaged store makes of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from damaged_units import QueueImage
from examples import examples
from oracles import Record, java_hash
from protocol.errors import StoreError, TruncatedFile
from queue_stores import open_queues, queue_of
from storage.files.mapped_file import MappedFile
from storage.files.waiting import Unfinished, begin
from storage.filter.expression import ExpressionFilter
from storage.filter.sql92 import parse
from storage.filter.tag import TagFilter, parse_tag_expression
from storage.kernels.pulls import RECORD_COLD, UNITS_COLD
from storage.kernels.pulls import pull as kernel_pull
from storage.query.get_message import GetMessageResult, GetMessageStatus, Lost, get_message, get_message_lookup
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit
from storage.queue.queue_files import QueueFiles
from store_queries import at_once, wait_of
from store_writer import StoreWriter

FILE_SIZE = 400  # twenty units
PLENTY = (1 << 31) - 1


def pull(root: Path, queue_offset: int = 0, maximum: int = 32, **more: Any) -> GetMessageResult:
    """A pull from queue 0 of topic T."""
    queues, _ = open_queues(root)
    options = {"max_bytes": PLENTY, "message_filter": None, "topic": "T", "queue_id": 0, **more}
    return get_message(queues, queue_offset=queue_offset, max_messages=maximum, **options)


def tag_filter(text: str) -> TagFilter:
    return TagFilter(parse_tag_expression(text))


class AskedFilter:
    """A tag filter that does not say that it is one: a pull then asks it unit by unit, without the kernel."""

    needs_properties = False
    choice = None

    def __init__(self, text: str) -> None:
        self._chosen = tag_filter(text)
        self.matches_everything = False

    def matches_consume_queue_entry(self, tags_code: int | None, extension: ConsumeQueueExtUnit | None) -> bool:
        return self._chosen.matches_consume_queue_entry(tags_code, extension)

    def matches_commit_log(self, properties: bytes | memoryview) -> bool:
        raise AssertionError("the second stage is not asked")


def make_store(root: Path, messages: int, **options: Any) -> StoreWriter:
    writer = StoreWriter(root, queue_file_size=FILE_SIZE, **options)
    for number in range(messages):
        writer.append("T", b"message %d" % number, tags=f"Tag{number % 3}")
    writer.flush()
    return writer


def bodies(result: GetMessageResult) -> list[bytes]:
    return [bytes(record) for record in result.records]


@dataclass
class Model:
    """The broker's loop over one file of units, in its own order of checks (store-format §5.4)."""

    units: list[tuple[int, int, int]]
    records: Mapping[int, Record]
    per_file: int

    def pull(self, offset: int, maximum: int, max_bytes: int, codes: set[int] | None) -> tuple[str, int, list[int]]:
        end = len(self.units)
        if not end:
            return "NO_MESSAGE_IN_QUEUE", 0, []
        if offset < 0:
            return "OFFSET_TOO_SMALL", 0, []
        if offset >= end:
            return ("OFFSET_OVERFLOW_ONE" if offset == end else "OFFSET_OVERFLOW_BADLY"), end, []
        status, following, found, count, size_so_far = "NO_MATCHED_MESSAGE", offset, list[int](), 0, 0
        stop = min(end, (offset // self.per_file + 1) * self.per_file)
        for number in range(offset, stop):
            place, size, code = self.units[number]
            if (number - offset) * 20 >= max(16000, maximum * 20):
                break
            if count and (count + 1 > maximum or size_so_far + size > max(max_bytes, 100)):
                break
            if count and (size_so_far + size > 262144 or count > 31):
                break
            following = number + 1
            if codes is not None and code not in codes:
                status = status if found else "NO_MATCHED_MESSAGE"
                continue
            if place not in self.records:
                status = status if found else "MESSAGE_WAS_REMOVING"
                continue
            status = "FOUND"
            found.append(place)
            count, size_so_far = count + 1, size_so_far + size
        return status, following, found


@settings(max_examples=examples(20))
@given(
    sizes=st.lists(st.integers(0, 400), max_size=70),
    damaged=st.sets(st.integers(0, 69), max_size=4),
    offset=st.integers(-1, 72),
    maximum=st.integers(-1, 40),
    max_bytes=st.integers(-1, 3000),
    tags=st.sampled_from(["*", "Tag0", "Tag1 || Tag2", "nosuch"]),
)
def test_every_pull_equals_the_model(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    damaged: set[int],
    offset: int,
    maximum: int,
    max_bytes: int,
    tags: str,
) -> None:
    root = tmp_path_factory.mktemp("pull")
    writer = StoreWriter(root, queue_file_size=FILE_SIZE)
    for number, size in enumerate(sizes):
        writer.append("T", bytes(size), tags=f"Tag{number % 3}")
    writer.roll()  # damage in the last segment would end the log there
    writer.append("other", b"")
    for number in damaged & set(range(len(sizes))):
        writer.overwrite(writer.written[number].physical_offset + 8, b"\x7f\xff\xff\xff" if sizes[number] else b"")
    writer.flush()
    records = {record.physical_offset: record for record in writer.records}
    units = [(w.physical_offset, w.size, java_hash(f"Tag{n % 3}")) for n, w in enumerate(writer.written[:-1])]
    codes = None if tags == "*" else {java_hash(tag.strip()) for tag in tags.split("||")}
    expected = Model(units, records, FILE_SIZE // 20).pull(offset, maximum, max_bytes, codes)
    for chosen in (tag_filter(tags), AskedFilter(tags)):
        result = pull(root, offset, maximum, max_bytes=max_bytes, message_filter=chosen)
        found = [int.from_bytes(record[28:36], "big") for record in result.records]
        assert (result.status.name, result.next_begin_offset, found) == expected


def test_a_pull_ends_after_32_messages_or_256_kib_or_with_the_file(tmp_path: Path) -> None:
    make_store(tmp_path / "many", 60)
    writer = StoreWriter(tmp_path / "long", segment_size=1 << 20)
    for _ in range(6):
        writer.append("T", bytes(60_000))
    writer.flush()
    assert len(pull(tmp_path / "many", 0, 1000).records) == 20  # with the queue's file
    assert len(pull(tmp_path / "long").records) == 4
    writer = StoreWriter(tmp_path / "one file")
    for _ in range(50):
        writer.append("T", b"")
    writer.flush()
    result = pull(tmp_path / "one file", 0, 1000)
    assert (len(result.records), result.next_begin_offset) == (32, 32)


def test_a_filter_looks_at_800_units_a_pull_unless_more_messages_are_asked_for(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=60_000)
    for _ in range(1000):
        writer.append("T", b"", tags="some")
    writer.flush()
    result = pull(tmp_path, 5, 32, message_filter=tag_filter("other"))
    assert (result.status, result.next_begin_offset) == (GetMessageStatus.NO_MATCHED_MESSAGE, 805)
    assert pull(tmp_path, 0, 900, message_filter=tag_filter("other")).next_begin_offset == 900
    assert pull(tmp_path, 0, PLENTY, message_filter=tag_filter("other")).next_begin_offset == 1000


def test_batches_count_with_all_their_messages(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    for _ in range(9):
        writer.append_inner_batch("T", [(b"", {})] * 5)
    writer.flush()
    result = pull(tmp_path, 7, 12)
    assert bodies(result) == [written.record for written in writer.written[1:3]]
    assert (result.next_begin_offset, result.max_offset) == (15, 45)
    assert len(pull(tmp_path, 0, 100).records) == 7  # 30 messages leave room for another five, 35 do not


def test_messages_that_the_log_has_not_either_are_counted(tmp_path: Path) -> None:
    writer = make_store(tmp_path, 90)
    (tmp_path / "consumequeue" / "T" / "0" / f"{FILE_SIZE:020d}").unlink()
    for number in (20, 27, 28, 39):
        writer.overwrite(writer.written[number].physical_offset, bytes(writer.written[number].size))
    result = pull(tmp_path, 25)
    assert bodies(result) == [writer.written[number].record for number in range(25, 60) if number not in (27, 28, 39)]
    assert (result.next_begin_offset, result.lost) == (60, Lost(3, 27, 40))
    assert str(result.lost).startswith("3 messages are lost at queue offsets 27 to 39: ")
    assert pull(tmp_path, 28).lost == Lost(2, 28, 40)
    assert str(pull(tmp_path, 39).lost).startswith("1 message is lost at queue offset")
    assert pull(tmp_path, 40).lost is None


def test_where_a_record_is_cold_the_pull_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_store(tmp_path, 3)

    warmed: list[tuple[int, int]] = []
    queues, _ = open_queues(tmp_path)
    file = queues.commit_log.segments[0].file
    monkeypatch.setattr(MappedFile, "warm", lambda _, *place: warmed.append(place))
    for status in (UNITS_COLD, RECORD_COLD):
        cold = SimpleNamespace(passed=status, decided=0, cold_file=file, cold_position=47, cold_length=status)

        def cold_at_first(*asked: Any, cold: Any = cold) -> Any:
            return cold if asked[-1] else kernel_pull(*asked)

        monkeypatch.setattr("storage.query.get_message.pull", cold_at_first)
        step = begin(get_message_lookup(queues, "T", 0, 0, 32, PLENTY))
        assert isinstance(step, Unfinished)
        assert str(step.wait) == f"{file.path.name} is cold at 47"
        assert len(step.finish().records) == 3
    assert warmed == [(47, UNITS_COLD), (47, RECORD_COLD)]


def test_units_of_a_file_that_was_cut_since_it_was_listed_are_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_store(tmp_path, 3)
    place = ConsumeQueue.place

    def beyond(queue: ConsumeQueue, queue_offset: int, maximum: int) -> Any:
        found = place(queue, queue_offset, maximum)
        return None if found is None else (*found[:2], FILE_SIZE)

    monkeypatch.setattr(ConsumeQueue, "place", beyond)
    with pytest.raises(TruncatedFile):
        pull(tmp_path)


def test_an_expression_of_very_many_steps_is_left_to_a_thread_that_may_wait(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    for _ in range(40):
        writer.append("T", b"")
    writer.flush()
    queues, _ = open_queues(tmp_path)
    long = ExpressionFilter(parse(" OR ".join(f"a = {number}" for number in range(7000))))
    assert "a long expression" in str(wait_of(get_message_lookup(queues, "T", 0, 0, 32, PLENTY, long)))
    short = ExpressionFilter(parse("a = 1"))
    assert at_once(get_message_lookup(queues, "T", 0, 0, 32, PLENTY, short)).records == []
    assert get_message(queues, "T", 0, 0, 32, PLENTY, long).records == []


def test_a_long_pull_alone_is_left_to_a_thread_that_may_wait(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, queue_file_size=200_000)
    for _ in range(5000):
        writer.append("T", b"")
    writer.flush()
    queues, _ = open_queues(tmp_path)
    assert queue_of(queues).max_offset == 5000
    assert len(at_once(get_message_lookup(queues, "T", 0, 0, 32, PLENTY)).records) == 32
    assert "long scan" in str(wait_of(get_message_lookup(queues, "T", 0, 0, 5000, PLENTY)))


@pytest.mark.parametrize(("wrong", "leads_to"), [(1, 0), (20, 19), (19, 24), (44, 43), (44, 0)])
@pytest.mark.parametrize("filtered", [None, "TagA", "TagB"])
def test_a_unit_that_leads_to_an_earlier_message_or_too_far_ahead_hides_none(
    wrong: int, leads_to: int, filtered: str | None, tmp_path: Path
) -> None:
    """Also the first unit of a file, before which a pull sees none, and the last one, behind which it sees none."""
    writer = tagged_store(tmp_path)
    units = QueueImage(writer.root / "consumequeue" / "T" / "0")
    units.put(wrong, units.unit(leads_to))
    for start in (0, wrong - 1, wrong):
        expected = [number for number in range(start, 45) if filtered in (None, tag_of(number))]
        assert drained(writer.root, start, filtered) == expected


@pytest.mark.parametrize(("gone", "is_damaged", "filtered"), [(0, False, None), (2, True, "TagA"), (0, True, None)])
def test_a_file_that_cannot_be_opened_fails_no_pull_from_the_one_beside_it(
    gone: int, is_damaged: bool, filtered: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker deletes expired files while others look; also where the unit beside it leads elsewhere."""
    writer = tagged_store(tmp_path)
    first, stop = 20 + int(is_damaged and gone == 0), 40 - int(is_damaged and gone == 2)
    if is_damaged:
        units = QueueImage(writer.root / "consumequeue" / "T" / "0")
        units.put(39 if gone else 20, units.unit(25))
    queues, _ = open_queues(writer.root)
    queue = queue_of(queues)
    assert (queue.min_offset, queue.max_offset) == (0, 45)
    map_of = QueueFiles.map_of

    def map_others(files: QueueFiles, number: int) -> MappedFile:
        if number == gone:
            raise StoreError(files.files[number].path, what="cannot be opened")
        return map_of(files, number)

    monkeypatch.setattr(QueueFiles, "map_of", map_others)
    chosen = None if filtered is None else tag_filter(filtered)
    offset, found = first, list[int]()
    while offset < stop:
        result = get_message(queues, "T", 0, offset, 32, (1 << 31) - 1, chosen)
        found += [int.from_bytes(record[20:28]) for record in result.records]
        assert offset < result.next_begin_offset <= stop
        offset = result.next_begin_offset
    assert found == [number for number in range(first, stop) if filtered in (None, tag_of(number))]


def tag_of(number: int) -> str:
    """The tag of a message."""
    return "TagA" if number % 2 else "TagB"


def tagged_store(tmp_path: Path) -> StoreWriter:
    """Forty-five messages in three files."""
    writer = StoreWriter(tmp_path / "store", queue_file_size=FILE_SIZE)
    for number in range(45):
        writer.append("T", b"body", tags=tag_of(number))
    writer.close()
    return writer


def drained(root: Path, offset: int, filtered: str | None) -> list[int]:
    """Queue offsets of what pulls bring from one on."""
    found: list[int] = []
    while offset < 45:
        result = pull(root, offset, message_filter=filtered and tag_filter(filtered))
        found += [int.from_bytes(record[20:28]) for record in result.records]
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
    return found
