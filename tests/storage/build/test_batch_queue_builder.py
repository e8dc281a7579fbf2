"""Queues of batches come out as a broker builds them."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oracles import packed
from queue_runs import QueuedUnit, batch_unit, files_under, put_batches, units_in
from storage.build.batch_queue_builder import BatchQueueBuilder
from storage.build.queue_builder import QueueSummary
from store_files import BatchConsumeQueueFiles


def batches(sizes: list[int], *, start: int = 0, base: int = 0) -> list[QueuedUnit]:
    units = []
    for number, size in enumerate(sizes):
        units.append(QueuedUnit(base, batch_unit(start + number * 300, base, size)))
        base += size
    return units


def build(directory: Path, units: list[QueuedUnit], *, per_file: int = 4, block: int = 1000) -> QueueSummary:
    builder = BatchQueueBuilder(directory, per_file * 46)
    put_batches(builder, units, block)
    return builder.finish()


@given(sizes=st.lists(st.integers(1, 100), max_size=30), per_file=st.integers(1, 8), block=st.integers(1, 10))
@example(sizes=[1] * 8, per_file=4, block=1000)
def test_units_come_out_as_the_broker_writes_them(sizes: list[int], per_file: int, block: int) -> None:
    units = batches(sizes, base=7)
    with TemporaryDirectory() as directory:
        files = BatchConsumeQueueFiles(Path(directory, "broker"), per_file * 46)
        for each, size in zip(units, sizes, strict=True):
            files.put(int.from_bytes(each.data[:8], "big"), 300, 9, 5, each.queue_offset, size)
        files.flush()
        summary = build(Path(directory, "ours"), units, per_file=per_file, block=block)
        assert files_under(Path(directory, "ours")) == files_under(Path(directory, "broker"))
    assert (summary.units, summary.files) == (len(sizes), -(-len(sizes) // per_file))
    assert (summary.first, summary.next_offset) == ((7, 7 + sum(sizes)) if sizes else (0, 0))


def test_repetitions_and_units_that_a_broker_takes_for_none_are_left_out(tmp_path: Path) -> None:
    good = batches([2, 2, 2, 2])
    bad = [
        QueuedUnit(8, batch_unit(900, 8, 1)),  # no farther than the last
        QueuedUnit(-1, batch_unit(1200, -1, 1)),
        QueuedUnit(8, batch_unit(1300, 8, 0)),
        QueuedUnit(8, batch_unit(1400, 8, -3)),
        QueuedUnit(8, batch_unit(1500, 8, 1, size=0)),
    ]
    summary = build(tmp_path, [*good, *bad, *batches([3], start=2000, base=8)], block=4)
    assert (summary.units, summary.dropped, summary.next_offset) == (5, 5, 11)
    assert [data[:8] for data in units_in(tmp_path, 46).values()] == [packed(n, 8) for n in (0, 300, 600, 900, 2000)]


@pytest.mark.parametrize("block", [1, 3, 100])
def test_a_topic_made_again_is_born_where_the_replaced_queue_was(block: int, tmp_path: Path) -> None:
    later = batches([1, 2, 3], start=9000)
    asked = []
    builder = BatchQueueBuilder(tmp_path, 92, born_at=lambda: asked.append(1) or 9000)
    put_batches(builder, [*batches([5] * 7), *later], block)
    builder.flush()
    summary = builder.finish()
    assert units_in(tmp_path, 46) == dict(enumerate(each.data for each in later))
    assert (summary.earlier_life, summary.units, summary.first, summary.next_offset) == (7, 3, 0, 6)


def test_a_queue_goes_on_to_the_offset_it_had(tmp_path: Path) -> None:
    units = batches([4, 4])
    builder = BatchQueueBuilder(tmp_path, 460)
    put_batches(builder, units)
    assert (builder.settle(), builder.last_physical_offset, builder.pending) == (8, 300, 92)
    builder.extend(20, 10_000)
    builder.extend(20, 10_000)
    summary = builder.finish()
    assert (summary.next_offset, summary.repeated) == (20, 12)
    assert units_in(tmp_path, 46)[2] == batch_unit(300, 8, 12)


def test_the_batch_before_stands_in_for_lost_ones(tmp_path: Path) -> None:
    """A broker that is asked for an offset that no unit has gives the batch before it, or nothing, for ever."""
    (first,), (last,) = batches([4]), batches([3], start=600, base=40_004)
    builder = BatchQueueBuilder(tmp_path, 460)
    put_batches(builder, [first, last])
    summary = builder.finish()
    assert (summary.next_offset, summary.units, summary.repeated) == (40_007, 2, 40_000)
    place = int.from_bytes(first.data[:8], "big")
    stand_ins = [batch_unit(place, 4, 32_767), batch_unit(place, 32_771, 7_233)]
    assert list(units_in(tmp_path, 46).values()) == [first.data, *stand_ins, last.data]
