"""Fillers lie gaplessly where damage was, each a rolled-back message, and a BLANK closes a segment."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import BLANK_MAGIC, read_record, signed
from storage.kernels.records import AT_BLANK, AT_LIMIT, walk_records
from storage.kernels.region import Region
from storage.log.fillers import LARGEST, SMALLEST, can_be_filled, fill

TIME = 1_700_000_000_000
ROLLBACK = 0xC


def filled(start: int, stop: int, base: int, boundary: int) -> bytes:
    """A segment of zeros with what is put in the place of a range."""
    data = bytearray(boundary - base)
    for piece in fill(start, stop, base, boundary, TIME):
        position = piece.physical_offset - base
        assert start <= piece.physical_offset
        assert piece.physical_offset + len(piece.data) <= stop
        data[position : position + len(piece.data)] = piece.data
    return bytes(data)


@given(start=st.integers(0, 5000), size=st.integers(SMALLEST, 3 * LARGEST))
def test_records_of_rolled_back_transactions_fill_a_range_exactly(start: int, size: int) -> None:
    base, boundary = 1 << 30, (1 << 30) + start + size + 100
    data = filled(base + start, base + start + size, base, boundary)
    walk = walk_records(Region(data), start, start + size, base, boundary, True)
    assert (walk.reason, walk.position) == (AT_LIMIT, start + size)
    position = start
    while position < start + size:
        record = read_record(data, position)
        assert record is not None
        assert record.sys_flag & 0xC == ROLLBACK
        assert (record.physical_offset, record.store_timestamp) == (base + position, TIME)
        assert "ROCKETLENS_FILLER".startswith(record.topic)
        assert record.topic
        assert record.total_size <= LARGEST
        position += record.total_size


@given(start=st.integers(1, 5000), size=st.integers(8, 5000))
def test_a_range_up_to_the_end_of_a_segment_is_one_blank(start: int, size: int) -> None:
    data = filled(start, start + size, 0, start + size)
    assert (signed(data, start, 4), data[start + 4 : start + 8]) == (size, BLANK_MAGIC.to_bytes(4, "big"))
    assert walk_records(Region(data), start, len(data), 0, len(data), True).reason == AT_BLANK


def test_a_segment_of_nothing_else_begins_with_a_message() -> None:
    data = filled(4096, 8192, 4096, 8192)
    record = read_record(data, 0)
    assert record is not None
    assert record.physical_offset == 4096
    assert walk_records(Region(data), 0, 4096, 4096, 8192, True).reason == AT_BLANK


@pytest.mark.parametrize(("start", "stop"), [(0, SMALLEST - 1), (993, 1000)])
def test_what_nothing_fits_in_is_refused(start: int, stop: int) -> None:
    assert not can_be_filled(start, stop, 1000)
    with pytest.raises(ValueError, match="hold no"):
        list(fill(start, stop, 0, 1000, TIME))
