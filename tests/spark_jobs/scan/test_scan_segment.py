"""The task that reads a segment loses nothing of an intact record, reports breaks, and says where the log ends."""

import os
from functools import partial
from typing import cast
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blanks import LENGTH, blanked_segments
from loop_engine import LoopEngine
from oracles import index_hash, index_keys, is_queued, queue_unit, read_record
from spark_jobs.build.place_entries import entry_tables
from spark_jobs.build.unit_blocks import ScannedUnits, used_bundles
from spark_jobs.run._spark_calls import TaskFailed
from spark_jobs.run.attempt import block_file
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan import scan_segment as scan_segment_module
from spark_jobs.scan.log_end import find_log_end
from spark_jobs.scan.scan_segment import GATHERED_BYTES, HOT_SHARE, ScanSummary, ScanTask, SegmentScan, scan_segment
from spark_jobs.scan.segment_window import READ_BYTES
from storage.build.dispatch_scan import DispatchOptions
from storage.kernels import records as codes
from storage.log.damaged_ranges import ZEROS
from store_writer import StoreWriter

SIZE = 1000
SEGMENT = 4096


def scan(work, segment, **options):
    directory = WorkDirectory.open(work, {"segment": str(segment)}, fresh=True)
    directory.close()
    return {**scan_segment(task_of(directory, segment, **options)), "work": directory}


def task_of(directory, segment, **options):
    fields = {
        "limit": -1, "entries": True, "checksums": False, "tags": True, "bundles": 1, "delays": (), "lmq": False,
        "ext": False, "batch_topics": (),
    }  # fmt: skip
    return ScanTask(work=str(directory.root), path=str(segment), base_offset=int(segment.name), **{**fields, **options})


def entries_in(summary):
    found: list[tuple[int, int, int]] = []
    for table in entry_tables(summary["work"], [cast("ScanSummary", summary)]):
        blocks = table.blocks()
        assert (table.first, table.end) == (blocks[0].first, blocks[-1].end)
        for each in blocks:
            columns = each.read().columns
            records = np.repeat(np.arange(columns["counts"].size), columns["counts"])
            offsets = columns["offsets"][records].astype(np.int64) + each.first
            named = (columns["hashes"], offsets, columns["timestamps"][records])
            found += zip(*(column.tolist() for column in named), strict=True)
        assert len(found) == table.entries
    return found


def units_in(summary):
    found: dict[tuple[bytes, int], list[tuple[int, bytes]]] = {}
    used = used_bundles([cast("ScanSummary", summary)])
    units = ScannedUnits(str(block_file(summary["work"], summary, "units")), summary["unit_table"])
    for block in (block for bundle in used for block in units.blocks(bundle, 1 << 62)):
        data, at = block.columns["units"].tobytes(), 0
        for number, _, first, count in block.columns["runs"].reshape(-1, 4).tolist():
            queue = found.setdefault(tuple(block.header["queues"][number]), [])
            for i in range(count):
                queue.append((first + i, data[at : at + 20]))
                at += 20
        assert at == len(data)
    return found


def expected_entries(records):
    return [
        (index_hash(text), record.physical_offset, record.store_timestamp)
        for record in records
        if record.sys_flag & 0xC != 0xC
        for text in index_keys(record)
    ]


def expected_units(records):
    found: dict[tuple[bytes, int], list[tuple[int, bytes]]] = {}
    for record in filter(is_queued, records):
        found.setdefault((record.topic_bytes, record.queue_id), []).append((record.queue_offset, queue_unit(record)))
    return found


