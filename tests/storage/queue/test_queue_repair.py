"""Messages whose units are damaged are found in the log, between their neighbours and nowhere else."""

from pathlib import Path

import pytest

from doctoring import make_store, put
from oracles import packed
from queue_stores import open_queues, unit_bytes
from storage.queue import _queue_repair as module
from storage.queue.consume_queue import ConsumeQueue
from store_writer import StoreWriter, Written

FILE = 1000


@pytest.fixture
def made(tmp_path: Path) -> tuple[StoreWriter, list[Written]]:
    """Two queues of 150 messages each in four segments; those of queue 1."""
    writer, written = make_store(tmp_path, 300)
    writer.close()
    return writer, written[1::2]


def queue_of(root: Path) -> ConsumeQueue:
    queue = open_queues(root)[0].queue("T", 1)
    assert isinstance(queue, ConsumeQueue)
    return queue


def damage(root: Path, number: int, data: bytes) -> None:
    position = 20 * number
    put(root / "consumequeue" / "T" / "1" / f"{position // FILE * FILE:020d}", position % FILE, data)


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, packed(-1, 8)),
        (1, packed(10**12, 8)),
        (49, packed(7, 8)),
        (50, b"\xff" * 20),
        (148, packed(5, 8) + packed(-3, 4)),
        (149, packed(10**12, 8)),
    ],
)
def test_a_message_is_found_where_its_unit_is_damaged(
    made: tuple[StoreWriter, list[Written]], number: int, data: bytes
) -> None:
    writer, written = made
    damage(writer.root, number, data)
    queue = queue_of(writer.root)
    assert (queue.min_offset, queue.max_offset) == (0, 150)
    assert queue.message_in_log(number) == written[number].physical_offset


def test_a_message_that_is_damaged_itself_is_not_looked_for(
    made: tuple[StoreWriter, list[Written]], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, written = made
    writer.overwrite(written[70].physical_offset + 88, b"\xff")
    monkeypatch.setattr(module, "search", lambda *_: pytest.fail("the log was searched"))
    assert queue_of(writer.root).message_in_log(70) is None


def test_a_search_goes_no_farther_than_it_is_told(made: tuple[StoreWriter, list[Written]]) -> None:
    writer, written = made
    queue, start = queue_of(writer.root), written[69].physical_offset + written[69].size
    assert module.search(queue.log, queue.name, 70, start, written[70].physical_offset) is None
    assert (
        module.search(queue.log, queue.name, 70, start, written[70].physical_offset + 1) == written[70].physical_offset
    )


@pytest.mark.parametrize(("units", "data"), [(3, b"\xff" * 20), (65, b"\x7f" * 20), (89, bytes(20))])
def test_however_many_units_lie_between_the_neighbours_their_messages_are_found(
    made: tuple[StoreWriter, list[Written]], units: int, data: bytes
) -> None:
    writer, written = made
    for number in range(60, 60 + units):
        damage(writer.root, number, data)
    queue = queue_of(writer.root)
    hole = queue.hole_at(60)
    assert (hole.first, hole.stop, hole.start) == (60, 60 + units, written[59].physical_offset + written[59].size)
    assert (hole.end, hole.lost) == (written[60 + units].physical_offset, 0)
    found = [queue.message_in_log(number) for number in range(60, 60 + units)]
    assert found == [message.physical_offset for message in written[60 : 60 + units]]


def test_left_over_units_behind_the_end_stay_there_and_broken_ones_count(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path, 60)
    writer.close()
    for units in (unit_bytes(10**9, 100, 7), unit_bytes(written[2].physical_offset, written[2].size, 7)):
        damage(tmp_path, 30, units * 3)
        assert queue_of(tmp_path).max_offset == 30
    damage(tmp_path, 30, b"\xff" * 60)
    queue = queue_of(tmp_path)
    assert (queue.max_offset, [queue.message_in_log(number) for number in (30, 31, 32)]) == (33, [None] * 3)


def test_expired_messages_are_not_looked_for(made: tuple[StoreWriter, list[Written]]) -> None:
    writer, _ = made
    sorted((writer.root / "commitlog").iterdir())[0].unlink()
    queue = queue_of(writer.root)
    assert queue.min_offset > 10
    assert queue.message_in_log(3) is None
