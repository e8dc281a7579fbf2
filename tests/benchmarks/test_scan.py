"""The benchmark of the scan in miniature."""

import os
from pathlib import Path

from benchmarks import scan


def test_a_scan_is_measured_through_a_map_and_by_copies(tmp_path: Path) -> None:
    measured = scan.measure(tmp_path, 1, 10_000_000)
    assert set(measured) == set(scan.BODIES)
    assert {name for rates in measured.values() for name in rates} == {scan.MAPPED, scan.COPIED}
    assert all(rate > 0 for rates in measured.values() for rate in rates.values())
    assert not any(name.startswith("scan-") for name in os.listdir(tmp_path))
    table = scan.markdown({4000: {scan.MAPPED: 4.5e9, scan.COPIED: 3e9}})
    assert "| 4,000 bytes | 4.50 | 3.00 |" in table
