"""Queues made of a log: what their files shall hold, which units, and how files are written."""

import ctypes
import errno
import fcntl
import os
import shutil
from collections import defaultdict
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from oracles import is_queued, packed, queue_unit, read_log, signed
from protocol.errors import ConfigError, StoreError
from queue_runs import QueuedUnit, batch_unit, files_under, put_all, put_batches, queued, unit, units_in
from storage.build import queue_file_writer
from storage.build.batch_queue_builder import BatchQueueBuilder
from storage.build.existing_queue import OldQueue, ReadableLog, has_data_behind
from storage.build.queue_builder import QueueBuilder
from storage.build.queue_carry import CarrySummary, carry_queue
from storage.build.queue_ext_builder import QueueExtBuilder
from storage.build.queue_file_writer import (
    DIRECT_BYTES,
    FLUSH_BYTES,
    QueueFileWriter,
    fsync_file,
    fsync_tree,
    sync_file_system,
)
from storage.build.queue_plan import CarriedQueue, QueueKey, QueueOptions, QueuePlan, Verdict
from storage.build.queue_units import units_before, unreadable_unit
from store_files import PRE_BLANK, BatchConsumeQueueFiles, ConsumeQueueExtFiles, ConsumeQueueFiles, write_file
from store_writer import StoreWriter

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


@given(pieces=pieces, first=st.sampled_from([0, 0, 1, 7, 10, 99, 100, 301]), block=st.integers(2, 40),
       per_file=st.integers(1, 12))  # fmt: skip
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


@given(lost=st.lists(st.tuples(st.integers(0, 60), st.sampled_from([1, 3, 64, 65, 500, 1024, 1025, 1500])), max_size=3),
       step=st.sampled_from([100, 20_000]), block=st.integers(1, 40))  # fmt: skip
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
    born_at = Mock(return_value=LATER + 5000)
    builder = QueueBuilder(tmp_path, 100, SEGMENT, born_at=born_at)
    put_all(builder, [*earlier, *later], block)
    builder.flush()
    summary = builder.finish()
    assert units_in(tmp_path) == {number: each.data for number, each in enumerate(later)}
    assert (summary.earlier_life, summary.units, summary.next_offset, born_at.call_count) == (12, 5, 5, 1)


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


def plain(topic: str, queue_id: int = 0, tree: str = "consumequeue") -> QueueKey:
    return QueueKey(tree, topic, queue_id)


batch = partial(plain, tree="batchconsumequeue")


@pytest.fixture
def store(tmp_path):
    with StoreWriter(tmp_path / "store", ext_bit_map=b"", ext_file_size=300) as writer:
        for number in range(30):
            writer.append("T", queue_id=number % 2)
        writer.append("Other")
        writer.append_inner_batch("B", [(b"a", {})])
    return writer.root


def test_sizes_topics_and_kinds_are_those_of_the_store(store) -> None:
    plan = QueuePlan.of(store)
    assert plan.file_sizes == {"consumequeue": 2000, "batchconsumequeue": 920, "consumequeue_ext": 300}
    assert plan.existing == {plain("T"), plain("T", 1), plain("Other"), batch("B")}
    assert (plan.batch_topics, plan.lmq, plan.ext) == ({"B"}, False, True)
    assert plan.known_topics >= {"T", "Other", "B"}
    assert (plan.misplaced, plan.problems) == (frozenset(), ())


@pytest.mark.parametrize(("more", "complaint"), [
    ({"consume_queue_file_size": 0}, r"files of 0 bytes in consumequeue/: expected 20 to 2147483647"),
    ({"consume_queue_file_size": 1 << 31}, "files of 2147483660 bytes"),
    ({"batch_file_size": 100}, "in batchconsumequeue/: expected 46 to 2147483647 and a multiple of 46"),
    ({"batch_file_size": -46}, "files of -46 bytes"),
    ({"ext_file_size": 23}, "in consumequeue_ext/: expected 24 to 2147483647"),
])  # fmt: skip
def test_sizes_that_no_file_can_have_are_refused(store, more, complaint) -> None:
    with pytest.raises(ConfigError, match=complaint):
        QueuePlan.of(store, QueueOptions(**more))


