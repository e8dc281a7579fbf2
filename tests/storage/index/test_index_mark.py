"""What a compacted index file says of itself in entry 0."""

import zlib

import pytest

from storage.index.index_mark import MARK, IndexMark, is_true, read_mark, write_mark

SLOTS, CAPACITY = 3, 6
FIRST = 40 + 4 * SLOTS


def marked(entries: int = 4, **flags: bool) -> bytearray:
    data = bytearray(range(40 + 4 * SLOTS)) + bytearray(20) + bytearray(range(100, 200))
    write_mark(data, SLOTS, entries, **{"complete": True, "tags": True, **flags})
    return data


@pytest.mark.parametrize("complete", [False, True])
@pytest.mark.parametrize("tags", [False, True])
def test_what_was_written_is_read(complete: bool, tags: bool) -> None:
    data = marked(3, complete=complete, tags=tags)
    assert read_mark(memoryview(data), SLOTS) == IndexMark(3, complete, tags)
    assert is_true(memoryview(data), SLOTS)


def test_the_checksum_is_a_crc_32_of_the_mark_and_the_entries_it_is_for() -> None:
    data = marked(2)
    assert int.from_bytes(data[FIRST + 16 : FIRST + 20]) == zlib.crc32(
        data[FIRST : FIRST + 16] + data[FIRST + 20 :][:40]
    )


@pytest.mark.parametrize("place", [*range(16), 16, 19, 20, 59, 99])
def test_a_changed_byte_of_mark_or_entries_is_noticed(place: int) -> None:
    data = marked(4)
    data[FIRST + place] ^= 0x10
    mark = read_mark(memoryview(data), SLOTS)
    assert mark is None or not is_true(memoryview(data), SLOTS)


@pytest.mark.parametrize("place", [0, 39, 40, FIRST - 1, FIRST + 20 + 80])
def test_what_a_broker_changes_later_leaves_it_true(place: int) -> None:
    """Header and slots, and entries behind those that it is for."""
    data = marked(4)
    data[place] ^= 0x10
    assert is_true(memoryview(data), SLOTS)


@pytest.mark.parametrize(
    "fields", [(0, 0, 0, 0, 0), (0x7FFFFFFF, 4, 1, 0, 0), (-766753999, 0, 1, 0, 0), (-766753999, -1, 1, 0, 0),
               (-766753999, 6, 1, 0, 0), (-766753999, 4, 1, 1, 0)]
)  # fmt: skip
def test_what_no_compaction_writes_is_no_mark(fields: tuple[int, ...]) -> None:
    data = marked()
    MARK.pack_into(data, FIRST, *fields)
    assert read_mark(memoryview(data), SLOTS) is None


@pytest.mark.parametrize("length", [0, 39, 40, FIRST, FIRST + 19])
def test_a_file_that_ends_before_it_has_none(length: int) -> None:
    assert read_mark(memoryview(marked())[:length], SLOTS) is None
    assert read_mark(memoryview(marked())[: FIRST + 20], SLOTS) is None
