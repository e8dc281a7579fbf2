"""Queues as brokers leave them behind, after a life of their own, and wrong ones: what a verification says."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oracles import packed
from queue_rebuild import Rebuilt
from spark_jobs.run.report import Report
from storage.doctor.finding import Finding, Kind
from store_files import PRE_BLANK
from store_writer import StoreWriter
from verifying import assert_clean, findings_of, told, verify_here

FILE_SIZE = 200
UNITS = FILE_SIZE // 20

Verify = Callable[..., Report]


@pytest.fixture
def verify(tmp_path: Path) -> Verify:
    """Check the store that a test writes."""
    return lambda **options: verify_here(tmp_path / "store", tmp_path / "work", **options)


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    """A store of small files."""
    return StoreWriter(tmp_path / "store", segment_size=4096, queue_file_size=FILE_SIZE, ext_file_size=256)


def fill(writer: StoreWriter, count: int, topic: str = "T", **more: Any) -> list[int]:
    """Append messages; their physical offsets."""
    return [writer.append(topic, b"body", keys=f"k{n}", **more).physical_offset for n in range(count)]


def queue_path(writer: StoreWriter, start: int = 0, queue: str = "T/0", tree: str = "consumequeue") -> Path:
    return writer.root / tree / queue / f"{start:020d}"


def edit(path: Path, position: int, data: bytes) -> None:
    """Other bytes in a file; a missing one is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_bytes() if path.exists() else bytes(FILE_SIZE)
    path.write_bytes(before[:position] + data + before[position + len(data) :])


def only(report: Report) -> Finding:
    """The one finding that there is."""
    findings = findings_of(report)
    assert len(findings) == 1, told(report)
    assert report.exit_code == 4
    return findings[0]


def queues(report: Report) -> dict[str, int]:
    """The numbers of queues that are not zero."""
    return {name: value for name, value in msgspec.to_builtins(report.details.queues).items() if value}


# --- what is as it should be ------------------------------------------------------------------------------------------


def test_several_files_several_queues_and_a_queue_without_messages(writer: StoreWriter, verify: Verify) -> None:
    for queue_id in (0, 1, 7):
        fill(writer, 25, queue_id=queue_id)
    writer.close()
    (writer.root / "consumequeue" / "T" / "2").mkdir()
    report = verify()
    assert_clean(report)
    assert queues(report) == {"queues": 4, "matched": 75}


def test_messages_of_other_transaction_states_have_no_unit(writer: StoreWriter, verify: Verify) -> None:
    for flag in (0, 4, 8, 12, 0):
        fill(writer, 2, sys_flag=flag)
    writer.close()
    report = verify()
    assert_clean(report)
    assert report.messages == 10
    assert report.units == 6


def test_units_of_expired_messages_are_not_held_against_the_log(writer: StoreWriter, verify: Verify) -> None:
    fill(writer, 60)
    writer.close()
    first = min(writer.log.segments)
    writer.log.segments[first].unlink()
    shutil.rmtree(writer.root / "index")
    report = verify()
    assert [finding.kind for finding in findings_of(report)] == ["missing-entry"]
    assert queues(report)["expired"] + queues(report)["matched"] == 60


def test_fillers_before_a_queue_that_began_late(writer: StoreWriter, verify: Verify) -> None:
    for offset in range(17, 30):
        writer.append("T", queue_offset=offset)
    writer.close()
    report = verify()
    assert_clean(report)
    assert queues(report) == {"queues": 1, "matched": 13, "fillers": 17 % UNITS}


def test_a_topic_that_was_made_again_with_its_queues_deleted(writer: StoreWriter, verify: Verify) -> None:
    fill(writer, 7)
    del writer.queues["T", 0]
    for offset in range(5):
        writer.append("T", queue_offset=offset)
    writer.close()
    report = verify()
    assert_clean(report)
    assert queues(report) == {"queues": 1, "matched": 5, "earlierLife": 7}


