"""A compacted index is what the oracle says, answers as before, and says rightly where it is complete."""

import shutil
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import compact_oracle
from compact_oracle import build_compacted, keep_entries, read_entries
from job_runs import compact_in_place, compact_store, small_steps
from oracles import END_OF_TIME, index_keys, read_log, signed
from protocol.errors import RocketLensError
from spark_jobs.compact._entry_rows import EntryRows
from spark_jobs.compact._order_entries import OrderTask, order_entries
from spark_jobs.compact._timed_block import TimedTable, write_rows, write_timed_table
from spark_jobs.run.blocks import BlockWriter
from spark_jobs.run.work_directory import WorkDirectory
from store_writer import START_TIMESTAMP, StoreWriter
from strategies import store_plans
from verifying import flip

SLOTS, ENTRIES = 7, 10


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    return StoreWriter(tmp_path / "store", segment_size=2048, index_slots=SLOTS, index_entries=ENTRIES)


def append_some(writer, count=40, **more) -> None:
    for _ in range(count):
        number = len(writer.written)
        fields = {"keys": f"k{number} group{number % 5}", "unique_key": f"u{number}", "tags": "TagA", **more}
        writer.append("TopicTest", bytes(20), store_timestamp=START_TIMESTAMP + 700 * number, **fields)


def complete(outcome):
    assert outcome.marks
    return [mark is not None and mark.complete for mark in outcome.marks]


@pytest.fixture(scope="module")
def directory():
    with TemporaryDirectory() as name:
        yield Path(name)


