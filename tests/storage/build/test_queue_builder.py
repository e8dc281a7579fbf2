"""A rebuilt queue is the one of a broker where the log is whole; else every message keeps its queue offset."""

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oracles import is_queued, packed, queue_unit, read_log, signed
from queue_runs import QueuedUnit, batch_unit, files_under, put_all, put_batches, queued, unit, units_in
from storage.build.batch_queue_builder import BatchQueueBuilder
from storage.build.queue_builder import QueueBuilder
from storage.build.queue_ext_builder import QueueExtBuilder
from storage.build.queue_units import units_before, unreadable_unit
from store_files import PRE_BLANK, BatchConsumeQueueFiles, ConsumeQueueExtFiles, ConsumeQueueFiles

SEGMENT = 1 << 20
LATER = 3 * SEGMENT
"""A physical offset in a segment that is not the log's first."""


def build(directory, units, *, file_size=200, block=1000):
    builder = QueueBuilder(directory, file_size, SEGMENT)
    put_all(builder, units, block)
    return builder.finish()


def by_the_broker(directory: Path, units: list[QueuedUnit], file_size: int) -> dict[str, bytes]:
    """The files that the broker's append rules make.

    But for an empty one at the end: a repetition of what is known makes a broker begin a file and put nothing into it.
    """
    files = ConsumeQueueFiles(directory, file_size)
    for each in units:
        position, size, code = (int.from_bytes(each.data[a:b], "big") for a, b in ((0, 8), (8, 12), (12, 20)))
        files.put(position, size, code, each.queue_offset)
    files.flush()
    return {name: content for name, content in files_under(directory).items() if any(content)}


def g1_queues(store: Path) -> dict[tuple[str, int], list[QueuedUnit]]:
    queues = defaultdict(list)
    for record in filter(is_queued, read_log(store / "commitlog")):
        queues[record.topic, record.queue_id].append(QueuedUnit(record.queue_offset, queue_unit(record)))
    return queues


@pytest.mark.parametrize(("store", "block"), [("g1_store", 7), ("g1_crashed_store", 10_000)])
def test_all_queues_of_the_recorded_store_come_out_byte_for_byte(store, block, tmp_path, request) -> None:
    root: Path = request.getfixturevalue(store)
    recorded = {name: data for name, data in files_under(root / "consumequeue").items() if any(data)}
    queues = g1_queues(root)
    assert len(queues) == 17
    for (topic, queue_id), units in queues.items():
        summary = build(tmp_path / topic / str(queue_id), units, file_size=2000, block=block)
        assert (summary.units, summary.next_offset) == (len(units), units[-1].queue_offset + 1)
        assert summary.repeated + summary.unreadable + summary.dropped + summary.misnumbered == 0
    assert files_under(tmp_path) == recorded


def without_jumps(pieces: list[tuple[str, int]], first: int) -> list[int]:
    """Queue offsets in the order of a log that lost nothing: the numbers go on, fall back, or start at 0 again."""
    offsets, following = [], first
    for kind, count in pieces:
        if kind == "restart" and following:
            offsets += range(count)
            following = max(following + 1, count) if len(offsets) > count else count
        elif kind == "repeat":
            start = max(following - count, 1)
            offsets += range(start, following + 2)
            following += 2
        else:
            offsets += range(following, following + count)
            following += count
    return offsets


pieces = st.lists(st.tuples(st.sampled_from(["on", "on", "repeat", "restart"]), st.integers(2, 30)), max_size=6)


@given(
    pieces=pieces,
    first=st.sampled_from([0, 0, 1, 7, 10, 99, 100, 301]),
    block=st.integers(2, 40),
    per_file=st.integers(1, 12),
)
@example(pieces=[("on", 10), ("on", 10)], first=0, block=1000, per_file=10)
@example(pieces=[("on", 3), ("restart", 9)], first=0, block=1000, per_file=10)
def test_a_whole_log_makes_the_files_that_the_broker_makes(pieces, first, block, per_file) -> None:
    units = queued(without_jumps(pieces, first), start=LATER)
    with TemporaryDirectory() as directory:
        expected = by_the_broker(Path(directory, "broker"), units, per_file * 20)
        summary = build(Path(directory, "ours"), units, file_size=per_file * 20, block=block)
        assert files_under(Path(directory, "ours")) == expected
    assert (summary.files, summary.bytes) == (len(expected), sum(map(len, expected.values())))
    assert summary.units + summary.dropped == len(units)