def test_a_topic_that_was_made_again_while_its_queues_survived(writer: StoreWriter, verify: Verify) -> None:
    """A broker appends queue offset 0 wherever the queue is, and leaves out what follows until it has caught up."""
    fill(writer, 4)
    for offset in range(7):
        writer.append("T", queue_offset=offset)
    writer.close()
    report = verify()
    assert_clean(report)
    assert queues(report) == {"queues": 1, "matched": 7, "restarts": 1}


def test_a_deleted_topic_whose_messages_are_still_there(writer: StoreWriter, verify: Verify) -> None:
    fill(writer, 4, "Gone")
    fill(writer, 4)
    del writer.topic_attributes["Gone"]
    writer.close()
    shutil.rmtree(writer.root / "consumequeue" / "Gone")
    report = verify()
    assert_clean(report)
    assert queues(report) == {"queues": 2, "matched": 4, "deletedTopics": 4}
    assert "are not in topics.json: Gone" in report.notes[0]


def test_units_beyond_the_end_of_the_log_are_what_a_truncation_leaves(writer: StoreWriter, verify: Verify) -> None:
    fill(writer, 12)
    writer.close()
    last = writer.written[-1]
    writer.overwrite(last.physical_offset, bytes(last.size))
    shutil.rmtree(writer.root / "index")
    report = verify()
    assert {finding.kind for finding in findings_of(report)} == {"missing-entry"}
    assert queues(report) == {"queues": 1, "matched": 11, "beyond": 1}


def test_light_queues_take_no_notice_of_copies_with_old_numbers(writer: StoreWriter, verify: Verify) -> None:
    for offset in range(3):
        light = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(offset)}
        writer.append("T", properties=light)
    again = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "1"}
    writer.append("%DLQ%group", properties=again)
    writer.close()
    report = verify()
    assert_clean(report)
    assert queues(report) == {"queues": 3, "matched": 7}