@st.composite
def logs(draw):
    return [
        {
            "topic": draw(st.sampled_from(["TopicTest", "Другая", "%RETRY%g"])),
            "queue_id": draw(st.integers(0, 2)),
            "keys": draw(st.none() | st.sampled_from(["k", "k k", "a b c", "😀 polygenelubricants"])),
            "unique_key": draw(st.none() | st.just("0A01")),
            "tags": draw(st.none() | st.sampled_from(["TagA", "Aa"])),
            "sys_flag": draw(st.sampled_from([0, 0, 4, 8, 12])),
            "body": b"b" * draw(st.integers(0, 200)),
        }
        for _ in range(draw(st.integers(1, 30)))
    ]


def write(root, messages, segment=SEGMENT):
    with StoreWriter(root, segment_size=segment) as writer:
        for message in messages:
            fields = dict(message)
            writer.append(fields.pop("topic"), fields.pop("body"), **fields)
    return writer


@settings(max_examples=settings.default.max_examples // 2)
@given(messages=logs(), bundles=st.integers(1, 3))
def test_entries_and_units_are_what_dispatching_one_by_one_gives(tmp_path_factory, messages, bundles) -> None:
    root = tmp_path_factory.mktemp("scan")
    writer = write(root / "store", messages)
    records = writer.records
    for segment in sorted((root / "store" / "commitlog").iterdir()):
        summary = scan(root / "work", segment, bundles=bundles)
        mine = [r for r in records if int(segment.name) <= r.physical_offset < int(segment.name) + SEGMENT]
        assert entries_in(summary) == expected_entries(mine)
        assert units_in(summary) == expected_units(mine)
        assert summary["records"] == len(mine)
        counts = {queue: len(units) for queue, units in expected_units(mine).items()}
        assert summary["units"] == sum(counts.values())
        hot = {(topic, queue_id): count for topic, queue_id, count in summary["hot_queues"]}
        assert hot == {queue: count for queue, count in counts.items() if count * HOT_SHARE > summary["units"]}


@pytest.mark.parametrize("gathered", [GATHERED_BYTES, 100])
def test_units_of_many_blocks_are_gathered_for_many_bundles(gathered, tmp_path, monkeypatch) -> None:
    """However often units are dealt out, each bundle has the same ones in the same order."""
    monkeypatch.setattr(scan_segment_module, "DispatchOptions", partial(DispatchOptions, records=3))
    monkeypatch.setattr(scan_segment_module, "BUNDLES_OF_A_BLOCK", 2)
    monkeypatch.setattr(scan_segment_module, "GATHERED_BYTES", gathered)
    with StoreWriter(tmp_path / "store", segment_size=SEGMENT) as writer:
        for number in range(25):
            writer.append(f"T{number % 3}", queue_id=number % 2)
    summary = scan(tmp_path / "work", writer.root / "commitlog" / f"{0:020d}", bundles=9, ext=True)
    assert units_in(summary) == expected_units(writer.records)
    units = ScannedUnits(str(block_file(summary["work"], summary, "units")), summary["unit_table"])
    blocks = [block for bundle in range(9) for block in units.blocks(bundle, 1 << 62)]
    times = {r.physical_offset: r.store_timestamp for r in writer.records}
    for block in blocks:
        offsets = block.columns["units"].reshape(-1, 20)[:, :8].copy().view(">i8").reshape(-1)
        assert block.columns["timestamps"].tolist() == [times[offset] for offset in offsets.tolist()]
    most = max(len(list(units.blocks(bundle, 1 << 62))) for bundle in range(9))
    assert (most == 2) == (gathered == GATHERED_BYTES)


@settings(max_examples=settings.default.max_examples // 2)
@given(messages=logs(), data=st.data())
def test_every_intact_record_behind_damage_is_found_again(tmp_path_factory, messages, data) -> None:
    root = tmp_path_factory.mktemp("scan")
    writer = write(root / "store", messages, segment=1 << 16)
    victim = data.draw(st.sampled_from(writer.written), label="victim")
    position = data.draw(st.sampled_from([0, 3, 4, 7, 28, 35, 87]), label="position")
    value = data.draw(st.binary(min_size=1, max_size=4), label="bytes")
    # Not within the body, from byte 88 on: only its checksum shows that, which this task does not read.
    writer.overwrite(victim.physical_offset + position, value[: 88 - position])
    segment = next((root / "store" / "commitlog").glob("0" * 20))
    content = segment.read_bytes()
    intact = [
        record
        for written in writer.written
        if (record := read_record(content, written.physical_offset)) is not None
        and record.physical_offset == written.physical_offset
    ]
    summary = scan(root / "work", segment)
    assert entries_in(summary) == expected_entries(intact)
    damaged = [written for written in writer.written if written.physical_offset not in
               {record.physical_offset for record in intact}]  # fmt: skip
    assert [offset for offset, *_ in summary["breaks"][:-1]] == [
        written.physical_offset for written in damaged if written is not writer.written[-1]
    ]
    assert summary["breaks"][-1][1] == -1


def test_records_cut_by_the_end_of_a_read_are_found_wherever_the_cut_lies(tmp_path) -> None:
    """The first record's size moves all that follow over the boundary of a read, byte by byte."""
    for shift in range(0, 400, 57):
        root = tmp_path / str(shift)
        bodies = [READ_BYTES - 600 + shift, *[50] * 8, 2 * READ_BYTES]
        messages = [{"topic": "T", "keys": f"k{number}", "body": b"x" * size} for number, size in enumerate(bodies)]
        writer = write(root / "store", messages, segment=4 * READ_BYTES)
        summary = scan(root / "work", next((root / "store" / "commitlog").glob("0" * 20)))
        assert entries_in(summary) == expected_entries(writer.records)


@settings(max_examples=settings.default.max_examples // 2)
@given(blanked=blanked_segments())
def test_a_blank_of_any_size_hides_no_record(tmp_path_factory, blanked) -> None:
    root = tmp_path_factory.mktemp("scan")
    has_others = blanked.has_previous or blanked.has_next
    end = blanked.base + LENGTH
    ends = {"limit": end if blanked.has_next else -1, "boundary": end if has_others else 0}
    summary = scan(root / "work", blanked.write(root / "log"), bundles=0, **ends)
    assert sorted({offset for _, offset, _ in entries_in(summary)}) == blanked.offsets
    assert summary["records"] == len(blanked.records)
    named = [(start, stop) for start, stop, *_ in summary["breaks"] if stop >= 0]
    assert [part for part in blanked.damage if part[1] < blanked.base + len(blanked.data)] == named


def test_a_blank_whose_head_the_window_cuts_is_seen_at_the_very_end(tmp_path) -> None:
    """The first four of its bytes end one block that is read, and fewer are left behind them than a record has."""
    segment = READ_BYTES + 20
    with StoreWriter(tmp_path, segment_size=segment) as writer:
        writer.append("T", b"x" * (READ_BYTES - 4 - 91 - 1))
        writer.roll()
        writer.append("T", b"next")
    assert writer.written[0].size == READ_BYTES - 4
    summary = scan(tmp_path / "work", writer.log.segments[0], limit=segment, boundary=segment)
    assert (summary["state"], summary["breaks"]) == ("blank", [])


def scan_while_it_is_cut(task):
    step = SegmentScan._step

    def cut(scan: SegmentScan) -> bool:
        os.truncate(task.path, 5000)
        return step(scan)

    with mock.patch.object(SegmentScan, "_step", cut):
        return scan_segment(task)


def test_a_segment_that_is_cut_while_it_is_scanned_fails_the_task_with_a_sentence(tmp_path) -> None:
    size = READ_BYTES // 2
    writer = write(tmp_path / "store", [{"topic": "T", "body": b"x" * 1000}] * (size // 1200), segment=size)
    segment = writer.log.segments[0]
    directory = WorkDirectory.open(tmp_path / "work", {}, fresh=True)
    with pytest.raises(TaskFailed) as caught:
        LoopEngine().run_tasks("scan", [task_of(directory, segment)], scan_while_it_is_cut)
    directory.close()
    assert str(caught.value) == f"{segment}: needs {size} bytes, but only 5000 are there"


def segment(number, *breaks, records=9, end=None, state="blank"):
    base = number * SIZE
    return {
        "path": f"/store/commitlog/{base:020d}", "base": base, "size": SIZE, "records": records,
        "end": base + 900 if end is None else end, "state": state, "more_breaks": 0,
        "breaks": [[offset, following, code, int(credible)] for offset, following, code, credible in breaks],
    }  # fmt: skip


def empty(number):
    return segment(number, (number * SIZE, -1, ZEROS, False), records=0, end=number * SIZE, state="zeros")


STOPS = segment(1, (1500, -1, ZEROS, False))
MAGIC = codes.BAD_MAGIC
CASES = {
    "a log that just stops": ([segment(0), STOPS], None, 1500, []),
    "segments made ahead": ([segment(0), STOPS, empty(2), empty(3)], None, 1500, []),
    "no record": ([empty(0), empty(1)], None, 0, []),
    "a torn record at the end": (
        [segment(0), segment(1, (1500, -1, codes.BAD_BODY_CRC, False))], None, 1500, [(1500, 500)],
    ),
    "older records behind the end, which a truncation left": (
        [segment(0), segment(1, (1500, 1700, ZEROS, False), (1900, -1, ZEROS, False))], None, 1500, [],
    ),
    "zeros before newer records": (
        [segment(0), segment(1, (1500, 1700, ZEROS, True), (1900, -1, ZEROS, False))], None, 1900, [(1500, 200)],
    ),
    "damage in an earlier segment": ([segment(0, (300, 400, MAGIC, True)), STOPS], None, 1500, [(300, 100)]),
    "an older record behind damage in an earlier segment, as the clock may step back": (
        [segment(0, (300, 400, MAGIC, False)), STOPS], None, 1500, [(300, 100)],
    ),
    "an earlier segment that breaks off": (
        [segment(0, (300, -1, codes.BAD_SIZE, False), state="broken"), STOPS], None, 1500, [(300, 700)],
    ),
    "a segment of zeros between others": (
        [segment(0), empty(1), segment(2, (2500, -1, ZEROS, False))], None, 2500, [(1000, 1000)],
    ),
    "a missing segment, even where a recovery looks": (
        [segment(0), segment(2, (2500, -1, ZEROS, False))], 0, 2500, [(1000, 1000)],
    ),
    "damage where a recovery looks": (
        [segment(0, (300, 400, MAGIC, True)), STOPS], 300, 300, [(300, 100), (400, 1600)],
    ),
    "damage before the place where a recovery looks": (
        [segment(0, (300, 400, MAGIC, True)), STOPS], 301, 1500, [(300, 100)],
    ),
    "a segment that breaks off where a recovery looks hides all that follow": (
        [segment(0, (300, -1, codes.BAD_SIZE, False)), STOPS], 0, 300, [(300, 700), (1000, 1000)],
    ),
    "a false BLANK ends it in the last segment alone, since a broker goes on in the next": (
        [
            segment(0, (300, 400, codes.BAD_BLANK, True)),
            segment(1, (1300, 1400, codes.BAD_BLANK, True), (1500, -1, ZEROS, False)),
        ],
        0, 1300, [(300, 100), (1300, 100), (1400, 600)],
    ),
}  # fmt: skip
"""Summaries of segments, from where on a recovery looks, where the log ends, and what is damaged."""


@pytest.mark.parametrize("case", CASES)
def test_the_log_ends_behind_its_last_record_and_damage_is_passed_over(case: str) -> None:
    summaries, recovered_from, end, damages = CASES[case]
    log_end = find_log_end(summaries, recovered_from)
    assert (log_end.end, [(each.physical_offset, each.length) for each in log_end.damages]) == (end, damages)
