"""Queues of batches: found by offset and time; where units are damaged, what the log has is read in their place."""

import itertools
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from damaged_units import QueueImage, expire
from doctoring import put
from examples import examples
from oracles import packed
from queue_stores import batch_queue
from storage.queue.batch_consume_queue import BatchConsumeQueue
from storage.queue.queue import TimeBoundary
from storage.queue.unit_reader import entries_between
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


def test_outside_its_bounds_a_queue_has_no_batch(tmp_path: Path) -> None:
    make_store(tmp_path, [3, 3])
    queue = batch_queue(tmp_path, "B")
    for queue_offset in (-1, 6, 1 << 62):
        assert queue.entry_at(queue_offset) is None
        assert at_once(queue.walk(queue_offset, 9)) is None
        assert queue.store_timestamp_at(queue_offset) == -1


def test_behind_a_lost_batch_the_next_one_is_that_of_the_log(tmp_path: Path) -> None:
    writer = make_store(tmp_path, [2] * 10)
    image, lost = QueueImage(directory_of(tmp_path), 46), writer.records[4]
    image.put(4, b"\xff" * 46)
    image.put(5, b"\xff" * 46)
    put(tmp_path / "commitlog" / f"{0:020d}", lost.physical_offset, bytes(lost.total_size))
    found = [batch_queue(tmp_path, "B").sound_from(queue_offset) for queue_offset in range(21)]
    assert found == [10 if number in (8, 9) else number for number in range(21)]


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


def model(times: list[int], sizes: list[int], timestamp: int, boundary: TimeBoundary) -> int:
    """What a search means: a batch's base offset. Behind everything LOWER is the last batch, as a broker answers."""
    bases = [sum(sizes[:number]) for number in range(len(sizes))]
    if boundary is TimeBoundary.LOWER:
        return min((base for base, time in zip(bases, times, strict=True) if time >= timestamp), default=bases[-1])
    return max((base for base, time in zip(bases, times, strict=True) if time <= timestamp), default=0)


@settings(max_examples=examples(8), deadline=None)
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


UNIT = 46


def places(queue: BatchConsumeQueue) -> list[tuple[int, int, int]]:
    """Base offset, batch size and physical offset of every batch of the queue, as a consumer walks over them."""
    found = entries_between(queue, queue.min_offset, queue.max_offset)
    return [(each.queue_offset, each.batch_size, each.physical_offset) for each in found]


def test_a_unit_that_is_a_copy_of_another_one_is_read_by_nobody(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, batch_queue_file_size=UNIT * 12)
    for number in range(8):
        writer.append_inner_batch("T", [(b"%d.%d" % (number, n), {}) for n in range(3)])
    writer.close()
    expected = places(batch_queue(tmp_path))
    path = tmp_path / "batchconsumequeue" / "T" / "0" / f"{0:020d}"
    for number, other in itertools.product((0, 7), range(8)):
        sound = path.read_bytes()
        put(path, number * UNIT, sound[other * UNIT : (other + 1) * UNIT])
        queue = batch_queue(tmp_path)
        entries = [(each.queue_offset, each.batch_size, each.physical_offset) for each in queue.entries(0, 100)]
        assert (number, other, places(queue), entries) == (number, other, expected, expected)
        path.write_bytes(sound)
    for base in (0, 22, -1, 1 << 14):  # of the last unit
        put(path, 7 * UNIT + 28, packed(base, 8))
        assert places(batch_queue(tmp_path)) == expected, base


DAMAGES: dict[str, Callable[[random.Random, bytes], bytes]] = {
    "zeros": lambda chance, unit: bytes(UNIT),
    "ones": lambda chance, unit: b"\xff" * UNIT,
    "noise": lambda chance, unit: chance.randbytes(UNIT),
    "place": lambda chance, unit: packed(1 << chance.randrange(40), 8) + unit[8:],
    "size": lambda chance, unit: unit[:8] + packed(-1, 4) + unit[12:],
    "base offset": lambda chance, unit: unit[:28] + packed(chance.randrange(1 << 40), 8) + unit[36:],
    "batch size": lambda chance, unit: unit[:36] + packed(chance.randrange(-5, 30_000), 2) + unit[38:],
}


def judge_damaged_batches(root: Path, seed: int) -> None:
    """A store whose units of batches are damaged at random: bounds and batches must be those of the sound one."""
    chance = random.Random(seed)
    writer = StoreWriter(root, segment_size=4096, batch_queue_file_size=UNIT * chance.choice([5, 40, 300]))
    writer.append("other", b"the first message of all")
    written = []
    for number in range(chance.choice([3, 40, 250])):
        if chance.random() < 0.3:
            writer.append("other", b"between")
        written.append(writer.append_inner_batch("T", [(b"%d" % number, {})] * chance.randrange(1, 4)))
    writer.flush()
    log_minimum = expire(root, chance.choice([0, 0, 1, 2, 8]))
    live = [number for number, each in enumerate(written) if each.physical_offset >= log_minimum]
    if not live:
        return
    image, count, done = QueueImage(root / "batchconsumequeue" / "T" / "0", UNIT), len(written), []
    for _ in range(chance.randrange(1, 5)):
        kind = chance.choice(sorted(DAMAGES))
        near = chance.choice([chance.randrange(count), live[0] - chance.randrange(-2, 10), count - chance.randrange(9)])
        start = min(max(near, 0), count - 1)
        length = min(chance.choice([1, 1, 3, 40, 100]), count - 1 - start)
        for number in range(start, start + length):
            image.put(number, DAMAGES[kind](chance, image.unit(number)))
        done.append((start, length, kind))
    if chance.random() < 0.4:
        image.put(count - 1, DAMAGES["size"](chance, image.unit(count - 1)))
    queue = batch_queue(root)
    end = writer.next_queue_offset["T", 0]
    assert (queue.min_offset, queue.max_offset) == (written[live[0]].queue_offset, end), (seed, done)
    for number in live:
        each = written[number]
        assert queue.message_in_log(each.queue_offset) == each.physical_offset, (seed, done, number)


@pytest.mark.parametrize("seed", range(5))
def test_damage_changes_neither_bound_and_hides_no_batch(seed: int, tmp_path: Path) -> None:
    judge_damaged_batches(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("hundred", range(10))
def test_damage_changes_neither_bound_of_many_stores(hundred: int, tmp_path: Path) -> None:
    for seed in range(1000 + 100 * hundred, 1100 + 100 * hundred):
        judge_damaged_batches(tmp_path / str(seed), seed)
