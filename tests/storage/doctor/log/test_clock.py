"""The doctor on store times that fall, or lie ahead."""

import time
from pathlib import Path

import pytest

from doctoring import NOW, findings_of, make_store
from storage.doctor.examine import examine


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [
        pytest.param(NOW - 60_000, ["stepped back by 60100 ms"], id="a step back"),
        pytest.param(NOW + 100 - 900, [], id="a step of less than a second"),
        pytest.param(int(time.time() * 1000) + 10**9, ["is in the future"], id="a time that has not come"),
    ],
)
def test_times_that_clocks_do_not_show_are_named(tmp_path: Path, timestamp: int, found: list[str]) -> None:
    writer, _ = make_store(tmp_path, 100)
    stepped = writer.append("T", b"x", store_timestamp=timestamp)
    writer.append("T", b"x", store_timestamp=max(timestamp, NOW))
    writer.close()
    findings = findings_of(examine(tmp_path), "clock")
    assert [finding.physical_offset for finding in findings] == [stepped.physical_offset] * len(found)
    assert all(said in finding.found for said, finding in zip(found, findings, strict=True))
