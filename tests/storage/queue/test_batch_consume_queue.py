"""Queues of batches: one unit for each record, found by queue offset and by time, whatever lies in the files."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from queue_stores import batch_queue, open_queues
from storage.queue.queue import TimeBoundary
from store_queries import at_once
from store_writer import StoreWriter

FILE_SIZE = 46 * 4


def make_store(root: Path, sizes: list[int], **options: object) -> StoreWriter:
    """A store of one topic of batches with these numbers of messages, in files of four units."""
    writer = StoreWriter(root, batch_queue_file_size=FILE_SIZE, **options)  # type: ignore[arg-type]
    for number, size in enumerate(sizes):
        writer.append_inner_batch("B", [(b"%d" % part, {}) for part in range(size)], tags=f"Tag{number % 2}")
    writer.flush()
    return writer


def directory_of(root: Path) -> Path:
    return root / "batchconsumequeue" / "B" / "0"


def test_a_queue_offset_leads_to_the_batch_that_holds_it(tmp_path: Path) -> None:
    sizes = [3, 1, 5, 2, 2, 4, 1, 1, 9]
    writer = make_store(tmp_path, sizes)
    queue = batch_queue(tmp_path, "B")
    assert (queue.min_offset, queue.max_offset) == (0, sum(sizes))
    base = 0
    for written, size in zip(writer.written, sizes, strict=True):
        for queue_offset in range(base, base + size):
            entry = queue.entry_at(queue_offset)
            assert entry is not None
            assert (entry.queue_offset, entry.batch_size) == (base, size)
            assert (entry.physical_offset, entry.size) == (written.physical_offset, written.size)
            assert queue.store_timestamp_at(queue_offset) == written.store_timestamp
        base += size


def test_outside_its_bounds_a_queue_has_no_batch(tmp_path: Path) -> None:
    make_store(tmp_path, [3, 3])
    queue = batch_queue(tmp_path, "B")
    for queue_offset in (-1, 6, 1 << 62):
        assert queue.entry_at(queue_offset) is None
        assert at_once(queue.walk(queue_offset, 9)) is None
        assert queue.store_timestamp_at(queue_offset) == -1


def test_a_gap_between_batches_leads_to_the_next_one(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    first = writer.append_inner_batch("B", [(b"", {})] * 3)
    writer.next_queue_offset["B", 0] = 10
    writer.append_inner_batch("B", [(b"", {})] * 2)
    writer.flush()
    queue = batch_queue(tmp_path, "B")
    assert queue.entry_at(5) is None
    walked = at_once(queue.walk(5, 9))
    assert walked is not None
    assert [found[:2] for found in walked] == [(10, 12)]
    assert queue.entry_at(2) is not None
    assert at_once(queue.newest_physical_offset()) > first.physical_offset


def test_a_queue_without_units_begins_nowhere(tmp_path: Path) -> None:
    make_store(tmp_path, [1])
    (tmp_path / "batchconsumequeue" / "B" / "1").mkdir()
    queue = open_queues(tmp_path)[0].queue("B", 1)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (-1, 0)
    assert queue.offset_by_timestamp(5, TimeBoundary.LOWER) == 0
    assert queue.entry_at(0) is None


# --- time -------------------------------------------------------------------------------------------------------------


def model(times: list[int], sizes: list[int], timestamp: int, boundary: TimeBoundary) -> int:
    """What a search means: a batch's base offset. Behind everything LOWER is the last batch, as a broker answers."""
    bases = [sum(sizes[:number]) for number in range(len(sizes))]
    if boundary is TimeBoundary.LOWER:
        return min((base for base, time in zip(bases, times, strict=True) if time >= timestamp), default=bases[-1])
    return max((base for base, time in zip(bases, times, strict=True) if time <= timestamp), default=0)


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), min_size=1, max_size=14),
    st.dictionaries(st.integers(0, 3), st.booleans(), max_size=3),
)
@example([(1, 2)] * 6, {1: True})
@example([(1, 2)] * 6, {0: True})
@example([(1, 2)] * 3, {0: False})
def test_every_search_equals_the_model_whatever_files_are_lost(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[int, int]], lost: dict[int, bool]
) -> None:
    root = tmp_path_factory.mktemp("batches")
    times = [1000 + sum(step for step, _ in batches[: number + 1]) for number in range(len(batches))]
    sizes = [size for _, size in batches]
    writer = StoreWriter(root, batch_queue_file_size=FILE_SIZE)
    for time, size in zip(times, sizes, strict=True):
        writer.append_inner_batch("B", [(b"", {})] * size, store_timestamp=time)
    writer.flush()
    for number, path in enumerate(sorted(directory_of(root).iterdir())):
        if lost.get(number):
            path.write_bytes(b"")
        elif number in lost:
            path.unlink()
    queue = batch_queue(root, "B")
    for timestamp in range(998, times[-1] + 3):
        for boundary in TimeBoundary:
            expected = model(times, sizes, timestamp, boundary)
            assert queue.offset_by_timestamp(timestamp, boundary) == expected, (timestamp, boundary)
