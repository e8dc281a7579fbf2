"""Damaged units of batches are made good from the records that they should lead to."""

from pathlib import Path

import pytest

from doctoring import put
from oracles import packed
from queue_stores import open_queues
from storage.batch_consume_queue import BatchConsumeQueue
from store_writer import StoreWriter, Written

UNIT = 46
FIELDS = {"physical_offset": (0, 8), "size": (8, 4), "base_offset": (28, 8), "batch_size": (36, 2)}
VALUES = {"0": 0, "-1": -1, "large": 2**14, "1 more": None}


@pytest.fixture
def made(tmp_path: Path) -> tuple[StoreWriter, list[Written]]:
    writer = StoreWriter(tmp_path, segment_size=4096, batch_queue_file_size=UNIT * 5)
    written = []
    for number in range(14):
        writer.append("other", b"between")
        batch = [(b"%d.%d" % (number, n), {"TAGS": "t"}) for n in range(1 + number % 3)]
        written.append(writer.append_inner_batch("T", batch))
    writer.close()
    return writer, written


def queue_of(root: Path) -> BatchConsumeQueue:
    queue = open_queues(root)[0].queue("T", 0)
    assert isinstance(queue, BatchConsumeQueue)
    return queue


def places(queue: BatchConsumeQueue) -> list[tuple[int, int, int]]:
    """Base offset, batch size and physical offset of every batch of the queue, as a consumer walks over them."""
    found, offset = [], queue.min_offset
    while offset < queue.max_offset:
        units = list(queue.walk(offset, 100) or ())
        found += [(base, after - base, physical) for base, after, physical, _, _ in units]
        assert units
        assert units[-1][1] > offset
        offset = units[-1][1]
    return found


@pytest.mark.parametrize("number", [4, 7, 9, 13])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("field", FIELDS)
def test_any_field_of_any_unit(made: tuple[StoreWriter, list[Written]], field: str, value: str, number: int) -> None:
    writer, written = made
    expected = places(queue_of(writer.root))
    assert [physical for _, _, physical in expected] == [each.physical_offset for each in written]
    position, size = FIELDS[field]
    path = writer.root / "batchconsumequeue" / "T" / "0" / f"{number // 5 * 5 * UNIT:020d}"
    at = number % 5 * UNIT + position
    number_now = int.from_bytes(path.read_bytes()[at : at + size], "big", signed=True)
    told = VALUES[value]
    put(path, at, packed(number_now + 1 if told is None else told, size))
    queue = queue_of(writer.root)
    queue.message_in_log(expected[number][0])  # as a pull asks that the unit led nowhere
    assert places(queue) == expected


def test_zeroed_units_between_others(made: tuple[StoreWriter, list[Written]]) -> None:
    writer, _ = made
    expected = places(queue_of(writer.root))
    put(writer.root / "batchconsumequeue" / "T" / "0" / f"{5 * UNIT:020d}", UNIT, bytes(3 * UNIT))
    assert places(queue_of(writer.root)) == expected


def test_a_batch_that_is_lost_is_stepped_over(made: tuple[StoreWriter, list[Written]]) -> None:
    writer, written = made
    expected = places(queue_of(writer.root))
    writer.overwrite(written[7].physical_offset, bytes(written[7].size))
    put(writer.root / "batchconsumequeue" / "T" / "0" / f"{5 * UNIT:020d}", 2 * UNIT, bytes(UNIT))
    found = places(queue_of(writer.root))
    assert [each for each in found if each[2] >= 0] == expected[:7] + expected[8:]


def test_units_that_repeat_a_batch_are_left_over(made: tuple[StoreWriter, list[Written]]) -> None:
    writer, written = made
    expected = places(queue_of(writer.root))
    path = writer.root / "batchconsumequeue" / "T" / "0" / f"{10 * UNIT:020d}"
    put(path, 4 * UNIT, packed(written[2].physical_offset, 8) + packed(written[2].size, 4) + bytes(24) + packed(2, 2))
    assert places(queue_of(writer.root)) == expected
