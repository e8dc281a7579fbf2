"""What a driver holds and sends does not grow with the blocks of a store: 10 TB are planned in a part of 2 GB."""

import json
import subprocess
import sys

import pytest

MOST_MEMORY = 1 << 30
"""Half of a driver of 2 GB: the JVM, which holds the tasks once more, is to have the other half."""


@pytest.mark.untraced
def test_ten_thousand_segments_are_planned_in_a_small_driver() -> None:
    command = [sys.executable, "-m", "benchmarks.driver_plan", "--segments", "10000", "--queues", "20000"]
    plan = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert plan["peak_bytes"] < MOST_MEMORY
    assert sum(plan["task_bytes"].values()) < 64 << 20
    assert all(count > 1000 for count in plan["tasks"].values())
    # That is all of it: every entry is placed, and hot queues are built in parts besides more bundles than ever before.
    assert plan["placed"] == plan["entries"] > 30_000_000_000
    assert plan["tasks"]["queues"] == plan["bundles"] + plan["parts"]
    assert plan["bundles"] > 64
    assert plan["parts"] > 31
    assert plan["queues"] == 20_031
