"""Units of damaged queues as pulls and the page read them: each leads to its message, or says that it is lost."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from doctoring import put
from examples import examples
from oracles import java_hash, packed, read_record
from queue_stores import open_queues, unit_bytes
from storage.query.get_message import get_message
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.queue_store import QueueStore
from storage.queue.unit_reader import LOST, entries_between
from store_writer import StoreWriter, Written

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
