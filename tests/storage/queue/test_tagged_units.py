"""Tags looked for by queue units, or pulled: no intact message is missed, whatever of the queue is damaged or lost."""

import random
import shutil
from pathlib import Path

import pytest

from damaged_units import QueueImage
from examples import examples
from oracles import java_hash, packed
from protocol.errors import BeingSearched
from queue_stores import open_queues
from storage.filter.tag import TagFilter, parse_tag_expression
from storage.query.get_message import get_message
from storage.queue.queue_store import QueueStore
from store_writer import StoreWriter

UNITS_A_FILE = 8
UNIT = {"T": 20, "B": 46}
TREE = {"T": "consumequeue", "B": "batchconsumequeue"}
both_kinds = pytest.mark.parametrize("topic", UNIT)


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> StoreWriter:
    """Messages of three tags in a plain queue and in one of batches, others between them."""
    root = tmp_path_factory.mktemp("tagged") / "store"
    writer = StoreWriter(root, queue_file_size=20 * UNITS_A_FILE, batch_queue_file_size=46 * UNITS_A_FILE)
    for number in range(45):
        tag = f"Tag{number * number % 3}"
        writer.append("T", b"body", tags=tag)
        writer.append("Other", b"body", tags=tag)
        writer.append_inner_batch("B", [(b"one", {}), (b"two", {})], tags=tag)
    writer.append("Other", b"last")
    writer.close()
    return writer


@pytest.fixture
def root(writer: StoreWriter, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(writer.root, tmp_path / "store"))


def image_of(root: Path, topic: str) -> QueueImage:
    return QueueImage(root / TREE[topic] / topic / "0", UNIT[topic])


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


def undelivered(queues: QueueStore, writer: StoreWriter, topic: str) -> list[tuple[str, int]]:
    """Messages of a topic that pulls by their tag do not bring."""
    lacking = []
    for tag in ("Tag0", "Tag1", "Tag2"):
        found, offset = set[int](), 0
        while True:
            pulled = get_message(queues, topic, 0, offset, 3, 1 << 18, TagFilter(parse_tag_expression(tag)))
            found |= {int.from_bytes(record[28:36], "big") for record in pulled.records}
            if pulled.next_begin_offset <= offset or pulled.next_begin_offset >= pulled.max_offset:
                break
            offset = pulled.next_begin_offset
        lacking += [
            (tag, record.physical_offset)
            for record in writer.records
            if record.topic == topic and record.properties.get("TAGS") == tag and record.physical_offset not in found
        ]
    return lacking


@both_kinds
@pytest.mark.parametrize("seed", range(examples(9)))
def test_messages_of_zeros_and_garbage_are_found(seed: int, topic: str, root: Path, writer: StoreWriter) -> None:
    """Also where damage begins within a unit's tag, and over the ends of files."""
    chance, image = random.Random(seed), image_of(root, topic)
    first, count = chance.choice([(7, 1), (8, 1), (15, 2), (3, 30), (0, 5), (40, 4), (chance.randrange(35), 9)])
    for number in range(first, first + count):
        kept = image.unit(number)[: chance.choice((0, 14)) if number == first < first + count - 1 else 0]
        content = chance.choice([bytes(UNIT[topic]), chance.randbytes(UNIT[topic])])
        image.put(number, kept + content[len(kept) :])
    queues = open_queues(root)[0]
    assert (missing(queues, writer, topic), undelivered(queues, writer, topic)) == ([], [])


@both_kinds
@pytest.mark.parametrize("number", [0, 7, 8, 20, 44])
def test_a_unit_whose_message_would_reach_into_the_next_one_hides_none(
    number: int, topic: str, root: Path, writer: StoreWriter
) -> None:
    """Its place in the log is right; its size and its tag are damaged."""
    image = image_of(root, topic)
    unit = image.unit(number)
    image.put(number, unit[:8] + packed(1 << 20, 4) + bytes(8) + unit[20:])
    queues = open_queues(root)[0]
    assert (missing(queues, writer, topic), undelivered(queues, writer, topic)) == ([], [])


def test_while_the_log_is_searched_a_query_is_not_answered(
    root: Path, writer: StoreWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never without the messages that are being looked for; afterwards with them."""
    monkeypatch.setattr("storage.queue.queue_holes.SEARCHED_AT_ONCE", 1)
    monkeypatch.setattr("storage.queue._shared_pass.PIECE", 64)
    image = image_of(root, "T")
    for number in range(10, 15):
        image.put(number, bytes(20))
    queues, _ = open_queues(root)
    queues.holes.connect(hand_on=lambda: None)
    with pytest.raises(BeingSearched):
        queues.offsets_with_tag("T", java_hash("Tag1"), 0, 1 << 62)
    while queues.holes.searching:
        queues.holes.step()
    assert not missing(queues, writer, "T")
