"""A rebuilt queue is the broker's where the log is whole; where it is not, every message keeps its queue offset."""

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oracles import is_queued, queue_unit, read_log
from queue_runs import QueuedUnit, files_under, put_all, queued, unit, units_in
from storage.build.queue_builder import QueueBuilder, QueueSummary
from store_files import PRE_BLANK, ConsumeQueueFiles

SEGMENT = 1 << 20
LATER = 3 * SEGMENT
"""A physical offset in a segment that is not the log's first."""


def build(directory: Path, units: list[QueuedUnit], *, file_size: int = 200, block: int = 1000) -> QueueSummary:
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
def test_all_queues_of_the_recorded_store_come_out_byte_for_byte(
    store: str, block: int, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
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
def test_a_whole_log_makes_the_files_that_the_broker_makes(
    pieces: list[tuple[str, int]], first: int, block: int, per_file: int
) -> None:
    units = queued(without_jumps(pieces, first), start=LATER)
    with TemporaryDirectory() as directory:
        expected = by_the_broker(Path(directory, "broker"), units, per_file * 20)
        summary = build(Path(directory, "ours"), units, file_size=per_file * 20, block=block)
        assert files_under(Path(directory, "ours")) == expected
    assert (summary.files, summary.bytes) == (len(expected), sum(map(len, expected.values())))
    assert summary.units + summary.dropped == len(units)


@pytest.mark.parametrize("count", [0, 10, 21, 60_000])
def test_files_are_of_full_length_and_zero_behind_the_last_unit(count: int, tmp_path: Path) -> None:
    file_size = 200 if count < 1000 else 400_000
    units = queued(range(count), start=LATER)
    summary = build(tmp_path / "q", units, file_size=file_size)
    files = files_under(tmp_path / "q")
    assert [len(content) for content in files.values()] == [file_size] * -(-count * 20 // file_size)
    assert b"".join(files.values()) == b"".join(each.data for each in units).ljust(len(files) * file_size, b"\0")
    assert list(files) == [f"{number * file_size:020d}" for number in range(len(files))]
    assert (summary.next_offset, summary.files) == (count, len(files))


def test_a_queue_born_late_in_a_later_segment_starts_with_filler(tmp_path: Path) -> None:
    units = queued([27, 28], start=LATER)
    summary = build(tmp_path, units, block=1)
    assert files_under(tmp_path) == {f"{400:020d}": (PRE_BLANK * 7 + units[0].data + units[1].data).ljust(200, b"\0")}
    assert (summary.first, summary.next_offset, summary.pre_blank) == (27, 29, 7)


def test_in_the_first_segment_the_first_message_takes_the_fillers_place(tmp_path: Path) -> None:
    """A broker that starts on the store counts from the filler on, and passes over messages that follow it."""
    units = queued([1100], start=500)
    summary = build(tmp_path, units, file_size=40_000)
    assert units_in(tmp_path) == {n: PRE_BLANK if n < 1100 - 1024 else units[0].data for n in range(1101)}
    assert (summary.pre_blank, summary.repeated) == (1100 - 1024, 1024)


@given(
    lost=st.lists(st.tuples(st.integers(0, 60), st.sampled_from([1, 3, 64, 65, 500, 1024, 1025, 1500])), max_size=3),
    step=st.sampled_from([100, 20_000]),
    block=st.integers(1, 40),
)
@example(lost=[(2, 1)], step=100, block=1)
def test_behind_lost_messages_every_other_one_stands_at_its_queue_offset(
    lost: list[tuple[int, int]], step: int, block: int
) -> None:
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


def test_numbers_that_no_queue_can_have_are_left_out(tmp_path: Path) -> None:
    units = queued([-5, -4, -3, 0, 1, 1 << 62, (1 << 62) + 1], start=LATER)
    summary = build(tmp_path, units)
    assert (summary.units, summary.dropped, summary.next_offset) == (2, 5, 2)
    assert build(tmp_path / "none", queued([1 << 62])) == QueueSummary(dropped=1)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("jump", [5, 6])
def test_the_farthest_jump_is_still_filled(jump: int, tmp_path: Path) -> None:
    builder = QueueBuilder(tmp_path, 200, SEGMENT, farthest_jump=5)
    put_all(builder, queued([0, 1, 2 + jump, 3 + jump], start=LATER))
    summary = builder.finish()
    assert (summary.repeated, summary.shifted, summary.next_offset) == ((5, 0, 9) if jump == 5 else (0, 2, 4))


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


def test_without_a_witness_the_restart_is_the_brokers(tmp_path: Path) -> None:
    units = [
        *queued(range(12), start=LATER),
        *queued(range(5), start=LATER + 5000),
        *queued(range(3), start=LATER + 9000),
    ]
    asked = []
    builder = QueueBuilder(tmp_path / "ours", 100, SEGMENT, born_at=lambda: asked.append(1) or 77)
    put_all(builder, units)
    summary = builder.finish()
    assert files_under(tmp_path / "ours") == by_the_broker(tmp_path / "broker", units, 100)
    assert (summary.restarts, summary.dropped, len(asked)) == (2, 6, 1)


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


def test_there_is_nothing_to_extend_without_units_or_behind_the_goal(tmp_path: Path) -> None:
    builder = QueueBuilder(tmp_path / "empty", 200, SEGMENT)
    builder.extend(5, LATER)
    assert builder.finish() == QueueSummary()
    builder = QueueBuilder(tmp_path / "ahead", 200, SEGMENT)
    put_all(builder, queued(range(5), start=LATER))
    builder.extend(3, LATER)
    assert builder.finish().next_offset == 5
    assert list(tmp_path.iterdir()) == [tmp_path / "ahead"]


def test_memory_is_given_back_by_a_flush(tmp_path: Path) -> None:
    builder = QueueBuilder(tmp_path, 200, SEGMENT)
    builder.flush()
    assert (builder.pending, builder.last_physical_offset) == (0, -1)
    put_all(builder, queued(range(15), start=LATER))
    assert (builder.pending, builder.last_physical_offset) == (300, LATER + 1400)
    builder.flush()
    assert builder.pending == 0
    assert len(units_in(tmp_path)) == 15
    put_all(builder, queued(range(15, 20), start=LATER))
    assert builder.finish().units == 20
    assert sorted(units_in(tmp_path)) == list(range(20))


def test_a_single_message_is_not_kept_back(tmp_path: Path) -> None:
    assert build(tmp_path, queued([0], start=LATER)).units == 1
    assert units_in(tmp_path) == {0: unit(LATER, tags_code=0)}
