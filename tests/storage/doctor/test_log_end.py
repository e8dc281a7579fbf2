"""The doctor on damage in the log, and on its end."""

from pathlib import Path

import pytest

from doctoring import SEGMENT, findings_of, make_store, only, put
from storage.doctor.examine import examine
from storage.doctor.finding import Severity
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
    assert finding.found == f"{written[10].size} bytes hold no intact record: its body does not match its CRC"
    assert finding.remedy.endswith(f": rocketlens view --damaged {tmp_path} {finding.physical_offset}")
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
    assert finding.found.startswith(f"{following.physical_offset - first.physical_offset} bytes")


@pytest.mark.parametrize("kept", [4, 8, 40, 91])
def test_a_torn_last_record_is_named_where_it_starts(tmp_path: Path, kept: int) -> None:
    writer, written = make_store(tmp_path)
    last = written[-1]
    writer.overwrite(last.physical_offset, last.record[:kept].ljust(last.size, b"\0"))
    writer.crash()
    (finding,) = findings_of(examine(tmp_path), "log-end")
    assert (finding.severity, finding.physical_offset) == (Severity.ERROR, last.physical_offset)
    assert finding.position == last.physical_offset % SEGMENT