def test_of_several_lengths_the_usual_one_counts_and_the_others_are_told(store) -> None:
    files = (plain("T"), 2000, 4000), (plain("T"), 6000, 0), (batch("B"), 920, 930), (batch("B"), 1850, 930)
    for key, start, size in files:
        write_file(store / key.path / f"{start:020d}", size, {})
    plan = QueuePlan.of(store)
    assert (plan.file_sizes["consumequeue"], plan.file_sizes["batchconsumequeue"]) == (2000, 920)
    told = "\n".join(plan.problems)
    assert "consumequeue: 1 of 4 files are not 2000 bytes long" in told
    assert "batchconsumequeue: 2 of 3 files are not 920 bytes long" in told


def test_without_topics_the_directories_say_which_topics_hold_batches(store) -> None:
    (store / "config" / "topics.json").unlink()
    plan = QueuePlan.of(store)
    assert (plan.known_topics, plan.batch_topics, plan.misplaced) == (None, {"B"}, frozenset())
    assert not plan.is_unknown("T")
    with pytest.raises(ConfigError, match=r"no config/topics\.json"):
        QueuePlan.of(store, QueueOptions(drop_unknown_topics=True))


def test_a_queue_in_the_tree_of_the_other_kind_is_left_out_and_told(store) -> None:
    for key in (plain("B", 3), batch("T", 4), batch("deleted")):
        write_file(store / key.path / f"{0:020d}", 920, {})
    plan = QueuePlan.of(store)
    assert plan.misplaced == {plain("B", 3), batch("T", 4), batch("deleted")}
    assert sum("a broker refuses to start" in problem for problem in plan.problems) == 3
    assert [queue.key for queue in plan.carried([plain("T"), plain("T", 1)], in_place=True)] == [
        batch("B"), plain("Other"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "topic", [b"", b".", b"..", b"a/b", b"../../etc", b"a\0", b"\xff", b"\xed\xa0\x80", b"a" * 256]
)
def test_names_that_no_directory_can_have_are_not_followed(topic, store) -> None:
    plan = QueuePlan.of(store)
    assert plan.key(topic, 0) is None
    for name, queue_id in ((topic, 0), (b"T", -1), (b"T", 1 << 31)):
        assert plan.verdict(name, queue_id) is Verdict.UNUSABLE


def test_what_the_log_has_nothing_of_is_carried_over(store) -> None:
    plan = QueuePlan.of(store)
    for in_place in (True, False):
        assert plan.carried([plain("T"), plain("T", 1)], in_place=in_place) == [
            CarriedQueue(batch("B"), untouched=False),
            CarriedQueue(plain("Other"), untouched=False),
        ]
    assert plan.carried(plan.existing, in_place=True) == []


def test_topics_that_were_not_asked_for_stay_as_they_are_in_place_alone(store) -> None:
    write_file(store / "batchconsumequeue" / "T" / "9" / f"{0:020d}", 920, {})
    plan = QueuePlan.of(store, QueueOptions(topics=frozenset({"T"})))
    assert plan.verdict(b"T", 0) is Verdict.BUILD
    assert plan.verdict(b"Other", 0) is Verdict.OTHER_TOPIC
    built = [plain("T")]
    silent = CarriedQueue(plain("T", 1), untouched=False)
    assert plan.carried(built, in_place=False) == [silent]
    untouched = [CarriedQueue(key, untouched=True) for key in (batch("B"), plain("Other"))]
    assert plan.carried(built, in_place=True) == [*untouched, silent]


GONE = ReadableLog(minimum=10_000, end=20_000)
"""A log whose records before 10,000 have expired."""


def write(directory, *units, start=0, per_file=10):
    """Files of ten units each from a byte offset on."""
    size = len(units[0]) if units else 20
    for first in range(0, max(len(units), 1), per_file):
        content = b"".join(units[first : first + per_file])
        write_file(directory / f"{start + first * size:020d}", per_file * size, {0: content} if content else {})
    return OldQueue(directory, batch=size == 46)


@given(ranges=st.lists(st.integers(0, 100), min_size=2, max_size=10, unique=True).map(sorted),
       offsets=st.lists(st.integers(-5, 110), max_size=20))  # fmt: skip
def test_lost_offsets_are_those_in_a_lost_range(ranges: list[int], offsets: list[int]) -> None:
    lost = list(zip(ranges[::2], ranges[1::2], strict=False))
    log = ReadableLog(0, 100, lost)
    expected = [any(start <= offset < end for start, end in lost) for offset in offsets]
    assert log.are_lost(np.array(offsets, ">i8")).tolist() == expected
    for offset in offsets:
        assert log.loses_behind(offset) == any(end > offset for _, end in lost)


@pytest.mark.parametrize(("bad", "first", "count"), [
    (bytes(20), 0, 699), (unit(-1), 0, 1), (unit(15_000), 3, 690), (unit(20_000), 100, 1),
    (unit(90, size=-4), 100, 500),
])  # fmt: skip
def test_damaged_units_of_any_number_do_not_end_the_queue(bad, first, count, tmp_path) -> None:
    units = [unit(n) for n in range(700)]
    units[first : first + count] = [bad] * count
    for per_file in (800, 50):
        assert write(tmp_path / str(per_file), *units, per_file=per_file).end(GONE) == 700 * 20


def test_the_number_behind_a_batch_stands_in_its_unit(tmp_path) -> None:
    queue = write(tmp_path, *(batch_unit(100 * n, 4 * n, 4) for n in range(23)))
    assert (queue.end(GONE), queue.next_offset(23 * 46), queue.next_offset(0)) == (23 * 46, 92, 0)
    spoilt = write(tmp_path / "spoilt", batch_unit(0, 0, 4), batch_unit(100, 4, 0), batch_unit(200, 4, 4))
    assert spoilt.end(GONE) == 3 * 46
    assert write(tmp_path / "last", batch_unit(0, 0, 4), batch_unit(100, 4, 0)).end(GONE) == 46


def test_the_first_unit_tells_where_the_queue_was_born(tmp_path) -> None:
    assert write(tmp_path / "a", unit(700), unit(800)).born_at() == 700
    assert write(tmp_path / "b", batch_unit(900, 0, 1)).born_at() == 900
    for name, units, start in (
        ("late", [unit(700)], 200), ("filler", [PRE_BLANK, unit(700)], 0), ("blank", [], 0), ("spoilt", [unit(-4)], 0),
    ):  # fmt: skip
        assert write(tmp_path / name, *units, start=start).born_at() is None, name
    assert OldQueue(tmp_path / "nothing").born_at() is None


def test_a_queue_went_on_as_far_as_its_units_point_to_what_is_lost(tmp_path) -> None:
    log = ReadableLog(0, 20_000, [(1000, 1500), (2000, 9000)])
    units = [unit(900), unit(1000), unit(1500), unit(2000), unit(3000), unit(8999)]
    assert write(tmp_path / "a", *units).offset_behind_lost(1500, 3, log) == 6
    assert write(tmp_path / "b", *units, unit(9000), unit(2500)).offset_behind_lost(1500, 3, log) == 6
    assert write(tmp_path / "c", *units).offset_behind_lost(9500, 3, log) == 3
    assert write(tmp_path / "d", *units[:3], unit(1200), unit(3000)).offset_behind_lost(1500, 3, log) == 3
    assert write(tmp_path / "e", *units, start=400).offset_behind_lost(1500, 3, log) == 3
    assert write(tmp_path / "f").offset_behind_lost(1500, 3, log) == 3
    assert write(tmp_path / "g", *units).offset_behind_lost(1500, 3, ReadableLog(0, 2500, log.lost)) == 4
    far = ReadableLog(0, 1 << 40, [(1000, 1 << 39)])
    spoilt = [unit(100), *(unit(1000 + n) for n in range(900))]
    spoilt[5:400] = [bytes(20)] * 200 + [unit(5000, size=-1)] * 195
    assert write(tmp_path / "spoilt", *spoilt, per_file=2000).offset_behind_lost(100, 1, far) == 901
    places = [(100, 0, 4), (1000, 4, 4), (1100, 8, 0), (1200, 16, 4)]
    batches = [batch_unit(*each) for each in places]
    assert write(tmp_path / "batches", *batches).offset_behind_lost(100, 4, far) == 20


def test_data_behind_a_position_is_found_past_holes(tmp_path) -> None:
    path = tmp_path / "file"
    write_file(path, 1 << 24, {100: b"x"})
    assert [has_data_behind(path, at) for at in (0, 100, 101)] == [True, True, False]
    write_file(path, 1 << 24, {(1 << 24) - 1: b"x"})
    assert [has_data_behind(path, at) for at in (101, 1 << 24)] == [True, False]
    with pytest.raises(StoreError, match="cannot be opened"):
        has_data_behind(tmp_path / "none", 0)


PLAIN = QueueKey("consumequeue", "T", 3)


def write_queue(root, *units, per_file=4) -> None:
    write(root / PLAIN.path, *units, per_file=per_file)


def carry(root, *, untouched=False, link=True):
    return carry_queue(root / "store", CarriedQueue(PLAIN, untouched), GONE, root / "staged", link=link)


def test_stale_units_behind_the_end_are_zeroed_in_a_copy(tmp_path) -> None:
    kept = [unit(100 * n) for n in range(6)]
    write_queue(tmp_path / "store", *kept, unit(25_000), unit(12_000), unit(25_100))
    before = files_under(tmp_path / "store")
    assert carry(tmp_path) == CarrySummary(next_offset=6, linked=1, copied=1, left_out=1)
    assert list(files_under(tmp_path / "staged").values()) == [b"".join(kept[:4]), b"".join(kept[4:]).ljust(80, b"\0")]
    assert files_under(tmp_path / "store") == before


def test_without_links_files_are_copied_with_their_holes(tmp_path) -> None:
    write_queue(tmp_path / "store", *(unit(100 * n) for n in range(3)), per_file=300_000)
    assert carry(tmp_path, link=False) == CarrySummary(next_offset=3, linked=0, copied=1, left_out=0)
    (name,) = files_under(tmp_path / "staged")
    assert not (tmp_path / "store" / name).samefile(tmp_path / "staged" / name)
    assert files_under(tmp_path / "staged") == files_under(tmp_path / "store")
    assert (tmp_path / "staged" / name).stat().st_blocks * 512 < 100_000


@pytest.mark.parametrize("link", [True, False])
def test_a_queue_of_another_topic_stays_as_it_is(link, tmp_path) -> None:
    write_queue(tmp_path / "store", unit(100), unit(-7), unit(25_000), unit(3), unit(4))
    assert carry(tmp_path, untouched=True, link=link).next_offset == -1
    assert files_under(tmp_path / "staged") == files_under(tmp_path / "store")


def test_where_links_are_not_possible_files_are_copied_and_other_failures_name_the_file(tmp_path, monkeypatch) -> None:
    write_queue(tmp_path / "store", unit(100))
    monkeypatch.setattr(os, "link", Mock(side_effect=OSError(errno.EXDEV, os.strerror(errno.EXDEV))))
    assert carry(tmp_path).copied == 1
    assert files_under(tmp_path / "staged") == files_under(tmp_path / "store")
    shutil.rmtree(tmp_path / "staged")
    refuse = Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StoreError, match=r"00000000000000000000: cannot be linked to .*: No space left on device"):
        carry(tmp_path)
    monkeypatch.setattr(os, "copy_file_range", refuse)
    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(StoreError, match=r"00000000000000000000: cannot be copied to .*: No space left on device"):
        carry(tmp_path, link=False)


