"""Compacted files that say that they have every key of what they span: they must have, and should say so if they do."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compact_oracle import lacks_keys, put_behind
from job_runs import Outcome, compact_in_place, compact_store, small_steps
from oracles import read_log
from store_writer import START_TIMESTAMP, StoreWriter
from strategies import StorePlan, store_plans

SLOTS, ENTRIES = 7, 10


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    return StoreWriter(tmp_path / "store", segment_size=2048, index_slots=SLOTS, index_entries=ENTRIES)


def append_some(writer: StoreWriter, count: int = 40, **more: Any) -> None:
    for _ in range(count):
        number = len(writer.written)
        fields = {"keys": f"k{number} group{number % 5}", "unique_key": f"u{number}", "tags": "TagA", **more}
        writer.append("TopicTest", bytes(20), store_timestamp=START_TIMESTAMP + 700 * number, **fields)


def complete(outcome: Outcome) -> list[bool]:
    assert outcome.marks
    return [mark is not None and mark.complete for mark in outcome.marks]


def spans(outcome: Outcome, offset: int) -> list[bool]:
    """Which files have entries of records on both sides of an offset."""
    return [min(offsets) < offset < max(offsets) for offsets in offsets_of(outcome)]


def offsets_of(outcome: Outcome) -> list[set[int]]:
    first = 40 + 4 * SLOTS
    places = [range(first + 24, first + 24 + 20 * mark.entries, 20) if mark else () for mark in outcome.marks]
    return [
        {int.from_bytes(data[at : at + 8]) for at in places_of} or {0}
        for data, places_of in zip(outcome.files, places, strict=True)
    ]


# --- a file that says so is -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


@settings(max_examples=settings.default.max_examples // 3)
@given(store_plans(maximum_messages=30, all_indexed=True), st.booleans(), st.data())
def test_no_file_says_that_it_is_complete_and_lacks_a_key(
    directory: Path, plan: StorePlan, from_log: bool, data: st.DataObject
) -> None:
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
        records = [record for record in records if from_log is False or not lost <= record.physical_offset < lost + 1]
        writer.log.segments[lost].rename(directory / "segment")
        records = records if not from_log else read_log(writer.log.directories)
    elif data.draw(st.booleans(), "a record is damaged"):
        damaged = data.draw(st.sampled_from(writer.written), "record")
        writer.overwrite(damaged.physical_offset + 4, b"\xff")
        records = records if not from_log else read_log(writer.log.directories)
    options: dict[str, Any] = {
        "slots": plan.options["index_slots"],
        "entries": plan.options["index_entries"],
        "profile": "5.5" if profile == "5.5" else "classic",
    }
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
                assert lacks_keys(file, options["slots"], records, kept) == []
                assert not (mark.tags and drop_tags)
        assume(any(outcome.marks))
        shutil.rmtree(root / "index", ignore_errors=True)
        shutil.copytree(outcome.directory, root / "index")


# --- and one that is says so ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("from_log", [False, True])
def test_all_files_of_a_whole_index_are_complete_with_tags(writer: StoreWriter, tmp_path: Path, from_log: bool) -> None:
    append_some(writer)
    writer.close()
    outcome = compact_store(writer.root, tmp_path / "work", from_log=from_log)
    assert len(outcome.marks) > 5
    assert all(mark is not None and mark.complete and mark.tags for mark in outcome.marks)
    assert not outcome.compacted.notes


def test_files_stay_complete_when_they_are_compacted_again_with_what_a_broker_put_since(
    writer: StoreWriter, tmp_path: Path
) -> None:
    append_some(writer, 41)
    writer.close()
    compact_in_place(writer, tmp_path / "once")
    last = sorted((writer.root / "index").iterdir())[-1]
    room = ENTRIES - int.from_bytes(last.read_bytes()[36:40])
    assert room >= 4
    append_some(writer, 1)
    last.write_bytes(put_behind(last.read_bytes(), SLOTS, writer.records[-1:]))
    with small_steps(500, 4):
        outcome = compact_in_place(writer, tmp_path / "twice")
    assert sum(mark.entries for mark in outcome.marks if mark) == 4 * 42
    assert all(complete(outcome))


def test_files_that_share_a_stretch_of_the_log_are_not_complete_and_the_others_are(
    writer: StoreWriter, tmp_path: Path
) -> None:
    seconds = [*range(100, 120), *range(200, 220), *range(190, 210), *range(300, 320)]
    for second in seconds:
        writer.append("T", bytes(20), keys=f"k{second} a", store_timestamp=START_TIMESTAMP + 1000 * second)
    writer.close()
    with small_steps(500, 7):
        outcome = compact_store(writer.root, tmp_path / "work")
    assert complete(outcome)[0]
    assert complete(outcome)[-1]
    assert not all(complete(outcome))
    assert any("the clock was set back" in note for note in outcome.compacted.notes)


# --- what is missing takes it from those that span it ---------------------------------------------------------------


def test_files_that_span_a_lost_index_file_are_not_complete(writer: StoreWriter, tmp_path: Path) -> None:
    append_some(writer, 60)
    writer.close()
    middle = writer.index_paths()[10]
    start = int.from_bytes(middle.read_bytes()[16:24])
    middle.unlink()
    outcome = compact_store(writer.root, tmp_path / "work", entries=14)  # else files were cut just there
    assert complete(outcome) == [not is_inside for is_inside in spans(outcome, start)]
    assert not all(complete(outcome))
    (note,) = outcome.compacted.notes
    assert f"may lack keys from physical offset {start} on (--from-log adds them)" in note
    assert all(complete(compact_store(writer.root, tmp_path / "log", from_log=True)))


def test_a_single_key_that_is_missing_between_two_files_is_noticed(writer: StoreWriter, tmp_path: Path) -> None:
    append_some(writer, 10)
    writer.append("TopicTest", keys="lost", index=False)
    writer.index.files[-1].entry_count = writer.index.files[-1].index_count  # full, as far as the writer sees
    append_some(writer, 10)
    writer.index.files[-1].entry_count = ENTRIES
    for image in writer.index.files:
        image.entry_count = ENTRIES
    writer.close()
    lost = writer.written[10].physical_offset
    outcome = compact_store(writer.root, tmp_path / "work")
    assert complete(outcome) == [not is_inside for is_inside in spans(outcome, lost)]
    assert not all(complete(outcome))


def test_only_files_from_which_a_topic_went_are_not_complete(writer: StoreWriter, tmp_path: Path) -> None:
    append_some(writer, 20)
    for number in range(5):
        writer.append("Other", keys=f"o{number}", store_timestamp=START_TIMESTAMP + 700 * 20)
    append_some(writer, 20)
    writer.close()
    outcome = compact_store(writer.root, tmp_path / "work", topics=("Other",))
    dropped = [written.physical_offset for written in writer.written if written.topic == "Other"]
    assert complete(outcome) == [
        min(offsets) > dropped[-1] or max(offsets) < dropped[0] for offsets in offsets_of(outcome)
    ]
    assert complete(outcome).count(False) == 1
    assert any("topics are left out" in note for note in outcome.compacted.notes)
    again = compact_in_place(writer, tmp_path / "again", topics=("Other",))
    once_more = compact_store(writer.root, tmp_path / "more")
    assert (complete(once_more), once_more.files) == (complete(again), again.files)


def test_without_entries_of_tags_a_file_is_complete_but_for_them(writer: StoreWriter, tmp_path: Path) -> None:
    append_some(writer)
    writer.close()
    outcome = compact_in_place(writer, tmp_path / "work", drop_tags=True)
    assert {(mark.complete, mark.tags) if mark else None for mark in outcome.marks} == {(True, False)}
    again = compact_store(writer.root, tmp_path / "again")
    assert {(mark.complete, mark.tags) if mark else None for mark in again.marks} == {(True, False)}


def test_an_index_of_two_profiles_lacks_tags(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", index_slots=SLOTS, index_entries=ENTRIES, profile="5.3")
    append_some(writer, 20)
    writer.index.profile = "5.5"
    append_some(writer, 20)
    writer.close()
    outcome = compact_store(writer.root, tmp_path / "work")
    assert {(mark.complete, mark.tags) if mark else None for mark in outcome.marks} == {(True, False)}


def test_an_index_that_was_compacted_without_a_mark_proves_nothing(writer: StoreWriter, tmp_path: Path) -> None:
    append_some(writer)
    writer.close()
    compact_in_place(writer, tmp_path / "work")
    first = 40 + 4 * SLOTS
    for path in (writer.root / "index").iterdir():
        data = path.read_bytes()
        path.write_bytes(data[:first] + bytes(20) + data[first + 20 :])
    assert not any(complete(compact_store(writer.root, tmp_path / "again")))
