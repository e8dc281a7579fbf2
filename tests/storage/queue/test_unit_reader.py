"""Units of damaged queues as pulls and the page read them: each leads to its message, or says that it is lost."""

import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from damaged_units import QueueImage
from doctoring import put
from examples import examples
from oracles import java_hash, packed, read_record
from queue_stores import open_queues, unit_bytes
from storage.query.get_message import get_message
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.queue import TimeBoundary
from storage.queue.queue_store import QueueStore
from storage.queue.unit_reader import LOST, entries_between
from store_writer import StoreWriter, Written

BODY = 90
"""A position within the body of a record without addresses of IPv6."""

COUNT, A_FILE = 60, 10
"""The last file of a queue stays whole: where a queue ends is found elsewhere."""


class Made:
    """A store, and the messages of its queue T 0.

    No dataclass: Hypothesis prints the fields of one with each example that fails, and warns of a long text, which
    would take the place of the failure.
    """

    def __init__(self, root: Path, plain: list[Written]) -> None:
        self.root, self.plain = root, plain


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    writer = StoreWriter(tmp_path_factory.mktemp("reader") / "store", segment_size=4096, queue_file_size=20 * A_FILE)
    plain = []
    for number in range(COUNT):
        plain.append(writer.append("T", b"x" * number, tags="ABC"[number % 3]))
        writer.append("T", b"another queue", queue_id=1)
    writer.close()
    return Made(writer.root, plain)


KINDS = ("zeros", "ones", "minus one", "far", "within a record", "another message")


def unit_contents(made: Made, number: int) -> dict[str, bytes]:
    """What may be in the place of the unit of a message, by what it is."""
    far, stranger = made.plain[COUNT - 1].physical_offset + 10**9, made.plain[1 if number == 2 else 2]
    return {
        "zeros": bytes(20),
        "ones": b"\xff" * 20,
        "minus one": packed(-1, 8) + bytes(12),
        "far": unit_bytes(far, 99, 7),
        "within a record": unit_bytes(stranger.physical_offset + 5, 99, 7),
        "another message": unit_bytes(stranger.physical_offset, stranger.size, 7),
    }


def places(records: list[memoryview]) -> list[int]:
    """Physical offsets of records, by what they say themselves."""
    found = [read_record(bytes(record), 0) for record in records]
    return [record.physical_offset for record in found if record is not None]


def pulled(queues: QueueStore, topic: str, end: int) -> list[memoryview]:
    """What a consumer gets of queue 0, from its beginning to its end."""
    found: list[memoryview] = []
    offset = 0
    while offset < end:
        result = get_message(queues, topic, 0, offset, 7, 1 << 20)
        assert result.next_begin_offset > offset
        found += result.records
        offset = result.next_begin_offset
    return found


NUMBERS = st.integers(0, COUNT - A_FILE - 1)


