"""How far the queues of a topic reach, where the log has to be searched for it: once for all of them."""

from pathlib import Path

import pytest

from storage.queue import _shared_pass, queue_holes
from storage.queue.queue_hole import QueueHole, search_together
from storage.store.extents import queue_extent, queue_extents
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

QUEUES, MESSAGES, LOST = 12, 40, 15


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each piece of the log that is searched, which are few."""
    lengths: list[int] = []

    def note(holes: list[QueueHole], stop: int) -> None:
        start = holes[0].position
        search_together(holes, stop)
        lengths.append(max(min(stop, holes[0].position) - start, 0))

    monkeypatch.setattr(_shared_pass, "search_together", note)
    monkeypatch.setattr(_shared_pass, "PIECE", 2000)
    monkeypatch.setattr(queue_holes, "SEARCHED_AT_ONCE", 2000)
    return lengths


def test_ends_that_the_log_alone_knows_take_one_pass_over_it(tmp_path: Path, read: list[int]) -> None:
    writer = StoreWriter(tmp_path)
    for number in range(MESSAGES * QUEUES):
        writer.append("T", b"%d" % number, queue_id=number % QUEUES)
    writer.close()
    for path in tmp_path.glob("consumequeue/T/*/*"):
        content = bytearray(path.read_bytes())
        content[20 * (MESSAGES - LOST) : 20 * MESSAGES] = b"\x7f" * 20 * LOST
        path.write_bytes(content)
    store = MessageStore.open(tmp_path)
    together = queue_extents(store, "T", range(QUEUES))
    assert [(each.min_offset, each.max_offset, each.problem) for each in together] == [(0, MESSAGES, "")] * QUEUES
    length = store.commit_log.end
    assert LOST / MESSAGES * length / 2 < sum(read) < 1.5 * length
    read.clear()
    other = MessageStore.open(tmp_path)
    assert [queue_extent(other, "T", number) for number in range(QUEUES)] == together
    assert sum(read) > 3 * length
