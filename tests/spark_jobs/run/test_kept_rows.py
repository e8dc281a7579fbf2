"""Rows in Spark: made once, read where they are, and sent on; and a directory for each task."""

import os
from functools import partial
from operator import call
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from spark_jobs.build.exchange import SCAN
from spark_jobs.build.shuffle_exchange import make_rows
from spark_jobs.run._spark_calls import TaskFailed
from spark_jobs.run.kept_rows import SPARK_DIRECTORIES, KeptRows, local_work
from spark_jobs.scan.scan_segment import ScanTask

if TYPE_CHECKING:
    from pyspark import SparkContext


def test_an_error_of_a_task_that_makes_rows_is_known_by_its_sentence(spark: "SparkContext", tmp_path: Path) -> None:
    task = ScanTask(
        work="", path=str(tmp_path / "gone"), base_offset=0, limit=-1, entries=True, checksums=False, tags=True,
        bundles=1, delays=(), lmq=False, ext=False, batch_topics=(),
    )  # fmt: skip
    rows = KeptRows.of(spark, "scan", [(0, task)], partial(make_rows, SCAN))
    with pytest.raises(TaskFailed, match=f"^{tmp_path}/gone"):
        rows.heads()


def test_rows_reach_the_tasks_that_they_are_sent_to(spark: "SparkContext") -> None:
    """Each task makes three rows of its text, and the first row of each goes to task 0, and so on."""
    # Workers cannot import functions of a test, and any object may be a row.
    rows = KeptRows.of(spark, "rows", [b"a\nbb\nccc", b"d\nee\nfff"], cast("Any", bytes.splitlines))
    assert rows.heads() == [b"a", b"d"]
    assert rows.ask("look", {1: list}) == {1: [b"d", b"ee", b"fff"]}
    sent = rows.send("sent", cast("Any", enumerate), [sorted, sorted, sorted], cast("Any", call))
    assert sent == [b"a", b"d", b"bb", b"ee", b"ccc", b"fff"]
    rows.release()


def test_a_task_has_a_directory_below_one_of_sparks_until_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SPARK_DIRECTORIES, f"{tmp_path / 'gone'},{tmp_path}")
    with local_work() as work:
        assert work.root.parent == tmp_path
        assert os.listdir(work.root) != []
    assert os.listdir(tmp_path) == []
