"""Appends whose processes are killed at any moment: in the end each message is there once.

`test_lake_tables` has a run die at each of its steps; here the system ends whole processes.
"""

import contextlib
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from column_rows import expected_rows
from lake_tables import Lake
from process import COMMAND, ROOT
from spark_jobs.places.output_place import OutputPlace
from store_writer import StoreWriter

START_SECONDS = 300
SEED = 37
LAKES = ("iceberg", "delta")


def run_and_kill(command: list[str], seconds: float) -> bool:
    """Run a command and kill it and all its children after some seconds; whether it was still running."""
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, process_group=0
    ) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        was_running = process.poll() is None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return was_running


def finished(command: list[str]) -> dict[str, object]:
    """The report of a command that is let run to its end."""
    done = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, check=False, timeout=START_SECONDS)
    assert done.returncode == 0, done.stderr
    report: dict[str, object] = json.loads(done.stdout)
    return report


def lasts(command: list[str]) -> float:
    """How long a whole run takes here and now."""
    started = time.monotonic()
    finished(command)
    return time.monotonic() - started


@pytest.mark.soak  # in each run: test_lake_tables.py, of a run that dies at its steps
@pytest.mark.parametrize(("format_", "kills"), [(each, 40) for each in LAKES])
def test_appends_that_are_killed_at_any_moment_leave_each_message_once(
    format_: str, kills: int, tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    writer = StoreWriter(tmp_path / "store", segment_size=4096)
    table = tmp_path / "table"

    def command(to: Path) -> list[str]:
        options = ["--since-last", "--format", format_, "--engine", "local", "--to", str(to)]
        return [*COMMAND, "export", str(writer.root), *options]

    def grow() -> None:
        for number in range(12):
            writer.append("Orders", b"body %d" % number, keys=f"k{number}")
        writer.flush()

    grow()
    seconds = lasts(command(tmp_path / "measured"))
    killed = 0
    for _ in range(kills):
        grow()
        killed += run_and_kill(command(table), rng.uniform(0.3, 1.0) * seconds)
    assert killed
    finished(command(table))
    lake = Lake(format_, OutputPlace(f"file://{table}"))
    expected = [row["physical_offset"] for row in expected_rows(writer.records)]
    assert sorted(row["physical_offset"] for row in lake.rows()) == expected
    assert lake.unnamed_files() == set()
