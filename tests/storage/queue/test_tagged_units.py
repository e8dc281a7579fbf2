"""Tags looked for by queue units: no intact message is missed, whatever of the queue is damaged or lost."""

import random
from pathlib import Path

import pytest

from oracles import java_hash
from protocol.errors import BeingSearched
from queue_stores import open_queues
from storage.queue.queue_store import QueueStore
from store_writer import StoreWriter

UNITS_A_FILE = 8
MESSAGES = 45
PLAIN, BATCH = "T", "B"
UNIT = {PLAIN: 20, BATCH: 46}


def make_store(root: Path) -> StoreWriter:
    """Messages of three tags in a plain queue and in one of batches, others between them."""
    writer = StoreWriter(root, queue_file_size=20 * UNITS_A_FILE, batch_queue_file_size=46 * UNITS_A_FILE)
    for number in range(MESSAGES):
        tag = f"Tag{number * number % 3}"
        writer.append(PLAIN, b"body", tags=tag)
        writer.append("Other", b"body", tags=tag)
        writer.append_inner_batch(BATCH, [(b"one", {}), (b"two", {})], tags=tag)
    writer.append("Other", b"last")
    writer.close()
    return writer


def put(root: Path, topic: str, number: int, data: bytes) -> None:
    """Write over units of queue 0 from a number on."""
    size = UNIT[topic]
    tree = "consumequeue" if topic == PLAIN else "batchconsumequeue"
    for at in range(0, len(data), size):
        file, place = divmod(number + at // size, UNITS_A_FILE)
        with (root / tree / topic / "0" / f"{file * size * UNITS_A_FILE:020}").open("r+b") as units:
            units.seek(place * size)
            units.write(data[at : at + size])


def get(root: Path, topic: str, number: int) -> bytes:
    """One unit of queue 0."""
    size, (file, place) = UNIT[topic], divmod(number, UNITS_A_FILE)
    tree = "consumequeue" if topic == PLAIN else "batchconsumequeue"
    content = (root / tree / topic / "0" / f"{file * size * UNITS_A_FILE:020}").read_bytes()
    return content[place * size : place * size + size]


def missing(queues: QueueStore, writer: StoreWriter, topic: str) -> list[tuple[str, int]]:
    """Messages of a topic that a search for their tag does not propose."""
    lacking = []
    for tag in ("Tag0", "Tag1", "Tag2"):
        found = set(queues.offsets_with_tag(topic, java_hash(tag), 0, 1 << 62).tolist())
        lacking += [
            (tag, record.physical_offset)
            for record in writer.records
            if record.topic == topic and record.properties.get("TAGS") == tag and record.physical_offset not in found
        ]
    return lacking


@pytest.mark.parametrize("topic", [PLAIN, BATCH])
@pytest.mark.parametrize(("first", "count"), [(7, 1), (8, 1), (15, 2), (3, 30), (0, 5), (40, 4)])
def test_messages_of_zeroed_units_are_found(first: int, count: int, topic: str, tmp_path: Path) -> None:
    writer = make_store(tmp_path)
    put(tmp_path, topic, first, bytes(UNIT[topic] * count))
    assert not missing(open_queues(tmp_path)[0], writer, topic)


@pytest.mark.parametrize("topic", [PLAIN, BATCH])
@pytest.mark.parametrize("seed", range(12))
def test_messages_of_garbage_are_found(seed: int, topic: str, tmp_path: Path) -> None:
    """Also where damage begins within a unit's tag."""
    chance = random.Random(seed)
    writer = make_store(tmp_path)
    number, count = chance.randrange(35), chance.choice((1, 3, 9))
    cut = chance.choice((0, 14)) if count > 1 else 0
    data = chance.randbytes(UNIT[topic] * count)
    put(tmp_path, topic, number, get(tmp_path, topic, number)[:cut] + data[cut:])
    assert not missing(open_queues(tmp_path)[0], writer, topic)


@pytest.mark.parametrize(("place", "leads_to"), [(5, 20), (20, 5), (7, 8), (7, 12), (8, 7), (8, 3), (16, 15), (23, 40)])
def test_messages_of_units_that_lead_to_others_are_found(place: int, leads_to: int, tmp_path: Path) -> None:
    writer = make_store(tmp_path)
    put(tmp_path, PLAIN, place, get(tmp_path, PLAIN, leads_to))
    assert not missing(open_queues(tmp_path)[0], writer, PLAIN)


@pytest.mark.parametrize("topic", [PLAIN, BATCH])
@pytest.mark.parametrize("lost", [(1,), (2, 3)])
def test_messages_of_lost_files_are_found(lost: tuple[int, ...], topic: str, tmp_path: Path) -> None:
    writer = make_store(tmp_path)
    tree = "consumequeue" if topic == PLAIN else "batchconsumequeue"
    for file in lost:
        (tmp_path / tree / topic / "0" / f"{file * UNIT[topic] * UNITS_A_FILE:020}").unlink()
    assert not missing(open_queues(tmp_path)[0], writer, topic)


def test_while_the_log_is_searched_a_query_is_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never without the messages that are being looked for; afterwards with them."""
    monkeypatch.setattr("storage.queue.queue_holes.SEARCHED_AT_ONCE", 1)
    monkeypatch.setattr("storage.queue._shared_pass.PIECE", 64)
    writer = make_store(tmp_path)
    put(tmp_path, PLAIN, 10, bytes(20 * 5))
    queues, _ = open_queues(tmp_path)
    queues.holes.connect(hand_on=lambda: None)
    with pytest.raises(BeingSearched):
        queues.offsets_with_tag(PLAIN, java_hash("Tag1"), 0, 1 << 62)
    while queues.holes.searching:
        queues.holes.step()
    assert not missing(queues, writer, PLAIN)