@settings(max_examples=settings.default.max_examples // 5)
@given(store_plans(maximum_messages=30, all_indexed=True), st.booleans(), st.data())
def test_no_file_says_that_it_is_complete_and_lacks_a_key(directory, plan, from_log, data) -> None:
    """Whatever was lost before, be it found again later: index files, segments, records; or left out now, or before."""
    shutil.rmtree(directory, ignore_errors=True)
    root, profile = directory / "store", plan.options["profile"]
    writer = plan.write(root)
    assume(writer.written)
    records = writer.records
    for path in data.draw(st.sets(st.sampled_from([*writer.index_paths(), root]), max_size=3), "lost files"):
        if path.is_file():
            path.unlink()
    assume(from_log or any((root / "index").glob("*")))
    if data.draw(st.booleans(), "a segment is lost"):
        lost = data.draw(st.sampled_from(sorted(writer.log.segments)), "segment")
        assume(len(writer.log.segments) > 1)
        if not from_log:
            records = [record for record in records if record.physical_offset != lost]
        writer.log.segments[lost].rename(directory / "segment")
    elif data.draw(st.booleans(), "a record is damaged"):
        damaged = data.draw(st.sampled_from(writer.written), "record")
        writer.overwrite(damaged.physical_offset + 4, b"\xff")
    records = read_log(writer.log.directories) if from_log else records
    options = {"slots": plan.options["index_slots"], "entries": plan.options["index_entries"]}
    options["profile"] = "5.5" if profile == "5.5" else "classic"
    for step in range(data.draw(st.integers(1, 2), "compactions")):
        topics = data.draw(st.sets(st.sampled_from(["TopicTest", "主题"]), max_size=1), "topics")
        drop_tags = data.draw(st.booleans(), "drop tags")
        with small_steps(data.draw(st.sampled_from([64, 1000, 1 << 25]), "cells"), 1000):
            outcome = compact_store(
                root, directory / f"work{step}", from_log=from_log and not step, drop_tags=drop_tags,
                topics=tuple(topics), **options,
            )  # fmt: skip
        for file, mark in zip(outcome.files, outcome.marks, strict=True):
            if mark is not None and mark.complete:
                kept = "5.5" if mark.tags and profile == "5.5" else "5.3"
                assert compact_oracle.lacks_keys(file, options["slots"], records, kept) == []
                assert not (mark.tags and drop_tags)
        assume(any(outcome.marks))
        shutil.rmtree(root / "index", ignore_errors=True)
        shutil.copytree(outcome.directory, root / "index")


@pytest.mark.parametrize("from_log", [False, True])
def test_all_files_of_a_whole_index_are_complete_with_tags(writer: StoreWriter, tmp_path: Path, from_log: bool) -> None:
    append_some(writer)
    writer.close()
    outcome = compact_store(writer.root, tmp_path / "work", from_log=from_log)
    assert len(outcome.marks) > 5
    assert all(mark is not None and mark.complete and mark.tags for mark in outcome.marks)
    assert not outcome.compacted.notes


def test_files_stay_complete_when_they_are_compacted_again_with_what_a_broker_put_since(writer, tmp_path) -> None:
    append_some(writer, 41)
    writer.close()
    compact_in_place(writer, tmp_path / "once")
    last = sorted((writer.root / "index").iterdir())[-1]
    room = ENTRIES - int.from_bytes(last.read_bytes()[36:40])
    assert room >= 4
    append_some(writer, 1)
    last.write_bytes(compact_oracle.put_behind(last.read_bytes(), SLOTS, writer.records[-1:]))
    with small_steps(500, 4):
        outcome = compact_in_place(writer, tmp_path / "twice")
    assert sum(mark.entries for mark in outcome.marks if mark) == 4 * 42
    assert all(complete(outcome))


def index_files(store: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((store / "index").glob("*"))]


def all_entries(files, slots=SLOTS):
    return [entry for data in files for entry in read_entries(data, slots)]


def written(plan, directory):
    shutil.rmtree(directory, ignore_errors=True)
    return plan.write(directory / "store")


@settings(max_examples=settings.default.max_examples // 4)
@given(store_plans(maximum_messages=25), st.sampled_from([64, 1000, 1 << 25]), st.sampled_from([1, 3, 1000]), st.data())
def test_any_index_becomes_what_the_oracle_says(directory, plan, cell_bytes, entries_at_once, data) -> None:
    writer = written(plan, directory)
    before = index_files(directory / "store")
    assume(before)
    topics = data.draw(st.sets(st.sampled_from(["TopicTest", "主题", "AaTopic"]), max_size=2))
    drop_tags = data.draw(st.booleans())
    slots, capacity = plan.options["index_slots"], plan.options["index_entries"]
    with small_steps(cell_bytes, entries_at_once):
        outcome = compact_store(
            directory / "store", directory / "work", topics=tuple(topics), drop_tags=drop_tags,
            slots=slots, entries=capacity,
        )  # fmt: skip
    entries = all_entries(before, slots)
    kept = keep_entries(entries, writer.records, topics, drop_tags)
    end, stamp = signed(before[-1], 24, 8), signed(before[-1], 8, 8)
    assert outcome.files == build_compacted(kept, slots, capacity, end, stamp)
    assert outcome.compacted.read == len(entries)
    assert sum(outcome.compacted.dropped.values()) == len(entries) - len(kept)


@settings(max_examples=settings.default.max_examples // 6)
@given(store_plans(maximum_messages=25, all_indexed=True), st.booleans(), st.booleans())
def test_the_log_itself_becomes_the_same_as_its_index(directory, plan, drop_topic, drop_tags) -> None:
    writer = written(plan, directory)
    assume(writer.written)
    slots, capacity = plan.options["index_slots"], plan.options["index_entries"]
    options = {"slots": slots, "entries": capacity, "drop_tags": drop_tags}
    options |= {"topics": ("TopicTest",)} if drop_topic else {}
    profile = "5.5" if plan.options["profile"] == "5.5" else "classic"
    work, log = directory / "work-log", compact_oracle.log_entries(writer.records, plan.options["profile"])
    from_log = compact_store(directory / "store", work, from_log=True, profile=profile, **options).files
    kept = keep_entries(log, writer.records, options.get("topics", ()), drop_tags)
    keyed = [record for record in writer.records if index_keys(record, plan.options["profile"])]
    end = keyed[-1].physical_offset if keyed else 0
    if kept:  # of no entries there is nothing to tell but the end
        assert from_log == build_compacted(kept, slots, capacity, end)
        assert compact_store(directory / "store", directory / "work", **options).files == from_log
    assert all_entries(from_log, slots) == all_entries(build_compacted(kept, slots, capacity, end), slots)


@settings(max_examples=settings.default.max_examples // 4)
@given(store_plans(maximum_messages=25), st.data())
def test_a_broker_gives_every_answer_it_gave_before(directory, plan, data) -> None:
    """Those of messages that were stored in the window, and not within a second of its begin.

    Clocks of these stores step back by minutes, so that a broker leaves chains and files early; and the first entry of
    a file, by whose time a broker also finds messages that were stored at quite another one, has its true time now.
    """
    writer = written(plan, directory)
    before = index_files(directory / "store")
    records = {record.physical_offset: record for record in writer.records}
    assume(before and records)
    slots, capacity = plan.options["index_slots"], plan.options["index_entries"]
    with small_steps(300, 1000):
        after = compact_store(directory / "store", directory / "work", slots=slots, entries=capacity).files
    stamps = sorted({record.store_timestamp for record in records.values()})
    edges = st.sampled_from([0, *stamps, *(stamp - 1000 for stamp in stamps), END_OF_TIME])
    window = {"begin": data.draw(edges, "begin"), "end": data.draw(edges, "end")}
    for key_hash in {key_hash for key_hash, _ in all_entries(before, slots)}:
        answer = set(compact_oracle.broker_offsets(after, slots, key_hash, **window))
        for offset in compact_oracle.broker_offsets(before, slots, key_hash, **window):
            stamp = records[offset].store_timestamp
            assert offset in answer or not window["begin"] + 1000 <= stamp <= window["end"]


def test_a_record_may_have_more_entries_than_a_row_of_a_block_counts(tmp_path: Path) -> None:
    count = 70_000
    with StoreWriter(tmp_path / "store", index_slots=SLOTS, index_entries=count + 100) as writer:
        record = writer.append("TopicTest", keys="k")
    form = np.dtype([("hash", ">i4"), ("offset", ">i8"), ("time", ">i4"), ("previous", ">i4")])
    entries = np.zeros(count, form)
    entries["hash"], entries["offset"] = np.arange(count), record.physical_offset
    entries["previous"] = np.maximum(np.arange(1, count + 1) - SLOTS, 0)
    slots = sorted(range(count - SLOTS + 1, count + 1), key=lambda number: (number - 1) % SLOTS)
    path = writer.index_paths()[0]
    head = path.read_bytes()[:32] + b"".join(number.to_bytes(4) for number in (SLOTS, count + 1, *slots)) + bytes(20)
    path.write_bytes((head + entries.tobytes()).ljust(40 + 4 * SLOTS + 20 * (count + 100), b"\0"))
    (data,) = compact_store(writer.root, tmp_path / "work").files
    found = np.frombuffer(data, form, count, 40 + 4 * SLOTS + 20)
    assert sorted(found["hash"].tolist()) == list(range(count))
    assert set(found["offset"].tolist()) == {record.physical_offset}


def test_an_end_where_there_is_no_record_is_not_kept_as_a_broker_would_index_nothing_below(writer, tmp_path) -> None:
    append_some(writer, 30)
    gone = writer.written[-3].physical_offset
    for written in writer.written[-3:]:  # the log was cut here, and the index is ahead of it
        writer.overwrite(written.physical_offset, bytes(written.size))
    writer.close()
    outcome = compact_store(writer.root, tmp_path / "work")
    assert signed(outcome.files[-1], 24, 8) == writer.written[-4].physical_offset
    (note,) = outcome.compacted.notes
    assert str(writer.written[-1].physical_offset) in note
    assert max(offset for _, offset in all_entries(outcome.files)) < gone


def test_an_index_file_that_is_not_sound_ends_the_job(writer: StoreWriter, tmp_path: Path) -> None:
    append_some(writer)
    writer.close()
    path = writer.index_paths()[1]
    flip(path, 40 + 4 * SLOTS + 20 * 3 + 19)  # where its third entry points
    with pytest.raises(RocketLensError, match=rf"{path.name}.*its entry 3.*--from-log"):
        compact_store(writer.root, tmp_path / "work")
    files = compact_store(writer.root, tmp_path / "log", from_log=True).files
    assert len(all_entries(files)) == 4 * 40


ROWS = 2000


def task_of(root, blocks, **limits):
    work = WorkDirectory.open(root, {"test": 1}, fresh=True)
    numbers = np.arange(ROWS)
    hashes = np.arange(2 * ROWS, dtype=np.int32)
    with BlockWriter(work.blocks / "merged.entries", "a test") as writer:
        rows = (EntryRows((n * ROWS + numbers) * 100, numbers * 1000, np.full(ROWS, 2), hashes) for n in range(blocks))
        facts = [write_rows(writer, each) for each in rows]
        table = TimedTable.of(writer.path, write_timed_table(writer, facts))
    work.close()
    return OrderTask(str(work.root), 0, (table,), **limits)


def test_a_table_in_order_is_left_where_it_is_unless_a_copy_is_asked_for(tmp_path) -> None:
    assert order_entries(task_of(tmp_path / "one", 1))["file"] == "merged.entries"
    assert order_entries(task_of(tmp_path / "copied", 1, is_copy=True))["file"] != "merged.entries"


def peak_of(root, blocks, **limits):
    task = task_of(root, blocks, **limits)
    tracemalloc.start()
    try:
        order_entries(task)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_what_overlaps(tmp_path) -> None:
    limits = {"entries_at_once": 16_000, "rows_of_block": 1_000, "entries_of_block": 4_000, "fan_in": 4}
    few, many = (peak_of(tmp_path / str(blocks), blocks, **limits) for blocks in (8, 32))
    assert few < 120 * 16_000 + 500_000
    assert many < 1.5 * few
    assert peak_of(tmp_path / "all", 32) > 3 * many
