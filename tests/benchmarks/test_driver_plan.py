"""What a driver holds and sends does not grow with the blocks of a store: 10 TB are planned in a part of 2 GB."""

import json
import subprocess
import sys
from typing import Any

import pytest

MOST_MEMORY = 1 << 30
"""Half of a driver of 2 GB: the JVM, which holds the tasks once more, is to have the other half."""


def planned(*options: str) -> Any:
    command = [sys.executable, "-m", "benchmarks.driver_plan", "--segments", "10000", *options]
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


@pytest.mark.untraced
def test_a_compaction_of_ten_thousand_segments_is_planned_in_a_small_driver() -> None:
    """Though their times overlap, and something is left out of each of them."""
    plan = planned("--job", "compact")
    assert plan["peak_bytes"] < MOST_MEMORY
    assert sum(plan["task_bytes"].values()) < 64 << 20
    assert plan["placed"] == plan["entries"] > 30_000_000_000
    files = plan["index_files"]
    assert files > 1500
    assert plan["left_out"] == 10_000
    assert plan["tasks"] == {
        "joints": files - 1, "split": files, "merge": 10_000, "order": 5_000, "index": files,
    }  # fmt: skip


@pytest.mark.untraced
def test_ten_thousand_segments_are_planned_in_a_small_driver() -> None:
    plan = planned("--queues", "20000")
    assert plan["peak_bytes"] < MOST_MEMORY
    assert sum(plan["task_bytes"].values()) < 64 << 20
    assert all(count > 1000 for count in plan["tasks"].values())
    # That is all of it: every entry is placed, and hot queues are built in parts besides more bundles than ever before.
    assert plan["placed"] == plan["entries"] > 30_000_000_000
    assert plan["tasks"]["queues"] == plan["bundles"] + plan["parts"]
    assert plan["bundles"] > 64
    assert plan["parts"] > 31
    assert plan["queues"] == 20_031
