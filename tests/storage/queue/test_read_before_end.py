"""Pulls from queues whose end is being searched in the log: what lies before it is read, in queues of each kind."""

import contextlib
from pathlib import Path

import pytest

from damaged_units import QueueImage
from protocol.errors import BeingSearched, QueueBeingSearched
from queue_stores import open_queues
from storage.query.get_message import get_message
from storage.queue.queue_store import QueueStore
from storage.store.message_store import MessageStore, StoreOptions
from store_kinds import write_tier
from store_writer import StoreWriter

MESSAGES, IN_TIER, EXPIRED = 40, 25, 15


def next_pull(queues: QueueStore, offset: int) -> tuple[list[int], int, int]:
    """Queue offsets of the records that a pull returns, where the next one begins, and the maximum that it is told."""
    result = get_message(queues, "T", 0, offset, 4, 1 << 18)
    found = [int.from_bytes(record[20:28], "big") for record in result.records]
    return found, result.next_begin_offset, result.max_offset


@pytest.mark.parametrize("kind", ["plain", "batches", "tiered"])
def test_what_lies_before_an_end_that_is_searched_is_read(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=2048)
    for number in range(MESSAGES):
        if kind == "batches":
            writer.append_inner_batch("T", [(b"one", {})] * (number % 3 + 1))
        else:
            writer.append("T", b"body")
    for _ in range(MESSAGES):
        writer.append("Other", b"behind them")
    writer.close()
    records = [each for each in writer.records if each.topic == "T"]
    tier = None
    if kind == "tiered":
        tier = tmp_path / "tier"
        write_tier(tier, writer.written[:IN_TIER])
        for segment in (writer.root / "commitlog").iterdir():
            if int(segment.name) + 2048 <= writer.written[EXPIRED].physical_offset:
                segment.unlink()
    tree, size = ("batchconsumequeue", 46) if kind == "batches" else ("consumequeue", 20)
    image = QueueImage(writer.root / tree / "T" / "0", size)
    image.put(MESSAGES - 1, b"\xff" * size)
    monkeypatch.setattr("storage.queue.queue_holes.SEARCHED_AT_ONCE", 1)
    monkeypatch.setattr("storage.queue._shared_pass.PIECE", 64)
    expected = [record.queue_offset for record in records]
    queues = open_queues(writer.root)[0]
    if kind == "tiered":
        queues = MessageStore.open(writer.root, StoreOptions(tier=tier, keeps_state=False)).queues
    queues.holes.connect(hand_on=lambda: None)
    read, offset = list[int](), 0
    while offset < expected[-1]:
        found, offset, end = next_pull(queues, offset)
        assert end > offset  # there may be more
        read += found
    with pytest.raises(QueueBeingSearched):
        next_pull(queues, offset)
    assert read == expected[:-1]
    while queues.holes.searching:
        queues.holes.step()
    found, offset, end = next_pull(queues, offset)
    assert (found, offset) == (expected[-1:], end)


def test_what_nobody_has_looked_for_yet_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log has what lies between the tier and the only file, of whose units none leads to its message."""
    writer = StoreWriter(tmp_path / "store", segment_size=2048, queue_file_size=200)
    for _ in range(MESSAGES):
        writer.append("T", b"body")
    writer.close()
    write_tier(tmp_path / "tier", writer.written[:IN_TIER])
    for segment in (writer.root / "commitlog").iterdir():
        if int(segment.name) + 2048 <= writer.written[EXPIRED].physical_offset:
            segment.unlink()
    directory = writer.root / "consumequeue" / "T" / "0"
    image = QueueImage(directory)
    for number in range(MESSAGES - 10, MESSAGES):
        image.put(number, b"\xff" * 20)
    for file in sorted(directory.iterdir())[:-1]:
        file.unlink()
    monkeypatch.setattr("storage.queue.queue_holes.SEARCHED_AT_ONCE", 1)
    monkeypatch.setattr("storage.queue._shared_pass.PIECE", 64)
    queues = MessageStore.open(writer.root, StoreOptions(tier=tmp_path / "tier", keeps_state=False)).queues
    queues.holes.connect(hand_on=lambda: None)
    for _ in range(4):  # one after the other, end and beginning are searched
        with contextlib.suppress(BeingSearched, QueueBeingSearched):
            assert next_pull(queues, IN_TIER) == ([*range(IN_TIER, IN_TIER + 4)], IN_TIER + 4, MESSAGES)
        while queues.holes.searching:
            queues.holes.step()
    assert next_pull(queues, IN_TIER) == ([*range(IN_TIER, IN_TIER + 4)], IN_TIER + 4, MESSAGES)