@settings(max_examples=examples(6), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    damaged=st.dictionaries(NUMBERS, st.sampled_from(KINDS), max_size=12),
    lost_files=st.sets(st.integers(0, COUNT // A_FILE - 2), max_size=2),
    gone=st.sets(NUMBERS, max_size=4),
    first=st.integers(0, COUNT - 1),
)
@example(damaged={0: "zeros", 20: "minus one"}, lost_files={1}, gone=set(), first=0)
def test_entries_are_those_of_all_messages_that_the_log_has_and_pulls_bring_them(
    damaged: dict[int, str], lost_files: set[int], gone: set[int], first: int, made: Made
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        root = shutil.copytree(made.root, Path(directory) / "store")
        units = root / "consumequeue" / "T" / "0"
        for number, content in damaged.items():
            bad = unit_contents(made, number)[content]
            put(units / f"{number // A_FILE * A_FILE * 20:020d}", number % A_FILE * 20, bad)
        for number in lost_files:
            (units / f"{number * A_FILE * 20:020d}").unlink()
        for number in gone:
            place = made.plain[number].physical_offset
            put(root / "commitlog" / f"{place // 4096 * 4096:020d}", place % 4096, bytes(made.plain[number].size))
        queues, _ = open_queues(root)
        queue = queues.queue("T", 0)
        assert isinstance(queue, ConsumeQueue)
        end = queue.max_offset
        assert end == COUNT
        start = max(first, queue.min_offset)
        reached, listed = start, list[int]()
        for entry in entries_between(queue, start, end):
            assert entry.queue_offset == reached
            reached += entry.batch_size
            there = [number for number in range(entry.queue_offset, reached) if number not in gone]
            if entry.size == LOST:
                assert there == []
                continue
            written = made.plain[entry.queue_offset]
            assert entry.physical_offset == written.physical_offset
            if there:
                assert (entry.size, entry.tags_code) == (written.size, java_hash("ABC"[entry.queue_offset % 3]))
                listed.append(entry.physical_offset)
        assert reached == end
        assert listed == [each.physical_offset for n, each in enumerate(made.plain) if n >= start and n not in gone]
        found = places(pulled(queues, "T", end))
        assert found == [each.physical_offset for number, each in enumerate(made.plain) if number not in gone]


@pytest.mark.parametrize("seed", range(examples(16)))
@pytest.mark.parametrize("kind", ["plain", "batches"])
def test_no_intact_message_is_passed_where_units_and_records_are_damaged(kind, seed, tmp_path) -> None:
    """Bits of units that flipped, units of other batches; of the log a damaged record, or a segment that is gone."""
    chance, size = random.Random(seed), 46 if kind == "batches" else 20
    writer = StoreWriter(tmp_path / "store", segment_size=2048)
    for number in range(COUNT):
        if kind == "batches":
            writer.append_inner_batch("T", [(b"x" * 20, {})] * (number % 3 + 1))
        else:
            writer.append("T", b"x" * 60)
    writer.close()
    records, intact = writer.records, set(range(COUNT))
    if seed % 4 == 1:
        gone = chance.randrange(2048, records[-3].physical_offset, 2048) // 2048 * 2048
        (writer.root / f"commitlog/{gone:020d}").unlink()
        intact = {number for number in intact if not 0 <= records[number].physical_offset - gone < 2048}
    elif seed % 4:
        damaged = {0, chance.randrange(COUNT - 3)} if seed % 4 == 2 else set()
        for number in damaged:
            place = records[number].physical_offset
            put(writer.root / f"commitlog/{place // 2048 * 2048:020d}", place % 2048 + BODY, b"?")
        intact -= damaged
    image = QueueImage(writer.root / ("batchconsumequeue" if size == 46 else "consumequeue") / "T/0", size)
    wrong = chance.sample(range(COUNT - 3), 2)
    units = [bytearray(image.unit(number)) for number in wrong]
    if size == 46 and seed % 3 == 0:
        contents = units[::-1]
    elif size == 46 and seed % 3 == 1:
        contents = [image.unit(number // 2) for number in wrong]
    else:
        for unit in units:
            at = chance.choice([0, *range(2, 12), *range(20, size - 8)])
            unit[at] ^= 1 << chance.randrange(8)
        if seed % 4 == 1:  # which leads into the segment that is gone
            units[0][:8] = packed(gone + chance.randrange(2000), 8)
        contents = units
    for number, unit in zip(wrong, contents, strict=True):
        image.put(number, unit)
    queues, _ = open_queues(writer.root)
    queue = queues.queue("T", 0)
    assert queue is not None
    end, first = queue.max_offset, [record.queue_offset for record in records]

    def times() -> list[int]:
        return [queue.offset_by_timestamp(record.store_timestamp, TimeBoundary.LOWER) for record in records]

    expected = [records[number].physical_offset for number in sorted(intact)]
    questions = {
        "pulls": lambda: [place for place in places(pulled(queues, "T", end)) if place in expected],
        "entries": lambda: [each.physical_offset for each in entries_between(queue, 0, end) if each.size != LOST],
        "single": lambda: [queue.message_in_log(first[number]) for number in sorted(intact)],
        "times": lambda: times() if len(intact) == COUNT else first,
    }
    for name in chance.sample(sorted(questions), len(questions)):
        found = questions[name]()
        if name == "times":
            assert found == first
        else:
            assert [place for place in found if place in expected] == expected, name
