"""What an index costs: counted by hand on files that the oracle's writer made."""

import struct
from pathlib import Path

import pytest

from spark_jobs.compact.index_cost import index_cost
from store_writer import StoreWriter


def test_a_look_up_reads_the_slots_and_the_entries_of_each_file(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", index_slots=10_007, index_entries=100)
    for number in range(60):
        writer.append("T", b"x", keys=f"k{number}", unique_key=f"u{number}")
    writer.close()
    cost = index_cost(tmp_path / "store" / "index")
    expected = 0.0
    for path, entries in zip(sorted((tmp_path / "store" / "index").iterdir()), (99, 21), strict=True):
        slots = struct.unpack(">10007i", path.read_bytes()[40 : 40 + 4 * 10_007])
        expected += 1 + entries / sum(slot > 0 for slot in slots)
    assert (cost.files, cost.entries, cost.pages) == (2, 120, pytest.approx(expected, abs=0.05))


def test_what_is_no_index_file_counts_for_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("x")
    (tmp_path / "20260101000000000").write_bytes(b"short")
    cost = index_cost(tmp_path)
    assert (cost.files, cost.bytes, cost.entries, cost.pages) == (0, 0, 0, 0.0)
    assert index_cost(tmp_path / "missing") == cost
