"""Units that lead to an earlier message of their queue: pulls bring each message once, in the queue's order."""

from pathlib import Path

import pytest

from damaged_units import QueueImage
from protocol.errors import StoreError
from queue_stores import open_queues
from storage.files.mapped_file import MappedFile
from storage.filter.tag import TagFilter, parse_tag_expression
from storage.query.get_message import GetMessageResult, get_message
from storage.queue.queue_files import QueueFiles
from store_writer import StoreWriter

FILE_SIZE = 400  # twenty units


def pull(root: Path, queue_offset: int, tags: str | None) -> GetMessageResult:
    """A pull from queue 0 of topic T."""
    queues, _ = open_queues(root)
    chosen = None if tags is None else TagFilter(parse_tag_expression(tags))
    return get_message(queues, "T", 0, queue_offset, 32, (1 << 31) - 1, chosen)


@pytest.mark.parametrize("wrong", [1, 20])
@pytest.mark.parametrize("filtered", [None, "TagB"])
def test_a_unit_that_leads_back_to_an_earlier_message_hides_none(
    wrong: int, filtered: str | None, tmp_path: Path
) -> None:
    """Also as the first unit of its file, where a pull begins that sees no unit before it."""
    writer = tagged_store(tmp_path)
    units = QueueImage(writer.root / "consumequeue" / "T" / "0")
    units.put(wrong, units.unit(wrong - 1))
    for start in range(wrong - 1, wrong + 1):
        expected = [number for number in range(start, 45) if filtered in (None, tag_of(number))]
        assert drained(writer.root, start, filtered) == expected


@pytest.mark.parametrize("wrong", [19])
@pytest.mark.parametrize("ahead", [1, 5])
@pytest.mark.parametrize("filtered", [None, "TagA", "TagB"])
def test_the_last_unit_of_a_file_that_leads_too_far_ahead_hides_no_message(
    wrong: int, ahead: int, filtered: str | None, tmp_path: Path
) -> None:
    """To a message whose unit is in the next file; a pull sees the units of one file only."""
    writer = tagged_store(tmp_path)
    units = QueueImage(writer.root / "consumequeue" / "T" / "0")
    units.put(wrong, units.unit(wrong + ahead))
    for start in (0, wrong - 1, wrong):
        expected = [number for number in range(start, 45) if filtered in (None, tag_of(number))]
        assert drained(writer.root, start, filtered) == expected


@pytest.mark.parametrize(("gone", "is_damaged", "filtered"), [(0, False, None), (2, True, "TagA"), (0, True, None)])
def test_a_file_that_cannot_be_opened_fails_no_pull_from_the_one_beside_it(
    gone: int, is_damaged: bool, filtered: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker deletes expired files while others look; also where the unit beside it leads elsewhere."""
    writer = tagged_store(tmp_path)
    first, stop = 20 + int(is_damaged and gone == 0), 40 - int(is_damaged and gone == 2)
    if is_damaged:
        units = QueueImage(writer.root / "consumequeue" / "T" / "0")
        units.put(39 if gone else 20, units.unit(25))
    queues, _ = open_queues(writer.root)
    queue = queues.queue("T", 0)
    assert queue is not None
    assert (queue.min_offset, queue.max_offset) == (0, 45)
    map_of = QueueFiles.map_of

    def map_others(files: QueueFiles, number: int) -> MappedFile:
        if number == gone:
            raise StoreError(files.files[number].path, what="cannot be opened")
        return map_of(files, number)

    monkeypatch.setattr(QueueFiles, "map_of", map_others)
    chosen = None if filtered is None else TagFilter(parse_tag_expression(filtered))
    offset, found = first, list[int]()
    while offset < stop:
        result = get_message(queues, "T", 0, offset, 32, (1 << 31) - 1, chosen)
        found += [int.from_bytes(record[20:28]) for record in result.records]
        assert offset < result.next_begin_offset <= stop
        offset = result.next_begin_offset
    assert found == [number for number in range(first, stop) if filtered in (None, tag_of(number))]


def tag_of(number: int) -> str:
    """The tag of a message."""
    return "TagA" if number % 2 else "TagB"


def tagged_store(tmp_path: Path) -> StoreWriter:
    """Forty-five messages in three files."""
    writer = StoreWriter(tmp_path / "store", queue_file_size=FILE_SIZE)
    for number in range(45):
        writer.append("T", b"body", tags=tag_of(number))
    writer.close()
    return writer


def drained(root: Path, offset: int, filtered: str | None) -> list[int]:
    """Queue offsets of what pulls bring from one on."""
    found: list[int] = []
    while offset < 45:
        result = pull(root, offset, filtered)
        found += [int.from_bytes(record[20:28]) for record in result.records]
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
    return found
