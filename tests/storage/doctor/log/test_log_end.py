"""The doctor on damage in the log, and on its end."""

from pathlib import Path

import pytest

from doctoring import SEGMENT, findings_of, make_store, only, put
from oracles import BLANK_MAGIC, packed
from storage.doctor.examine import examine
from storage.doctor.finding import Severity
from storage.doctor.log.log_end import MISPLACED_REMEDY
from store_writer import Written


def damage(root: Path, record: Written, position: int = 90) -> Path:
    base = record.physical_offset // SEGMENT * SEGMENT
    path = root / "commitlog" / f"{base:020d}"
    put(path, record.physical_offset - base + position, b"\xff\xff")
    return path


def test_a_damaged_record_in_an_earlier_segment_is_named_where_it_starts(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path)
    writer.close()
    path = damage(tmp_path, written[10])
    finding = only(tmp_path, "log-end")
    assert (finding.severity, finding.path) == (Severity.ERROR, str(path))
    assert finding.position == finding.physical_offset == written[10].physical_offset
    said = "expected an intact record, found a damaged record: its body does not match its CRC"
    look = f"what is left of the first: rocketlens view --damaged {tmp_path} {written[10].physical_offset}"
    assert finding.what == f"{said} ({written[10].size} bytes passed over; {look})"
    assert finding.remedy.startswith(f"rocketlens rescue {tmp_path} --out ")
    (left, right) = examine(tmp_path).coverage.log
    assert (left[1], right[0]) == (written[10].physical_offset, written[11].physical_offset)


def test_a_zeroed_page_is_named_where_its_first_record_starts(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path)
    writer.close()
    put(tmp_path / "commitlog" / f"{0:020d}", 4096, bytes(4096))
    first = next(record for record in written if record.physical_offset + record.size > 4096)
    following = next(record for record in written if record.physical_offset >= 8192)
    finding = only(tmp_path, "log-end")
    assert finding.physical_offset == first.physical_offset
    assert finding.found.endswith(f"({following.physical_offset - first.physical_offset} bytes passed over)")


@pytest.mark.parametrize("kept", [4, 8, 40, 91])
def test_a_torn_last_record_is_named_where_it_starts(tmp_path: Path, kept: int) -> None:
    writer, written = make_store(tmp_path)
    last = written[-1]
    writer.overwrite(last.physical_offset, last.record[:kept].ljust(last.size, b"\0"))
    writer.crash()
    (finding,) = findings_of(examine(tmp_path), "log-end")
    assert (finding.severity, finding.physical_offset) == (Severity.ERROR, last.physical_offset)
    assert finding.position == last.physical_offset % SEGMENT


def test_segments_that_have_each_others_names_are_no_end_that_a_broker_may_write_over(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path, 400)
    writer.close()
    log = tmp_path / "commitlog"
    first, other = (log / f"{number * SEGMENT:020d}" for number in (0, 2))
    for each in sorted(log.iterdir())[3:]:
        each.unlink()
    swapped = first.read_bytes(), other.read_bytes()
    other.write_bytes(swapped[0])
    first.write_bytes(swapped[1])
    (log / f"{SEGMENT:020d}").write_bytes(swapped[1])
    (finding,) = findings_of(examine(tmp_path), "log-end")
    assert f"its records are those of {other.name}: do not start a broker here" in finding.meaning
    assert finding.remedy == MISPLACED_REMEDY


@pytest.mark.parametrize("number", [10, 150, 199])
def test_a_false_blank_is_named_in_whichever_segment_it_lies(tmp_path: Path, number: int) -> None:
    writer, written = make_store(tmp_path)
    writer.overwrite(written[number].physical_offset + 4, BLANK_MAGIC.to_bytes(4, "big"))
    writer.close()
    finding = only(tmp_path, "log-end")
    assert (finding.severity, finding.physical_offset) == (Severity.ERROR, written[number].physical_offset)
    blank = "it is a BLANK, which closes a segment, but its size does not lead to the segment's end"
    passed = f" ({written[number].size} bytes passed over)" if number < 199 else ""  # else the log ends there
    assert finding.what.endswith(blank + passed)


def test_a_segment_that_starts_with_a_blank_must_be_blank_to_its_end(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path, 400)
    first = next(each for each in written if each.physical_offset == SEGMENT)
    for size, count in ((SEGMENT, 0), (first.size, 1)):
        writer.overwrite(SEGMENT, packed(size, 4) + BLANK_MAGIC.to_bytes(4, "big"))
        writer.close()
        found = [finding.found for finding in findings_of(examine(tmp_path), "segments")]
        assert len(found) == count
        assert all("it is a BLANK" in sentence for sentence in found)
