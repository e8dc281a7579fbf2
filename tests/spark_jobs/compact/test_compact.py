import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compact_oracle import broker_offsets, build_compacted, keep_entries, log_entries, read_entries
from job_runs import RememberedProgress, compact_store, small_steps
from oracles import END_OF_TIME, index_hash, index_keys, signed
from protocol.errors import RocketLensError, StoreError
from store_writer import START_TIMESTAMP, StoreWriter
from strategies import StorePlan, store_plans

Entries = list[tuple[int, int]]
SLOTS, ENTRIES = 7, 10


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    return StoreWriter(tmp_path / "store", segment_size=2048, index_slots=SLOTS, index_entries=ENTRIES)


def index_files(store: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((store / "index").glob("*"))]


def all_entries(files: Sequence[bytes], slots: int = SLOTS) -> Entries:
    return [entry for data in files for entry in read_entries(data, slots)]


def append_some(writer: StoreWriter, count: int = 40, **more: Any) -> None:
    for number in range(count):
        message = {"keys": f"k{number} group{number % 5}", "unique_key": f"u{number}", "tags": "TagA", **more}
        writer.append("TopicTest", bytes(20), store_timestamp=START_TIMESTAMP + 700 * number, **message)


def end_of(data: bytes) -> int:
    return signed(data, 24, 8)


# --- against the oracle, for any store ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        yield Path(name)


def written(plan: StorePlan, directory: Path) -> StoreWriter:
    shutil.rmtree(directory, ignore_errors=True)
    return plan.write(directory / "store")


