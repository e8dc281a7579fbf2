"""Queues as brokers leave them behind, after a life of their own, and wrong ones: what a verification says."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from golden_store import GOLDEN, unpack
from job_runs import Rebuilt
from oracles import packed
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


def several_queues(writer: StoreWriter) -> None:
    for queue_id in (0, 1, 7):
        fill(writer, 25, queue_id=queue_id)
    (writer.root / "consumequeue" / "T" / "2").mkdir(parents=True)


def other_transaction_states(writer: StoreWriter) -> None:
    for flag in (0, 4, 8, 12, 0):
        fill(writer, 2, sys_flag=flag)


def a_queue_that_began_late(writer: StoreWriter) -> None:
    for offset in range(17, 30):
        writer.append("T", queue_offset=offset)


def a_topic_made_again_with_its_queues_deleted(writer: StoreWriter) -> None:
    fill(writer, 7)
    del writer.queues["T", 0]
    for offset in range(5):
        writer.append("T", queue_offset=offset)


def a_topic_made_again_while_its_queues_survived(writer: StoreWriter) -> None:
    """A broker appends queue offset 0 wherever the queue is, and leaves out what follows until it has caught up."""
    fill(writer, 4)
    for offset in range(7):
        writer.append("T", queue_offset=offset)


def a_deleted_topic(writer: StoreWriter) -> None:
    fill(writer, 4, "Gone")
    fill(writer, 4)
    del writer.topic_attributes["Gone"], writer.queues["Gone", 0]


def light_queues_and_copies_with_old_numbers(writer: StoreWriter) -> None:
    for topic, offset in (("T", 0), ("T", 1), ("T", 2), ("%DLQ%group", 1)):
        light = {"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": str(offset)}
        writer.append(topic, properties=light)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (several_queues, {"queues": 4, "matched": 75}),
        (other_transaction_states, {"queues": 1, "matched": 6}),
        (a_queue_that_began_late, {"queues": 1, "matched": 13, "fillers": 17 % UNITS}),
        (a_topic_made_again_with_its_queues_deleted, {"queues": 1, "matched": 5, "earlierLife": 7}),
        (a_topic_made_again_while_its_queues_survived, {"queues": 1, "matched": 7, "restarts": 1}),
        (a_deleted_topic, {"queues": 2, "matched": 4, "deletedTopics": 4}),
        (light_queues_and_copies_with_old_numbers, {"queues": 3, "matched": 7}),
    ],
)
def test_what_brokers_leave_is_nothing_wrong(
    writer: StoreWriter, verify: Verify, written: Callable[[StoreWriter], None], expected: dict[str, int]
) -> None:
    written(writer)
    writer.close()
    report = verify()
    assert_clean(report)
    assert queues(report) == expected
    assert any("are not in topics.json: Gone" in note for note in report.notes) == ("deletedTopics" in expected)


def test_units_of_expired_messages_are_not_held_against_the_log(writer: StoreWriter, verify: Verify) -> None:
    fill(writer, 60)
    writer.close()
    first = min(writer.log.segments)
    writer.log.segments[first].unlink()
    shutil.rmtree(writer.root / "index")
    report = verify()
    assert [finding.kind for finding in findings_of(report)] == ["missing-entry"]
    assert queues(report)["expired"] + queues(report)["matched"] == 60


def test_units_beyond_the_end_of_the_log_are_what_a_truncation_leaves(writer: StoreWriter, verify: Verify) -> None:
    fill(writer, 12)
    writer.close()
    last = writer.written[-1]
    writer.overwrite(last.physical_offset, bytes(last.size))
    shutil.rmtree(writer.root / "index")
    report = verify()
    assert {finding.kind for finding in findings_of(report)} == {"missing-entry"}
    assert queues(report) == {"queues": 1, "matched": 11, "beyond": 1}


@pytest.mark.parametrize("state", ["crash", "live"])
def test_what_is_not_dispatched_yet_is_lag_after_a_crash_and_beside_a_broker(
    writer: StoreWriter, verify: Verify, state: str, monkeypatch: pytest.MonkeyPatch
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
    report = verify()
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


@pytest.mark.parametrize(
    ("lost", "start"),
    [([], 3), ([0], 0), ([1, 2, 3], 3), ([40, 41], 17), ([88, 89], 0), ([0, 50, 89], 17), ([*range(10, 80)], 3)],
)
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


def test_a_filler_that_is_not_in_front(writer: StoreWriter, verify: Verify) -> None:
    offsets = fill(writer, 5)
    writer.close()
    edit(queue_path(writer), 40, PRE_BLANK)
    assert {(finding.kind, finding.physical_offset) for finding in findings_of(verify())} == {(Kind.UNIT, offsets[2])}


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


@pytest.mark.parametrize(("start", "size", "lacking"), [(200, None, UNITS), (200, 21, UNITS - 1)])
def test_a_file_that_is_gone_or_too_short_is_named_with_the_messages_that_lack_units(
    writer: StoreWriter, verify: Verify, start: int, size: int | None, lacking: int
) -> None:
    fill(writer, 25)
    writer.close()
    path = queue_path(writer, start)
    content = path.read_bytes()
    path.unlink()
    if size is not None:
        path.write_bytes(content[:size])
    findings = findings_of(verify())
    assert sum(finding.count for finding in findings if finding.kind in (Kind.MISSING_UNIT, Kind.UNIT)) == lacking
    assert Kind.FILE in {finding.kind for finding in findings}


@pytest.mark.parametrize("damage", ["a record", "a segment"])
def test_units_of_messages_that_the_log_has_lost_are_not_to_blame(
    writer: StoreWriter, verify: Verify, damage: str
) -> None:
    offsets = fill(writer, 90)
    writer.close()
    base = sorted(writer.log.segments)[1]
    if damage == "a record":
        writer.overwrite(offsets[7] + 88, b"B")
    else:
        writer.log.segments[base].unlink()
    report = verify()
    finding = only(report)
    expected = (
        (Kind.RECORD, offsets[7], 1) if damage == "a record" else (Kind.HOLE, base, 90 - queues(report)["matched"])
    )
    assert (finding.kind, finding.physical_offset, queues(report)["lost"]) == expected


def test_queues_of_rocksdb_are_said_not_to_be_compared(tmp_path: Path) -> None:
    report = verify_here(unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-rocksdb"), tmp_path / "work")
    assert report.exit_code == 0
    assert "no queue files: queues of RocksDB are not compared" in report.notes
