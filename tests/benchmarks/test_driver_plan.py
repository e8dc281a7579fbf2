"""What a driver holds and sends does not grow with the blocks of a store: 10 TB are planned in a part of 2 GB."""

import json
import subprocess
import sys

import pytest

MOST_MEMORY = 1 << 30
"""Half of a driver of 2 GB: the JVM, which holds the tasks once more, is to have the other half."""

SEGMENTS = 10_000
MOST_TASK_BYTES = 64 << 20

pytestmark = [
    pytest.mark.untraced,
    pytest.mark.parametrize("part", [10, pytest.param(1, marks=pytest.mark.soak)], ids=["a tenth", "all"]),
]


def planned(part, *options):
    command = [sys.executable, "-m", "benchmarks.driver_plan", "--segments", str(SEGMENTS // part), *options]
    plan = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    assert plan["peak_bytes"] < MOST_MEMORY // part
    assert sum(plan["task_bytes"].values()) < MOST_TASK_BYTES // part
    # That is all of it: every entry is placed.
    assert plan["placed"] == plan["entries"] > 30_000_000_000 // part
    return plan


def test_a_compaction_of_ten_thousand_segments_is_planned_in_a_small_driver(part: int) -> None:
    """Though their times overlap, and something is left out of each of them."""
    plan = planned(part, "--job", "compact")
    files = plan["index_files"]
    assert files > 1500 // part
    assert plan["left_out"] == SEGMENTS // part
    assert plan["tasks"] == {
        "joints": files - 1, "split": files, "merge": SEGMENTS // part, "order": SEGMENTS // 2 // part, "index": files,
    }  # fmt: skip


def test_ten_thousand_segments_are_planned_in_a_small_driver(part: int) -> None:
    plan = planned(part, "--queues", str(20_000 // part))
    assert all(count > 1000 // part for count in plan["tasks"].values())
    # Hot queues are built in parts besides more bundles than ever before.
    assert plan["tasks"]["queues"] == plan["bundles"] + plan["parts"]
    assert plan["bundles"] > 64
    assert plan["parts"] > 31
    assert plan["queues"] == 20_000 // part + 31
