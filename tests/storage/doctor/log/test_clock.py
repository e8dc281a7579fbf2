"""The doctor on store times that fall, or lie ahead."""

import time
from pathlib import Path

from doctoring import NOW, findings_of, make_store, only
from storage.doctor.examine import examine
from storage.doctor.finding import Severity


def test_a_step_back_is_named_where_it_happened(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path, 100)
    stepped = writer.append("T", b"x", store_timestamp=NOW - 60_000)
    writer.append("T", b"x")
    writer.close()
    finding = only(tmp_path, "clock")
    assert (finding.severity, finding.physical_offset) == (Severity.WARNING, stepped.physical_offset)
    assert "stepped back by 60100 ms" in finding.found


def test_a_step_of_less_than_a_second_is_nothing(tmp_path: Path) -> None:
    writer, written = make_store(tmp_path, 100)
    writer.append("T", b"x", store_timestamp=written[-1].store_timestamp - 900)
    writer.close()
    assert findings_of(examine(tmp_path), "clock") == []


def test_a_time_that_has_not_come_is_named(tmp_path: Path) -> None:
    writer, _ = make_store(tmp_path, 100)
    ahead = writer.append("T", b"x", store_timestamp=int(time.time() * 1000) + 10**9)
    writer.close()
    finding = only(tmp_path, "clock")
    assert finding.physical_offset == ahead.physical_offset
    assert "is in the future" in finding.found