@given(
    lost=st.lists(st.tuples(st.integers(0, 60), st.sampled_from([1, 3, 64, 65, 500, 1024, 1025, 1500])), max_size=3),
    step=st.sampled_from([100, 20_000]),
    block=st.integers(1, 40),
)
@example(lost=[(2, 1)], step=100, block=1)
def test_behind_lost_messages_every_other_one_stands_at_its_queue_offset(lost, step, block) -> None:
    gaps = dict(lost)
    offsets, following = [], 0
    for number in range(62):
        following += gaps.get(number, 0)
        offsets.append(following)
        following += 1
    units = queued(offsets, start=LATER, step=step)
    with TemporaryDirectory() as directory:
        summary = build(Path(directory), units, file_size=2000, block=block)
        found = units_in(Path(directory))
    assert sorted(found) == list(range(found and min(found), following))
    assert all(found[each.queue_offset] == each.data for each in units)
    before, repeated, unreadable = None, 0, 0
    for each in units:
        start = each.queue_offset - 1
        while start in found and start not in offsets:
            start -= 1
        between = [found[n] for n in range(max(start + 1, min(found)), each.queue_offset)]
        copies = sum(data == each.data for data in between)
        check_stand_ins(between[: len(between) - copies], copies, before, each)
        repeated, unreadable, before = repeated + copies, unreadable + len(between) - copies, each
    assert (summary.units, summary.next_offset) == (len(units), following)
    assert (summary.repeated, summary.unreadable + summary.pre_blank) == (repeated, unreadable)


def check_stand_ins(rest: list[bytes], copies: int, before: QueuedUnit | None, behind: QueuedUnit) -> None:
    """Small gaps are copies; larger ones have enough of them that a pull never gets from the rest to real messages."""
    if before is None:
        assert rest == [PRE_BLANK] * len(rest)
        return
    place, following = (int.from_bytes(each.data[:8], "big") for each in (before, behind))
    if rest:
        assert len(rest) + copies > 64
        assert copies == 1024 if place // SEGMENT == following // SEGMENT else not copies
    for data in rest:
        start, size = int.from_bytes(data[:8], "big"), int.from_bytes(data[8:12], "big")
        assert place <= start <= following
        assert start % SEGMENT + size > SEGMENT  # runs out of its segment: nothing can be read
        assert 0 < size <= SEGMENT + 1


def test_one_wrong_number_costs_nothing(tmp_path: Path) -> None:
    """A queue offset is covered by no checksum: one flipped bit must not push out what follows."""
    for number, wrong in enumerate([12, 11 + (1 << 40), 3, 0]):
        offsets = [*range(10), wrong, *range(11, 20)]
        summary = build(tmp_path / str(number), queued(offsets, start=LATER), block=4)
        assert (summary.misnumbered, summary.units, summary.next_offset) == (1, 20, 20), wrong
        found = units_in(tmp_path / str(number))
        assert found == dict(enumerate(each.data for each in queued(range(20), start=LATER))), wrong


def test_a_schedule_queue_repeats_nothing(tmp_path: Path) -> None:
    """Its reader passes over unreadable units one by one, and would deliver a repeated one as a message of its own."""
    builder = QueueBuilder(tmp_path, 2000, SEGMENT, repeat=False)
    put_all(builder, queued([3, 4, 8], start=500))
    summary = builder.finish()
    assert (summary.pre_blank, summary.unreadable, summary.repeated) == (3, 3, 0)


@pytest.mark.parametrize("block", [1, 100])
def test_a_topic_made_again_is_born_where_the_replaced_queue_was(block: int, tmp_path: Path) -> None:
    earlier, later = queued(range(12), start=LATER), queued(range(5), start=LATER + 5000)
    asked = []

    def born_at() -> int:
        asked.append(1)
        return LATER + 5000

    builder = QueueBuilder(tmp_path, 100, SEGMENT, born_at=born_at)
    put_all(builder, [*earlier, *later], block)
    builder.flush()
    summary = builder.finish()
    assert units_in(tmp_path) == {number: each.data for number, each in enumerate(later)}
    assert (summary.earlier_life, summary.units, summary.next_offset, len(asked)) == (12, 5, 5, 1)


