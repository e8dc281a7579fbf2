"""Appends and exports whose processes are killed at any moment: in the end each message is there once.

`test_lake_tables` has a run die at each of its steps; here the system ends whole processes, Spark's too.
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


@pytest.mark.parametrize(
    ("format_", "kills"), [("delta", 2), *(pytest.param(each, 40, marks=pytest.mark.soak) for each in LAKES)]
)
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
    print(f"{format_}: {killed} of {kills} runs were killed, {len(lake.commits())} commits, {len(expected)} messages")


def descendants(pid: int) -> set[int]:
    """The processes that a process has started, and theirs."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found |= {child, *descendants(child)}
    return found


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.soak
def test_an_export_by_spark_that_is_killed_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    """The driver alone is killed: its JVM and its workers have to find out by themselves."""
    rng = random.Random(SEED)
    writer = StoreWriter(tmp_path / "store", segment_size=1024)
    while len(writer.log.segments) < 60:
        writer.append("T", b"x" * 100)
    writer.close()

    def command(out: Path) -> list[str]:
        return [*COMMAND, "export", str(writer.root), "--format", "ndjson", "--master", "local[2]", "--out", str(out)]

    seconds = lasts(command(tmp_path / "measured"))
    for _ in range(12):
        with subprocess.Popen(
            command(tmp_path / "out"), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as driver:
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.wait(rng.uniform(0.2, 0.95) * seconds)
            children = descendants(driver.pid)
            driver.kill()
        deadline = time.monotonic() + START_SECONDS
        while any(map(is_running, children)):
            assert time.monotonic() < deadline, children
            time.sleep(0.05)
        if (tmp_path / "out" / "_manifest.json").exists():
            break
    else:
        finished(command(tmp_path / "out"))
    lines = [line for path in sorted((tmp_path / "out").glob("part-*")) for line in path.read_text().splitlines()]
    assert [json.loads(line)["physicalOffset"] for line in lines] == [
        row["physical_offset"] for row in expected_rows(writer.records)
    ]