@pytest.fixture
def fsynced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: names.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    return names


@given(pieces=st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["", "", "flush"])), max_size=8),
       file_size=st.sampled_from([1, 7, 10, 100]), first=st.sampled_from([0, 3]))  # fmt: skip
def test_whatever_is_added_when_comes_out_as_one_stream(pieces, file_size, first, tmp_path_factory) -> None:
    directory = tmp_path_factory.mktemp("stream") / "queue"
    writer = QueueFileWriter(directory, file_size, first * file_size)
    stream = b""
    for number, (size, action) in enumerate(pieces):
        data = bytes([number + 1]) * size
        writer.append(memoryview(data))
        stream += data
        assert writer.position == first * file_size + len(stream)
        if action:
            writer.flush()
            assert writer.pending == 0
    count = writer.finish()
    files = files_under(directory)
    assert list(files) == [f"{(first + number) * file_size:020d}" for number in range(count)]
    assert b"".join(files.values()) == stream.ljust(count * file_size, b"\0")
    assert count == -(-len(stream) // file_size)


@pytest.mark.parametrize(("file_size", "is_refused"), [(999_999, True), (1 << 20, False)])
def test_long_pieces_past_the_page_cache_come_out_as_one_stream(file_size, is_refused, tmp_path, monkeypatch) -> None:
    write, direct = os.pwrite, 0

    def pwrite(descriptor: int, data: memoryview, position: int) -> int:
        nonlocal direct
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            direct += len(data)
            if is_refused:
                raise OSError(errno.EINVAL, "Invalid argument")
        return write(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    random = Random(file_size)
    writer, stream = QueueFileWriter(tmp_path / "q", file_size), b""
    for size in (1, FLUSH_BYTES - 1, 4096, 5, 3 * FLUSH_BYTES + 7, DIRECT_BYTES, DIRECT_BYTES - 1, 2 * FLUSH_BYTES):
        data = random.randbytes(size)
        writer.append(data)
        stream += data
    count = writer.finish()
    assert b"".join(files_under(tmp_path / "q").values()) == stream.ljust(count * file_size, b"\0")
    assert direct > 0


def test_files_and_their_names_outlive_a_power_failure(tmp_path: Path, fsynced: list[str]) -> None:
    for name, size in (("topic/0", 25), ("topic/1", 5)):
        writer = QueueFileWriter(tmp_path / name, 10)
        writer.append(b"x" * size)
        writer.finish()
    assert QueueFileWriter(tmp_path / "none", 10).finish() == 0
    fsync_tree(tmp_path)
    everything = [tmp_path, *tmp_path.rglob("*")]
    assert (sorted(fsynced), len(fsynced)) == (sorted(map(str, everything)), 1 + 3 + 3 + 1)
    # Names come last: none outlives what it stands for.
    assert not any(Path(path).is_file() for path in fsynced[-4:])


def test_a_whole_file_system_is_synced_by_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync_file_system(tmp_path)
    fsync_file(tmp_path)

    failing = SimpleNamespace(syncfs=lambda _descriptor: (ctypes.set_errno(5), -1)[1])
    monkeypatch.setattr(queue_file_writer.ctypes, "CDLL", lambda *_, **__: failing)
    with pytest.raises(StoreError, match="cannot be brought to the disk: Input/output error"):
        sync_file_system(tmp_path)
    monkeypatch.setattr(queue_file_writer.ctypes, "CDLL", lambda *_, **__: object())
    monkeypatch.setattr(os, "sync", Mock())
    sync_file_system(tmp_path)
    assert os.sync.call_count == 1
