"""A verification end to end: what a broker wrote is clean, what was damaged is named."""

from pathlib import Path
from typing import Any

import pytest

from golden_store import GOLDEN, unpack
from job_engines import run_on_engine
from spark_jobs.doctor.deep_check import run_deep_check
from spark_jobs.doctor.deep_request import DeepRequest
from spark_jobs.run.report import Report

pytestmark = pytest.mark.usefixtures("local")


def verify(store: Path, **options: Any) -> Report:
    return run_on_engine(run_deep_check, DeepRequest(store=str(store), **options))


def listing(store: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in store.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["store", "store-crashed"])
def test_a_recorded_store_is_clean_and_is_left_as_it_was(tmp_path: Path, name: str) -> None:
    store = unpack(name, tmp_path)
    before = listing(store)
    report = verify(store)
    assert (report.exit_code, report.details.clean, report.details.findings) == (0, True, [])
    assert report.messages == 390
    assert listing(store) == before


def test_queues_of_rocksdb_are_said_not_to_be_compared(tmp_path: Path) -> None:
    report = verify(unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-rocksdb"))
    assert report.exit_code == 0
    assert "no queue files: queues of RocksDB are not compared" in report.notes
