"""Index files as brokers of several versions and a compaction leave them, and wrong ones: what a verification says."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compact_oracle import build_compacted, keep_entries, put_behind, read_entries
from job_runs import compact_in_place
from oracles import index_hash, index_keys
from spark_jobs.run.report import Report
from storage.doctor.finding import Finding, Kind
from store_writer import StoreWriter
from verifying import assert_clean, findings_of, told, verify_here

SLOTS, ENTRIES = 13, 40
FIRST_ENTRY = 40 + 4 * SLOTS

Verify = Callable[..., Report]


@pytest.fixture
def verify(tmp_path: Path) -> Verify:
    """Check the store that a test writes."""
    return lambda **options: verify_here(tmp_path / "store", tmp_path / "work", **options)


def make(tmp_path: Path, count: int = 60, **options: Any) -> StoreWriter:
    """A store of messages with two keys and a tag each, not closed yet."""
    writer = StoreWriter(tmp_path / "store", segment_size=4096, index_slots=SLOTS, index_entries=ENTRIES, **options)
    fill(writer, count)
    return writer


def fill(writer: StoreWriter, count: int, **more: Any) -> None:
    start = len(writer.written)
    for n in range(start, start + count):
        stamp = 1_700_000_000_000 + 700 * n
        writer.append("T", b"body", keys=f"k{n}", unique_key=f"u{n}", tags="TagA", store_timestamp=stamp, **more)


def index_numbers(report: Report) -> dict[str, int]:
    """The numbers of the index that are not zero."""
    return {name: value for name, value in msgspec.to_builtins(report.details.index).items() if value}


def kinds(report: Report) -> Counter[str]:
    return Counter(finding.kind for finding in findings_of(report))


def only(report: Report) -> Finding:
    findings = findings_of(report)
    assert len(findings) == 1, told(report)
    assert report.exit_code == 4
    return findings[0]


# --- what is as it should be ------------------------------------------------------------------------------------------


def test_a_broker_that_was_upgraded_in_the_midst_of_a_file(tmp_path: Path, verify: Verify) -> None:
    writer = make(tmp_path, 25, profile="5.3")
    writer.index.profile = "5.5"
    fill(writer, 25)
    writer.close()
    report = verify()
    assert_clean(report)
    assert index_numbers(report)["matched"] == 25 * 2 + 25 * 3


def test_a_record_that_names_a_key_twice_and_straddles_files(tmp_path: Path, verify: Verify) -> None:
    writer = StoreWriter(tmp_path / "store", index_slots=SLOTS, index_entries=4)
    writer.append("T", keys="a b a c a a b", unique_key="a", tags="a")
    writer.append("T", keys="a a a a a a a a")
    writer.close()
    report = verify()
    assert_clean(report)
    assert report.entries == 17


def test_the_last_record_put_once_more_after_a_crash(tmp_path: Path, verify: Verify) -> None:
    writer = make(tmp_path, 15)
    (record,) = [record for record in writer.records if record.physical_offset == writer.written[-1].physical_offset]
    writer.index.dispatch(record)
    fill(writer, 15)
    writer.close()
    report = verify()
    assert_clean(report)
    assert index_numbers(report)["repeats"] == 3


def test_entries_whose_records_have_expired(tmp_path: Path, verify: Verify) -> None:
    writer = make(tmp_path)
    writer.close()
    writer.log.segments[0].unlink()
    report = verify()
    assert_clean(report)
    assert index_numbers(report)["expired"] + index_numbers(report)["matched"] == 180


def test_entries_of_damaged_records_are_not_to_blame(tmp_path: Path, verify: Verify) -> None:
    writer = make(tmp_path)
    writer.close()
    writer.overwrite(writer.written[20].physical_offset + 4, b"\0")
    report = verify()
    assert only(report).kind == "record"
    assert index_numbers(report)["lost"] == 3


# --- compacted files --------------------------------------------------------------------------------------------------


def compacted(store: StoreWriter, *, drop: Callable[[str], bool] = lambda _: False) -> None:
    """Put files of a compaction without marks in the place of the index; what `drop` chooses is left out."""
    dropped = {(index_hash(text), r.physical_offset) for r in store.records for text in index_keys(r) if drop(text)}
    paths = store.index_paths()
    entries = {entry for path in paths for entry in read_entries(path.read_bytes(), SLOTS)} - dropped
    end = int.from_bytes(paths[-1].read_bytes()[24:32])
    for path in paths:
        path.unlink()
    for path, data in zip(
        paths, build_compacted(keep_entries(entries, store.records), SLOTS, ENTRIES, end), strict=False
    ):
        path.write_bytes(data)


def test_compacted_files_in_the_order_of_slots(tmp_path: Path, verify: Verify) -> None:
    writer = make(tmp_path)
    writer.close()
    compacted(writer)
    report = verify()
    assert_clean(report)
    assert index_numbers(report)["matched"] == 180
    assert report.notes == []


@pytest.mark.parametrize("options", [{"drop_tags": True}, {"from_log": True}])
def test_files_as_the_command_compacts_them(tmp_path: Path, verify: Verify, options: dict[str, Any]) -> None:
    writer = make(tmp_path)
    writer.close()
    outcome = compact_in_place(writer, tmp_path / "compacting", **options)
    assert outcome.marks
    assert all(outcome.marks)
    assert_clean(verify())


def compact_repeated(tmp_path: Path, slots: int, entries: int) -> StoreWriter:
    """A store of small compacted files, most of whose records name a key twice."""
    writer = StoreWriter(tmp_path / "store", segment_size=4096, index_slots=slots, index_entries=entries)
    for n in range(40):
        keys = ["a", "a", "b"][: 1 + n % 3] if n % 5 else ["b", "a", "b", f"k{n}"]
        writer.append("T", keys=keys, tags="a" if n % 2 else None, store_timestamp=1_700_000_000_000 + 700 * n)
    writer.close()
    compact_in_place(writer, tmp_path / "compacting")
    return writer


@pytest.mark.parametrize(("slots", "entries"), [(1, 4), (97, 4), (4, 10)])
def test_small_compacted_files_of_records_that_name_keys_twice(
    tmp_path: Path, verify: Verify, slots: int, entries: int
) -> None:
    """The entries of such a file may ascend by accident; nor is a key missing that is repeated at its end."""
    compact_repeated(tmp_path, slots, entries)
    assert_clean(verify())


@pytest.mark.parametrize("time", [0, -(2**40)])
def test_a_store_time_that_is_none_spoils_no_other(tmp_path: Path, verify: Verify, time: int) -> None:
    """A clock may say anything before it was set; the times of all other entries count from the first true one."""
    writer = make(tmp_path, 10)
    writer.append("T", keys="early", store_timestamp=time)
    fill(writer, 10)
    writer.close()
    files = compact_in_place(writer, tmp_path / "compacting").files
    assert int.from_bytes(files[0][:8]) == 1_700_000_000_000
    assert_clean(verify())


@pytest.mark.parametrize("place", [0, 19])
def test_a_wrong_mark_of_a_compacted_file(tmp_path: Path, verify: Verify, place: int) -> None:
    writer = make(tmp_path)
    writer.close()
    compact_in_place(writer, tmp_path / "compacting")
    path = sorted((writer.root / "index").iterdir())[2]
    data = bytearray(path.read_bytes())
    data[FIRST_ENTRY + place] ^= 2
    path.write_bytes(data)
    finding = only(verify())
    assert (finding.kind, finding.path, finding.place) == (Kind.ENTRY, str(path), "entry 0")


def test_what_a_compaction_left_out_is_a_note(tmp_path: Path, verify: Verify) -> None:
    writer = make(tmp_path)
    writer.close()
    compacted(writer, drop=lambda text: text.endswith("3"))
    report = verify()
    assert_clean(report)
    assert index_numbers(report)["dropped"] > 0
    assert report.notes[0].startswith("compacted index files have no entry for up to ")


@pytest.mark.parametrize(
    ("field", "marked"),
    [("key_hash", True), ("physical_offset", False), ("time_difference", True), ("previous", False)],
)
def test_a_damaged_entry_of_a_compacted_file(tmp_path: Path, verify: Verify, field: str, marked: bool) -> None:
    writer = make(tmp_path)
    writer.close()
    if marked:
        compact_in_place(writer, tmp_path / "compacting")
    else:
        compacted(writer)
    path = sorted((writer.root / "index").iterdir())[2]
    place = FIRST_ENTRY + 20 * 17 + {"key_hash": 3, "physical_offset": 11, "time_difference": 15, "previous": 19}[field]
    data = bytearray(path.read_bytes())
    data[place] ^= 2
    path.write_bytes(data)
    finding = only(verify())
    assert (finding.kind, finding.place) == (Kind.ENTRY, f"entry 17 {field}")
    assert finding.position == place - {"physical_offset": 7}.get(field, 3)


def test_a_broker_goes_on_behind_a_compaction(tmp_path: Path, verify: Verify) -> None:
    writer = make(tmp_path, 8)
    writer.close()
    compacted(writer)
    (path,) = writer.index_paths()
    data = path.read_bytes()
    fill(writer, 4)
    writer.close()
    path.write_bytes(put_behind(data, SLOTS, writer.records[-4:]))
    assert_clean(verify())


# --- what is wrong ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [[0], [1, 2], [0, 1, 2, 3, 4]])
def test_lost_files_are_gaps_with_their_keys_counted(tmp_path: Path, verify: Verify, lost: list[int]) -> None:
    writer = make(tmp_path)
    writer.close()
    paths = writer.index_paths()
    for number in lost:
        paths[number].unlink()
    finding = only(verify())
    assert finding.kind == Kind.MISSING_ENTRY
    assert finding.count == sum(len(writer.index.files[number].entries) for number in lost)
    first = writer.index.files[lost[0]]
    assert finding.physical_offset == first.entries[0][1]
    assert "rebuild index" in finding.remedy
    assert "--from-offset" not in finding.remedy
    behind = paths[lost[-1] + 1] if lost[-1] < 4 else writer.root / "index"
    assert Path(finding.path) == behind


def test_a_message_that_was_never_indexed(tmp_path: Path, verify: Verify) -> None:
    writer = make(tmp_path, 20)
    left_out = writer.append("T", keys="x y", index=False)
    fill(writer, 20)
    writer.close()
    finding = only(verify())
    assert (finding.kind, finding.count, finding.physical_offset) == (Kind.MISSING_ENTRY, 2, left_out.physical_offset)
    assert "rebuild index --from-offset 0" in finding.remedy


def test_after_a_crash_what_the_tail_lacks_is_lag_and_at_rest_it_is_not(tmp_path: Path, verify: Verify) -> None:
    writer = make(tmp_path, 20)
    fill(writer, 3, index=False)
    writer.crash()
    report = verify()
    assert_clean(report)
    assert index_numbers(report)["lag"] == 9
    writer.close()
    assert only(verify()).count == 9


def test_an_index_file_of_another_store(tmp_path: Path, verify: Verify) -> None:
    writer = make(tmp_path, 30)
    writer.close()
    other = StoreWriter(tmp_path / "other", index_slots=SLOTS, index_entries=ENTRIES)
    for n in range(13):
        other.append("Other", keys=f"x{n} y{n}", unique_key=f"z{n}", store_timestamp=1_700_000_000_000)
    other.close()
    target = writer.index_paths()[1]
    target.write_bytes(other.index_paths()[0].read_bytes())
    report = verify()
    assert {Path(finding.path) for finding in findings_of(report) if finding.kind == Kind.FILE} == {target}
    assert kinds(report)[Kind.MISSING_ENTRY] == 1


def test_two_files_with_the_same_entries(tmp_path: Path, verify: Verify) -> None:
    writer = make(tmp_path)
    writer.close()
    paths = writer.index_paths()
    copy = paths[4].with_name(str(int(paths[4].name) + 1))
    copy.write_bytes(paths[1].read_bytes())
    report = verify()
    assert kinds(report)[Kind.REPEATED_ENTRY] == 1
    assert Path(findings_of(report)[0].path) == copy


@pytest.mark.parametrize("page", [0, 3])
def test_a_lost_page_is_told_as_what_it_held(tmp_path: Path, verify: Verify, page: int) -> None:
    writer = StoreWriter(tmp_path / "store", index_slots=1500, index_entries=600)
    fill(writer, 180)
    writer.close()
    path = writer.index_paths()[0]
    data = bytearray(path.read_bytes())
    data[4096 * page : 4096 * (page + 1)] = bytes(4096)
    path.write_bytes(data)
    report = verify()
    places = {finding.position // 4096 for finding in findings_of(report)}
    assert places <= ({page, page - 1} if page else {0})  # an entry may begin in the page before
    assert kinds(report)[Kind.MISSING_ENTRY] == 0
    assert not page or kinds(report)[Kind.HEADER] == 0


@pytest.mark.parametrize("content", [b"", b"\0" * 39, b"\0" * 892, b"\xff" * 900])
def test_files_of_impossible_bytes(tmp_path: Path, verify: Verify, content: bytes) -> None:
    writer = make(tmp_path, 40)
    writer.close()
    path = writer.index_paths()[1]
    path.write_bytes(content)
    findings = findings_of(verify())
    assert any(Path(finding.path) == path for finding in findings) == (content != bytes(892)), "zeros are no entries"
    assert sum(finding.count for finding in findings if finding.kind == Kind.MISSING_ENTRY) == 39


def test_foreign_names_and_directories(tmp_path: Path, verify: Verify) -> None:
    writer = make(tmp_path)
    writer.close()
    directory = writer.root / "index"
    (directory / "20260101000000999").mkdir()
    (directory / "1").mkdir()
    (directory / "notes.txt").write_text("?")
    (directory / "readable").mkdir()
    report = verify()
    assert {(finding.kind, Path(finding.path).name) for finding in findings_of(report)} == {
        (Kind.FILE, "20260101000000999"),
        (Kind.FILE, "1"),
    }
    assert any("notes.txt" in note for note in report.notes)


def test_findings_are_listed_up_to_a_limit_and_counted_beyond(tmp_path: Path, verify: Verify) -> None:
    writer = make(tmp_path)
    writer.close()
    path = writer.index_paths()[1]
    data = bytearray(path.read_bytes())
    for number in range(2, 17):
        data[FIRST_ENTRY + 20 * number + 12] ^= 0x40
    path.write_bytes(data)
    report = verify(limit=7)
    assert [each.more for each in report.details.findings] == [0] * 7 + [8]
    assert report.details.counts == {Kind.ENTRY: 15}
