"""Units that lead to an earlier message of their queue: pulls bring each message once, in the queue's order."""

from pathlib import Path

import pytest

from queue_stores import open_queues
from storage.filter.tag import TagFilter, parse_tag_expression
from storage.get_message import GetMessageResult, get_message
from store_writer import StoreWriter

FILE_SIZE = 400  # twenty units


def pull(root: Path, queue_offset: int, tags: str | None) -> GetMessageResult:
    """A pull from queue 0 of topic T."""
    queues, log = open_queues(root)
    chosen = None if tags is None else TagFilter(parse_tag_expression(tags))
    return get_message(queues, log, "T", 0, queue_offset, 32, (1 << 31) - 1, chosen)


@pytest.mark.parametrize("wrong", [1, 20, 21, 40])
@pytest.mark.parametrize("filtered", [None, "TagA", "TagB"])
def test_a_unit_that_leads_back_to_an_earlier_message_hides_none(
    wrong: int, filtered: str | None, tmp_path: Path
) -> None:
    """Also as the first unit of its file, where a pull begins that sees no unit before it."""
    writer = StoreWriter(tmp_path / "store", queue_file_size=FILE_SIZE)
    for number in range(45):
        writer.append("T", b"body", tags="TagA" if number % 2 else "TagB")
    writer.close()
    overwrite_unit(writer.root, wrong, read_unit(writer.root, wrong - 1))
    for start in range(wrong - 1, wrong + 1):
        offset, found = start, list[int]()
        while offset < 45:
            result = pull(writer.root, offset, filtered)
            found += [int.from_bytes(record[20:28]) for record in result.records]
            assert result.next_begin_offset > offset
            offset = result.next_begin_offset
        assert found == [number for number in range(start, 45) if filtered in (None, "TagA" if number % 2 else "TagB")]


def unit_place(root: Path, queue_offset: int) -> tuple[Path, int]:
    """File and position of a unit of queue 0 of topic T."""
    start = queue_offset * 20 // FILE_SIZE * FILE_SIZE
    return root / "consumequeue" / "T" / "0" / f"{start:020}", queue_offset * 20 - start


def read_unit(root: Path, queue_offset: int) -> bytes:
    path, position = unit_place(root, queue_offset)
    return path.read_bytes()[position : position + 20]


def overwrite_unit(root: Path, queue_offset: int, unit: bytes) -> None:
    path, position = unit_place(root, queue_offset)
    with path.open("r+b") as file:
        file.seek(position)
        file.write(unit)