@pytest.mark.parametrize(("lost", "log_end"), [(40, LATER), (65, LATER + 9000), (1500, LATER), (1500, LATER + SEGMENT)])
def test_a_queue_goes_on_to_the_offset_it_had(lost: int, log_end: int, tmp_path: Path) -> None:
    units = queued(range(10), start=LATER)
    builder = QueueBuilder(tmp_path, 2000, SEGMENT)
    put_all(builder, units)
    assert builder.settle() == 10
    builder.extend(10 + lost, log_end)
    summary = builder.finish()
    found = units_in(tmp_path)
    assert sorted(found) == list(range(10 + lost))
    assert summary.next_offset == 10 + lost
    # What a broker reads last tells it up to where it has built queues.
    assert found[9 + lost] == units[9].data
    copies = sum(found[number] == units[9].data for number in range(10, 10 + lost))
    assert copies == (lost if lost <= 65 else 1025 if log_end == LATER else 1)
    assert (summary.repeated, summary.unreadable) == (copies, lost - copies)


def batches(sizes: list[int], *, start: int = 0, base: int = 0) -> list[QueuedUnit]:
    units = []
    for number, size in enumerate(sizes):
        units.append(QueuedUnit(base, batch_unit(start + number * 300, base, size)))
        base += size
    return units


def build_batches(directory, units, *, per_file=4, block=1000):
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
        summary = build_batches(Path(directory, "ours"), units, per_file=per_file, block=block)
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
    summary = build_batches(tmp_path, [*good, *bad, *batches([3], start=2000, base=8)], block=4)
    assert (summary.units, summary.dropped, summary.next_offset) == (5, 5, 11)
    assert [data[:8] for data in units_in(tmp_path, 46).values()] == [packed(n, 8) for n in (0, 300, 600, 900, 2000)]


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


def build_extended(root, units, file_size, block=1000, **more):
    extension = QueueExtBuilder(root / "ext", file_size)
    builder = QueueBuilder(root / "queue", 100, SEGMENT, extension=extension, **more)
    put_all(builder, units, block, stamped=True)
    return builder.finish()


def extended_by_the_broker(root: Path, units: list[QueuedUnit], file_size: int) -> dict[str, bytes]:
    queue, extension = ConsumeQueueFiles(root / "queue", 100), ConsumeQueueExtFiles(root / "ext", file_size)
    for each in units:
        position, size, code = (int.from_bytes(each.data[a:b], "big") for a, b in ((0, 8), (8, 12), (12, 20)))
        queue.put(position, size, extension.put(code, each.timestamp, b""), each.queue_offset)
    queue.flush()
    extension.flush()
    return files_under(root)


@given(count=st.integers(0, 40), file_size=st.integers(24, 130), block=st.integers(1, 20))
@example(count=5, file_size=104, block=1000)
@example(count=5, file_size=103, block=1000)
@example(count=6, file_size=105, block=5)
def test_every_message_gets_a_unit_without_bitmap(count: int, file_size: int, block: int) -> None:
    units = queued(range(count), start=LATER)
    with TemporaryDirectory() as directory:
        expected = extended_by_the_broker(Path(directory, "broker"), units, file_size)
        summary = build_extended(Path(directory, "ours"), units, file_size, block)
        assert files_under(Path(directory, "ours")) == expected
    assert summary.ext_units == summary.units == count


@given(segment_size=st.sampled_from([1024, 1 << 20, 1 << 30]), number=st.integers(0, 1 << 20), inside=st.floats(0, 1))
def test_an_unreadable_unit_runs_out_of_its_segment_and_overflows_nothing(segment_size, number, inside) -> None:
    physical_offset = number * segment_size + int(inside * (segment_size - 1))
    data = unreadable_unit(unit(physical_offset), segment_size)
    start, size = signed(data, 0, 8), signed(data, 8, 4)
    assert (start, signed(data, 12, 8)) == (physical_offset, 0)
    assert segment_size < start % segment_size + size < 1 << 31
    assert size > 0  # else a broker takes it for the queue's end


@given(count=st.integers(0, 20), stop=st.integers(-50, 2500), size=st.sampled_from([20, 46]))
def test_a_run_is_cut_where_the_log_ends(count: int, stop: int, size: int) -> None:
    run = [packed(100 * number, 8).ljust(size, b"u") for number in range(count)]
    kept = units_before(memoryview(b"".join(run)), size, stop)
    assert bytes(kept) == b"".join(run[number] for number in range(count) if 100 * number < stop)
