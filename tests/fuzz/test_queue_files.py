"""Any bytes in the files of a queue: every question has an answer within the queue's bounds, and nothing is raised."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import packed
from queue_stores import open_queues
from storage.files.waiting import finish
from storage.filter.tag import TagFilter, parse_tag_expression
from storage.query.get_message import GetMessageResult, GetMessageStatus, get_message
from storage.queue.queue import Queue, TimeBoundary
from store_files import write_file
from store_writer import StoreWriter

I64 = st.one_of(st.integers(0, 3000), st.integers(-(1 << 63), (1 << 63) - 1))
I32 = st.one_of(st.integers(80, 120), st.integers(-(1 << 31), (1 << 31) - 1))
PLAIN_UNIT = st.tuples(I64, I32, I64).map(lambda unit: packed(unit[0], 8) + packed(unit[1], 4) + packed(unit[2], 8))
BATCH_UNIT = st.tuples(I64, I32, I64, I64, I64, st.integers(-2, 5)).map(
    lambda unit: b"".join(packed(value, size) for value, size in zip(unit, (8, 4, 8, 8, 8, 2), strict=True)) + bytes(8)
)


def content_of(unit: st.SearchStrategy[bytes]) -> st.SearchStrategy[list[bytes]]:
    """Some files: units with any values, or any bytes."""
    return st.lists(st.one_of(st.lists(unit, max_size=6).map(b"".join), st.binary(max_size=150)), max_size=5)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose log holds some messages; its queue files are written anew for each example."""
    root = tmp_path_factory.mktemp("fuzz")
    writer = StoreWriter(root)
    for number in range(20):
        writer.append("T", b"%d" % number, tags="TagA", properties={"INNER_NUM": "2", "INNER_BASE": str(2 * number)})
    writer.flush()
    return root


def ask_everything(root: Path, offset: int, count: int, timestamp: int) -> None:
    queues, _ = open_queues(root)
    queue = queues.queue("T", 0)
    assert queue is not None
    minimum, end = queue.min_offset, queue.max_offset
    assert minimum <= end
    for queue_offset in (offset, minimum, minimum + 1, end - 1, end):
        entries = queue.entries(queue_offset, count)
        assert len(entries) <= max(count, 0)
        entry = queue.entry_at(queue_offset)
        assert entry is None or minimum <= queue_offset < end
        assert queue.store_timestamp_at(queue_offset) >= -(1 << 63)
        if minimum <= queue_offset < end:
            hole = finish(queue.hole_at_lookup(queue_offset))
            assert hole.is_done
            assert hole.first <= queue_offset < hole.stop
            assert queue_offset < hole.after(queue_offset) <= hole.stop
        check_pull(get_message(queues, "T", 0, queue_offset, count, 4000), queue)
        check_pull(get_message(queues, "T", 0, queue_offset, count, 4000, tag_filter), queue)
    for boundary in TimeBoundary:
        assert max(minimum, 0) <= queue.offset_by_timestamp(timestamp, boundary) <= max(end, minimum, 0)
    found = queues.offsets_with_tag("T", timestamp, 5, 1 << 62).tolist()
    assert found == sorted(set(found), reverse=True)
    assert all(5 <= physical_offset < 1 << 62 for physical_offset in found)


tag_filter = TagFilter(parse_tag_expression("TagA"))


def check_pull(result: GetMessageResult, queue: Queue) -> None:
    assert (result.status is GetMessageStatus.FOUND) == bool(result.records)
    assert all(queue.name.owns(record) for record in result.records)


def write_files(directory: Path, files: list[bytes], step: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for path in directory.iterdir():
        path.unlink()
    for number, content in enumerate(files):
        write_file(directory / f"{number * step:020d}", len(content), {0: content})


@given(files=content_of(PLAIN_UNIT), offset=I64, count=st.integers(-1, 40), timestamp=I64)
def test_any_bytes_are_a_plain_queue(root: Path, files: list[bytes], offset: int, count: int, timestamp: int) -> None:
    write_files(root / "consumequeue" / "T" / "0", files, 100)
    ask_everything(root, offset, count, timestamp)


@given(files=content_of(BATCH_UNIT), offset=I64, count=st.integers(-1, 40), timestamp=I64)
def test_any_bytes_are_a_queue_of_batches(
    root: Path, files: list[bytes], offset: int, count: int, timestamp: int
) -> None:
    write_files(root / "consumequeue" / "T" / "0", [], 100)
    write_files(root / "batchconsumequeue" / "T" / "0", files, 230)
    ask_everything(root, offset, count, timestamp)
    write_files(root / "batchconsumequeue" / "T" / "0", [], 230)