@pytest.mark.parametrize("state", ["crash", "live"])
def test_what_is_not_dispatched_yet_is_lag_after_a_crash_and_beside_a_broker(
    writer: StoreWriter, verify: Verify, state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(writer, 5)
    writer.append("Other")
    writer.append("T", queue=False, index=False)
    writer.append("New", queue=False, index=False, keys="k")
    writer.crash()
    if state == "live":
        from spark_jobs.scan import source

        real = source.read_store_state
        monkeypatch.setattr(source, "read_store_state", lambda root: type(real(root))(True, True, 1, 1))
    # Nobody sees a broker on a store behind a URL.
    report = verify() if state == "crash" else verify_here(tmp_path / "store", tmp_path / "work")
    assert_clean(report)
    assert queues(report)["lag"] == 2
    assert report.details.index.lag == 1
    assert {"crash": report.details.log.crashed, "live": report.details.log.live}[state]


def test_other_delay_levels_are_a_hint_and_a_damaged_delivery_time_is_a_finding(tmp_path: Path, verify: Verify) -> None:
    writer = StoreWriter(tmp_path / "store", delay_levels="7s 8s 9s")
    for _ in range(4):
        writer.append("SCHEDULE_TOPIC_XXXX", properties={"DELAY": "2"}, queue_id=1)
    writer.close()
    report = verify()
    assert_clean(report)
    assert "the delivery times of 4 units of the schedule topic do not follow" in report.notes[0]
    assert verify(delay_levels="7s 8s 9s").notes == []
    path = queue_path(writer, queue="SCHEDULE_TOPIC_XXXX/1")
    edit(path, 2 * 20 + 12, packed(1_700_000_000_000, 8))
    finding = only(verify(delay_levels="7s 8s 9s"))
    assert (finding.kind, finding.place, finding.position) == (Kind.UNIT, "unit 2 tags_code", 52)


@pytest.mark.parametrize("start", [0, 3, 17])
@pytest.mark.parametrize("lost", [[], [0], [1, 2, 3], [40, 41], [88, 89], [0, 50, 89], [*range(10, 80)]])
def test_what_a_rebuild_puts_in_the_place_of_lost_messages_is_as_it_should_be(
    writer: StoreWriter, tmp_path: Path, verify: Verify, lost: list[int], start: int
) -> None:
    for number in range(90):
        writer.append("T", b"body", queue_offset=start + number)
    writer.close()
    for number in lost:
        gone = writer.written[number]
        writer.overwrite(gone.physical_offset + 4, bytes(gone.size - 4))
    rebuilt = Rebuilt(writer.root, tmp_path / "rebuilding", consume_queue_file_size=FILE_SIZE)
    shutil.rmtree(writer.root / "consumequeue")
    shutil.copytree(rebuilt.work.staged / "consumequeue", writer.root / "consumequeue")
    report = verify()
    assert {finding.kind for finding in findings_of(report)} <= {Kind.RECORD}, told(report)
    numbers, built = report.details.queues, rebuilt.details
    assert numbers.matched == built.units == 90 - len(lost)
    assert (numbers.stand_ins, numbers.fillers) == (built.repeated + built.unreadable, built.pre_blank)


# --- what is wrong ----------------------------------------------------------------------------------------------------


def test_a_missing_unit_makes_all_that_follow_stand_elsewhere(writer: StoreWriter, verify: Verify) -> None:
    fill(writer, 30)
    writer.append("T", queue=False)
    offsets = fill(writer, 5)
    writer.close()
    missing, shifted = findings_of(verify())
    assert missing.kind == Kind.MISSING_UNIT
    assert missing.physical_offset == writer.written[30].physical_offset
    assert (shifted.kind, shifted.place, shifted.physical_offset) == (Kind.SHIFTED_UNIT, "unit 30", offsets[0])
    assert Path(shifted.path) == queue_path(writer, 600)


def test_a_queue_that_ends_early_in_a_store_at_rest(writer: StoreWriter, verify: Verify) -> None:
    offsets = fill(writer, 5)
    writer.append("T", queue=False)
    writer.append("T", queue=False)
    writer.close()
    finding = only(verify())
    assert (finding.kind, finding.count) == (Kind.MISSING_UNIT, 2)
    assert finding.physical_offset == writer.written[5].physical_offset > offsets[-1]


def test_after_a_crash_a_queue_that_ends_before_others_do_is_no_lag(writer: StoreWriter, verify: Verify) -> None:
    fill(writer, 5)
    writer.append("T", queue=False)
    writer.append("Other")
    writer.crash()
    finding = only(verify())
    assert (finding.kind, finding.count) == (Kind.MISSING_UNIT, 1)


def test_a_queue_that_is_not_there(writer: StoreWriter, verify: Verify) -> None:
    fill(writer, 5)
    fill(writer, 5, queue_id=1)
    writer.close()
    shutil.rmtree(writer.root / "consumequeue" / "T" / "1")
    finding = only(verify())
    assert (finding.kind, finding.count, finding.found) == (Kind.MISSING_UNIT, 5, "no such queue")
    assert Path(finding.path) == writer.root / "consumequeue" / "T" / "1"


@pytest.mark.parametrize("lost", [0, 200, 400])
def test_a_missing_file_is_named_with_the_messages_that_lack_units(
    writer: StoreWriter, verify: Verify, lost: int
) -> None:
    fill(writer, 25)
    writer.close()
    queue_path(writer, lost).unlink()
    findings = findings_of(verify())
    missing = sum(finding.count for finding in findings if finding.kind in (Kind.MISSING_UNIT, Kind.UNIT))
    assert missing == min(25 - lost // 20, UNITS)
    assert [finding.kind for finding in findings].count(Kind.FILE) == (lost == 200)


def test_zeroed_units_are_one_finding(writer: StoreWriter, verify: Verify) -> None:
    offsets = fill(writer, 25)
    writer.close()
    edit(queue_path(writer, 200), 40, bytes(60))
    finding = only(verify())
    assert (finding.kind, finding.place, finding.position, finding.count) == (Kind.UNIT, "units 12 to 14", 40, 3)
    assert finding.physical_offset == offsets[12]


def test_stale_units_behind_the_end_that_point_into_the_log(writer: StoreWriter, verify: Verify) -> None:
    offsets = fill(writer, 5)
    writer.close()
    edit(queue_path(writer), 100, packed(offsets[2], 8) + packed(100, 4) + packed(0, 8))
    finding = only(verify())
    assert (finding.kind, finding.place, finding.physical_offset) == (Kind.STRAY_UNIT, "unit 5", offsets[2])


def test_a_filler_that_is_not_in_front(writer: StoreWriter, verify: Verify) -> None:
    offsets = fill(writer, 5)
    writer.close()
    edit(queue_path(writer), 40, PRE_BLANK)
    assert {(finding.kind, finding.physical_offset) for finding in findings_of(verify())} == {(Kind.UNIT, offsets[2])}


def test_a_record_with_a_number_out_of_order(writer: StoreWriter, verify: Verify) -> None:
    fill(writer, 5)
    odd = writer.append("T", queue_offset=3)
    writer.append("T", queue_offset=5)
    writer.close()
    finding = only(verify())
    assert (finding.kind, finding.physical_offset) == (Kind.QUEUE_OFFSET, odd.physical_offset)
    assert (finding.expected, finding.found) == ("queue offset 5", "3")


def test_numbers_that_are_missing_where_the_log_is_whole(writer: StoreWriter, verify: Verify) -> None:
    fill(writer, 5)
    behind = [writer.append("T", queue_offset=offset) for offset in (8, 9, 10)]
    writer.close()
    number, shifted = findings_of(verify())
    assert {number.kind, shifted.kind} == {Kind.QUEUE_OFFSET, Kind.SHIFTED_UNIT}
    assert {number.physical_offset, shifted.physical_offset} == {behind[0].physical_offset}


def test_units_of_a_damaged_record_are_not_to_blame(writer: StoreWriter, verify: Verify) -> None:
    offsets = fill(writer, 20)
    writer.close()
    writer.overwrite(offsets[7] + 88, b"B")
    report = verify()
    finding = only(report)
    assert (finding.kind, finding.physical_offset) == (Kind.RECORD, offsets[7])
    assert queues(report) == {"queues": 1, "matched": 19, "lost": 1}


def test_a_missing_segment_is_one_finding_and_its_units_are_lost(writer: StoreWriter, verify: Verify) -> None:
    fill(writer, 90)
    writer.close()
    base = sorted(writer.log.segments)[1]
    writer.log.segments[base].unlink()
    report = verify()
    finding = only(report)
    assert (finding.kind, finding.physical_offset, finding.expected) == (Kind.HOLE, base, "a segment")
    assert queues(report)["matched"] + queues(report)["lost"] == 90


def test_an_extension_that_is_gone(tmp_path: Path, verify: Verify) -> None:
    writer = StoreWriter(tmp_path / "store", ext_bit_map=b"\1\2", ext_file_size=128)
    fill(writer, 12)
    writer.close()
    assert_clean(verify())
    (writer.root / "consumequeue_ext" / "T" / "0" / f"{128:020d}").unlink()
    findings = findings_of(verify())
    assert {finding.kind for finding in findings} <= {Kind.EXT_UNIT, Kind.FILE}
    assert sum(finding.kind == Kind.EXT_UNIT for finding in findings) >= 5


def test_a_queue_in_the_tree_of_the_other_kind(writer: StoreWriter, verify: Verify) -> None:
    fill(writer, 3)
    writer.close()
    (writer.root / "batchconsumequeue" / "T" / "0").mkdir(parents=True)
    assert only(verify()).kind == Kind.FILE


@pytest.mark.parametrize("size", [0, 19, 21, 100])
def test_a_file_of_the_wrong_length(writer: StoreWriter, verify: Verify, size: int) -> None:
    fill(writer, 45)
    writer.close()
    path = queue_path(writer, 400)
    path.write_bytes(path.read_bytes()[:size])
    findings = findings_of(verify())
    assert any(finding.kind == Kind.FILE and Path(finding.path) == path for finding in findings), findings