@settings(max_examples=settings.default.max_examples // 2)
@given(store_plans(maximum_messages=25), st.sampled_from([64, 1000, 1 << 25]), st.sampled_from([1, 3, 1000]), st.data())
def test_any_index_becomes_what_the_oracle_says(
    directory: Path, plan: StorePlan, cell_bytes: int, entries_at_once: int, data: st.DataObject
) -> None:
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
    end, stamp = end_of(before[-1]), signed(before[-1], 8, 8)
    assert outcome.files == build_compacted(kept, slots, capacity, end, stamp)
    assert outcome.compacted.read == len(entries)
    assert sum(outcome.compacted.dropped.values()) == len(entries) - len(kept)


@settings(max_examples=settings.default.max_examples // 2)
@given(store_plans(maximum_messages=25, all_indexed=True), st.booleans(), st.booleans())
def test_the_log_itself_becomes_the_same_as_its_index(
    directory: Path, plan: StorePlan, drop_topic: bool, drop_tags: bool
) -> None:
    writer = written(plan, directory)
    assume(writer.written)
    slots, capacity = plan.options["index_slots"], plan.options["index_entries"]
    options: dict[str, Any] = {"slots": slots, "entries": capacity, "drop_tags": drop_tags}
    options |= {"topics": ("TopicTest",)} if drop_topic else {}
    profile = "5.5" if plan.options["profile"] == "5.5" else "classic"
    from_log = compact_store(
        directory / "store", directory / "work-log", from_log=True, profile=profile, **options
    ).files
    kept = keep_entries(
        log_entries(writer.records, plan.options["profile"]), writer.records, options.get("topics", ()), drop_tags
    )
    keyed = [record for record in writer.records if index_keys(record, plan.options["profile"])]
    end = keyed[-1].physical_offset if keyed else 0
    if kept:  # of no entries there is nothing to tell but the end
        assert from_log == build_compacted(kept, slots, capacity, end)
        assert compact_store(directory / "store", directory / "work", **options).files == from_log
    assert all_entries(from_log, slots) == all_entries(build_compacted(kept, slots, capacity, end), slots)


@settings(max_examples=settings.default.max_examples // 2)
@given(store_plans(maximum_messages=25), st.data())
def test_a_broker_gives_every_answer_it_gave_before(directory: Path, plan: StorePlan, data: st.DataObject) -> None:
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
        answer = set(broker_offsets(after, slots, key_hash, **window))
        for offset in broker_offsets(before, slots, key_hash, **window):
            stamp = records[offset].store_timestamp
            assert offset in answer or not window["begin"] + 1000 <= stamp <= window["end"]


def append_at(writer: StoreWriter, seconds: Sequence[int]) -> list[int]:
    """Messages with the key k and these store times, in seconds since some start; their physical offsets."""
    stamps = [START_TIMESTAMP + 1000 * second for second in seconds]
    return [writer.append("TopicTest", bytes(100), keys="k", store_timestamp=at).physical_offset for at in stamps]


STEPS_BACK = {
    "inside a cell": [0, 1, 2, 30, 31, 4, 5, 33, 6, 7],
    "between segments": [*range(100, 120), *range(60, 80), *range(120, 140)],
    "over and over": [100 * number % 37 for number in range(60)],
    "for good": [*range(500, 540), *range(40)],
    "by nothing": [0] * 30 + [1] * 30,
}


@pytest.mark.parametrize("seconds", STEPS_BACK.values(), ids=STEPS_BACK.keys())
@pytest.mark.parametrize("from_log", [False, True])
def test_a_broker_finds_all_that_was_stored_in_a_window_though_the_clock_stepped_back(
    writer: StoreWriter, tmp_path: Path, seconds: list[int], from_log: bool
) -> None:
    offsets = append_at(writer, seconds)
    writer.close()
    with small_steps(500, 7):
        files = compact_store(writer.root, tmp_path / "work", from_log=from_log).files
    begins = [signed(data, 0, 8) for data in files]
    ends = [signed(data, 8, 8) for data in files]
    assert files
    assert all(end <= begin for end, begin in zip(ends[:-1], begins[1:], strict=True))
    for begin in set(seconds):
        window = {"begin": START_TIMESTAMP + 1000 * begin - 1000, "end": START_TIMESTAMP + 1000 * begin + 3000}
        answer = broker_offsets(files, SLOTS, index_hash("TopicTest#k"), **window)
        right = [offset for offset, at in zip(offsets, seconds, strict=True) if begin <= at <= begin + 3]
        assert set(right) <= set(answer)


# --- what goes and what stays ---------------------------------------------------------------------------------------


def test_entries_in_a_hole_of_the_log_behind_its_end_and_of_damaged_records_go(
    writer: StoreWriter, tmp_path: Path
) -> None:
    append_some(writer)
    gone = writer.written[2].physical_offset
    writer.overwrite(gone, bytes(8))
    writer.close()
    before = all_entries(index_files(writer.root))
    bases = sorted(writer.log.segments)
    for base in (bases[1], bases[-1]):
        writer.log.segments[base].unlink()
    outcome = compact_store(writer.root, tmp_path / "work")
    assert outcome.compacted.dropped["nowhere"] == sum(bases[1] <= offset < bases[2] for _, offset in before) > 0
    assert outcome.compacted.dropped["beyond"] == sum(offset >= bases[-1] for _, offset in before) > 0
    assert outcome.compacted.dropped["no_record"] == 4
    assert {offset for _, offset in all_entries(outcome.files)} == {
        offset for _, offset in before if offset < bases[-1] and not bases[1] <= offset < bases[2] and offset != gone
    }


@pytest.mark.parametrize("from_log", [False, True])
def test_tag_entries_go_but_never_a_key_that_has_their_hash(
    writer: StoreWriter, tmp_path: Path, from_log: bool
) -> None:
    writer.append("TopicTest", keys="a", tags="TagA")
    same = writer.append("TopicTest", keys="b T#TagA", tags="TagA")
    writer.close()
    files = compact_store(writer.root, tmp_path / "work", drop_tags=True, from_log=from_log).files
    kept = {(index_hash("TopicTest#a"), 0)}
    kept |= {(index_hash(f"TopicTest#{key}"), same.physical_offset) for key in ("b", "T#TagA")}
    assert set(all_entries(files)) == kept


def test_a_record_may_have_more_entries_than_a_row_of_a_block_counts(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", index_slots=SLOTS, index_entries=70_100)
    record = writer.append("TopicTest", keys="k")
    writer.close()
    path = writer.index_paths()[0]
    entries = [(number, record.physical_offset) for number in range(70_000)]
    path.write_bytes(plain_file(entries, 70_100))
    files = compact_store(writer.root, tmp_path / "work").files
    assert sorted(all_entries(files)) == entries


# --- where the index ends -------------------------------------------------------------------------------------------


def test_the_last_file_keeps_the_end_that_the_index_had(writer: StoreWriter, tmp_path: Path) -> None:
    """Also where the entries of the last record go, and once more where an index is compacted that lost them before."""
    append_some(writer, 20)
    last = writer.append("Other", keys="k")
    writer.close()
    assert end_of(index_files(writer.root)[-1]) == last.physical_offset
    for number, options in enumerate(({"topics": ("Other",)}, {})):
        outcome = compact_store(writer.root, tmp_path / str(number), **options)
        assert end_of(outcome.files[-1]) == last.physical_offset
        assert max(offset for _, offset in all_entries(outcome.files)) < last.physical_offset
        assert not outcome.compacted.notes
        outcome.replace(writer.root / "index")


def test_an_end_where_there_is_no_record_is_not_kept_as_a_broker_would_index_nothing_below(
    writer: StoreWriter, tmp_path: Path
) -> None:
    append_some(writer, 30)
    gone = writer.written[-3].physical_offset
    for written in writer.written[-3:]:  # the log was cut here, and the index is ahead of it
        writer.overwrite(written.physical_offset, bytes(written.size))
    writer.close()
    outcome = compact_store(writer.root, tmp_path / "work")
    assert end_of(outcome.files[-1]) == writer.written[-4].physical_offset
    (note,) = outcome.compacted.notes
    assert str(writer.written[-1].physical_offset) in note
    assert max(offset for _, offset in all_entries(outcome.files)) < gone


def test_an_index_that_ends_below_the_minimum_still_ends_there(writer: StoreWriter, tmp_path: Path) -> None:
    append_some(writer, 30)
    end = writer.written[-1].physical_offset
    while writer.log.end <= max(writer.log.segments) + 2000:
        writer.append("TopicTest", bytes(50), index=False)
    writer.append("TopicTest", bytes(1900), index=False)
    writer.close()
    for base in sorted(writer.log.segments)[:-1]:
        writer.log.segments[base].unlink()
    outcome = compact_store(writer.root, tmp_path / "work")
    assert end < min(path for path in writer.log.segments if writer.log.segments[path].exists())
    assert [all_entries(outcome.files), outcome.compacted.dropped["below"]] == [[], outcome.compacted.read]
    before = index_files(writer.root)[-1]
    assert outcome.files == build_compacted([], SLOTS, ENTRIES, end, signed(before, 8, 8))


def test_an_empty_last_file_says_where_the_index_ends(writer: StoreWriter, tmp_path: Path) -> None:
    for number in range(3):
        writer.append("TopicTest", keys=["a", "b", f"{number}"])
    writer.append("TopicTest")  # opens a file, and puts nothing
    writer.close()
    assert [signed(data, 36, 4) for data in index_files(writer.root)] == [ENTRIES, 1]
    files = compact_store(writer.root, tmp_path / "work").files
    assert [signed(data, 36, 4) for data in files] == [ENTRIES]
    assert end_of(files[-1]) == writer.written[2].physical_offset


# --- the job as a whole ---------------------------------------------------------------------------------------------


def test_a_compacted_index_is_compacted_to_itself(writer: StoreWriter, tmp_path: Path) -> None:
    append_some(writer)
    writer.close()
    once = compact_store(writer.root, tmp_path / "once")
    once.replace(writer.root / "index")
    with small_steps(777, 5):
        twice = compact_store(writer.root, tmp_path / "twice")
    assert twice.files == once.files
    assert not any(twice.compacted.dropped.values())


def test_a_store_without_an_index_says_what_to_do(writer: StoreWriter, tmp_path: Path) -> None:
    append_some(writer, 3)
    writer.close()
    shutil.rmtree(writer.root / "index")
    with pytest.raises(StoreError, match=r"index: has no index file; --from-log"):
        compact_store(writer.root, tmp_path / "work")
    files = compact_store(writer.root, tmp_path / "work", from_log=True, slots=SLOTS, entries=ENTRIES).files
    assert len(all_entries(files)) == 4 * 3


def test_an_index_file_that_is_not_sound_ends_the_job(writer: StoreWriter, tmp_path: Path) -> None:
    append_some(writer)
    writer.close()
    path = writer.index_paths()[1]
    data = bytearray(path.read_bytes())
    data[40 + 4 * SLOTS + 20 * 3 + 19] ^= 1  # where its third entry points
    path.write_bytes(data)
    with pytest.raises(RocketLensError, match=rf"{path.name}.*its entry 3.*--from-log"):
        compact_store(writer.root, tmp_path / "work")
    files = compact_store(writer.root, tmp_path / "log", from_log=True).files
    assert len(all_entries(files)) == 4 * 40


def test_damage_of_the_log_is_told_when_it_is_read(writer: StoreWriter, tmp_path: Path) -> None:
    append_some(writer)
    broken = writer.written[5]
    writer.overwrite(broken.physical_offset + 4, b"\xff")
    writer.close()
    outcome = compact_store(writer.root, tmp_path / "work", from_log=True)
    assert outcome.compacted.log_end is not None
    (damage,) = outcome.compacted.log_end.damages
    assert (damage.physical_offset, damage.length) == (broken.physical_offset, broken.size)
    assert len(all_entries(outcome.files)) == 4 * 39


@pytest.mark.parametrize("from_log", [False, True])
def test_each_phase_tells_how_many_entries_it_has_done(writer: StoreWriter, tmp_path: Path, from_log: bool) -> None:
    append_at(writer, STEPS_BACK["over and over"])
    writer.close()
    progress = RememberedProgress()
    with small_steps(500, 7):
        outcome = compact_store(writer.root, tmp_path / "work", from_log=from_log, progress=progress)
    entries = sum(file["entries"] for file in outcome.compacted.index_files)
    phases = {phase: (total, done) for phase, total, unit, done in progress.phases if unit == "entries"}
    assert phases == dict.fromkeys(
        ["merge", "order", "build"] if from_log else ["split", "merge", "order", "build"], (entries, entries)
    )


def plain_file(entries: Entries, capacity: int) -> bytes:
    """An index file of any entries, as a broker would have put them at one time."""
    slots = dict.fromkeys(range(SLOTS), 0)
    data = b""
    for number, (key_hash, offset) in enumerate(entries, 1):
        previous, slots[key_hash % SLOTS] = slots[key_hash % SLOTS], number
        data += b"".join(
            value.to_bytes(size, "big") for value, size in ((key_hash, 4), (offset, 8), (0, 4), (previous, 4))
        )
    numbers = (START_TIMESTAMP, START_TIMESTAMP, entries[0][1], entries[-1][1])
    header = b"".join(number.to_bytes(8, "big") for number in numbers)
    header += sum(map(bool, slots.values())).to_bytes(4, "big") + (len(entries) + 1).to_bytes(4, "big")
    head = header + b"".join(slots[slot].to_bytes(4, "big") for slot in range(SLOTS)) + bytes(20)
    return (head + data).ljust(40 + 4 * SLOTS + 20 * capacity, b"\0")
