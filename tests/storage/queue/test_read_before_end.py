"""Pulls from queues whose end is being searched in the log: what lies before it is read, in queues of each kind."""

import contextlib
import random
from pathlib import Path

import pytest

from damaged_units import QueueImage
from protocol.errors import BeingSearched, QueueBeingSearched
from queue_stores import open_queues
from storage.filter.tag import TagFilter, parse_tag_expression
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


@pytest.mark.parametrize("seed", [*range(10), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(10, 300))])
def test_no_message_that_tier_or_log_has_is_passed_while_the_log_is_searched(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pull from any queue offset is busy, or begins with its message, whatever is lost of the store's own files."""
    chance = random.Random(seed)
    writer = StoreWriter(tmp_path / "store", segment_size=2048, queue_file_size=200)
    for number in range(MESSAGES):
        writer.append("T", b"body")
        if number % 3 == 0:
            writer.append("Other", b"between")
    writer.close()
    messages = [each for each in writer.written if each.topic == "T"]
    write_tier(tmp_path / "tier", messages[:IN_TIER])
    for segment in (writer.root / "commitlog").iterdir():
        if int(segment.name) + 2048 <= messages[EXPIRED].physical_offset:
            segment.unlink()
    directory = writer.root / "consumequeue" / "T" / "0"
    image, files = QueueImage(directory), sorted(directory.iterdir())
    first = 0 if seed == 0 else chance.randrange(MESSAGES)
    for number in range(first, MESSAGES):
        if seed == 0 or number == MESSAGES - 1:  # zeros there would be a unit that is not written yet
            image.put(number, b"\xff" * 20)
        elif chance.random() < 0.7:
            image.put(number, chance.choice([b"\xff" * 20, bytes(20), chance.randbytes(20)]))
    # Without the last one, zeros at the end of the one before would be units that are not written yet.
    for file in files[:-1] if seed == 0 else chance.sample(files[:-1], chance.randrange(len(files))):
        file.unlink()
    monkeypatch.setattr("storage.queue.queue_holes.SEARCHED_AT_ONCE", 1)
    monkeypatch.setattr("storage.queue._shared_pass.PIECE", 64)
    queues = MessageStore.open(writer.root, StoreOptions(tier=tmp_path / "tier", keeps_state=False)).queues
    queues.holes.connect(hand_on=lambda: None)
    busy = set(range(MESSAGES))
    for _ in range(2000):
        for offset in chance.sample(sorted(busy), min(len(busy), 5)):
            with contextlib.suppress(BeingSearched, QueueBeingSearched):
                found, _, end = next_pull(queues, offset)
                assert (found[:1], end > offset) == ([offset], True)
                busy.discard(offset)
        if not busy:
            break
        queues.holes.step()
    assert not busy


def test_a_tag_beside_the_units_that_are_searched_is_not_believed(tmp_path, monkeypatch) -> None:
    """Damage that ends a queue may begin within the tag of the unit before it."""
    writer = StoreWriter(tmp_path / "store")
    for _ in range(20):
        writer.append("T", b"body", tags="A")
    for _ in range(20):
        writer.append("Other", b"behind them")
    writer.close()
    image = QueueImage(writer.root / "consumequeue" / "T" / "0")
    image.put(18, image.unit(18)[:16] + b"\xff" * 4)
    image.put(19, b"\xff" * 20)
    monkeypatch.setattr("storage.queue.queue_holes.SEARCHED_AT_ONCE", 1)
    monkeypatch.setattr("storage.queue._shared_pass.PIECE", 64)
    queues = open_queues(writer.root)[0]
    queues.holes.connect(hand_on=lambda: None)
    read, offset, end = list[int](), 0, 1
    while offset < end:
        try:
            result = get_message(queues, "T", 0, offset, 8, 1 << 18, TagFilter(parse_tag_expression("A")))
        except QueueBeingSearched:
            queues.holes.step()
            continue
        read += [int.from_bytes(record[20:28], "big") for record in result.records]
        offset, end = result.next_begin_offset, result.max_offset
    assert read == list(range(20))
