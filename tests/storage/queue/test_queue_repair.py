"""Messages whose units are damaged are found in the log, between their neighbours and nowhere else."""

from pathlib import Path

import pytest

from doctoring import make_store, put
from queue_stores import plain_queue, unit_bytes
from storage.queue import _log_search as module
from store_writer import StoreWriter, Written

FILE = 1000


@pytest.fixture
def made(tmp_path: Path) -> tuple[StoreWriter, list[Written]]:
    """Two queues of 150 messages each in four segments; those of queue 1."""
    writer, written = make_store(tmp_path, 300)
    writer.close()
    return writer, written[1::2]


def damage(root: Path, number: int, data: bytes) -> None:
    position = 20 * number
    put(root / "consumequeue" / "T" / "1" / f"{position // FILE * FILE:020d}", position % FILE, data)


def test_a_message_that_is_damaged_itself_is_not_looked_for(
    made: tuple[StoreWriter, list[Written]], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, written = made
    writer.overwrite(written[70].physical_offset + 88, b"\xff")
    monkeypatch.setattr(module, "search", lambda *_: pytest.fail("the log was searched"))
    assert plain_queue(writer.root, queue_id=1).message_in_log(70) is None


def test_a_search_goes_no_farther_than_it_is_told(made: tuple[StoreWriter, list[Written]]) -> None:
    writer, written = made
    queue, start = plain_queue(writer.root, queue_id=1), written[69].physical_offset + written[69].size
    assert module.search(queue.log, queue.name, 70, start, written[70].physical_offset) is None
    assert (
        module.search(queue.log, queue.name, 70, start, written[70].physical_offset + 1) == written[70].physical_offset
    )


def test_left_over_units_behind_the_end_stay_there_and_broken_ones_count(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path, 60)
    writer.close()
    for units in (unit_bytes(10**9, 100, 7), unit_bytes(written[2].physical_offset, written[2].size, 7)):
        damage(tmp_path, 30, units * 3)
        assert plain_queue(tmp_path, queue_id=1).max_offset == 30
    damage(tmp_path, 30, b"\xff" * 60)
    queue = plain_queue(tmp_path, queue_id=1)
    assert (queue.max_offset, [queue.message_in_log(number) for number in (30, 31, 32)]) == (33, [None] * 3)
