"""The commands as processes: Ctrl-C in the middle of a scan, and going on under spark-submit."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from blocking_client import eventually
from needed_tools import tool
from planted import imported, plant
from process import COMMAND, ROOT
from spark_classes import QUICK, quick_python
from store_writer import StoreWriter

SECONDS = 180
SEGMENTS = 80
SLOTS, ENTRIES = 97, 150


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of many small segments, so that a scan takes a while whatever the machine."""
    writer = StoreWriter(tmp_path / "store", segment_size=1024, index_slots=SLOTS, index_entries=ENTRIES)
    number = 0
    while len(list((tmp_path / "store" / "commitlog").iterdir())) < SEGMENTS:
        writer.append("T", b"x" * 100, keys=f"key-{number} all", unique_key=f"u{number}", tags="A")
        number += 1
    writer.close()
    return tmp_path / "store"


def descendants(pid: int) -> set[int]:
    """Processes that a process started, and those that these did."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
    found, added = {pid}, True
    while added:
        below = {child for child, parent in parents.items() if parent in found} - found
        found, added = found | below, bool(below)
    return found - {pid}


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def contents(store: Path) -> dict[str, bytes]:
    """All files of a store but what a job keeps there while it is under way."""
    files = (path for path in store.rglob("*") if path.is_file() and ".rocketlens-work" not in path.parts)
    return {str(path.relative_to(store)): path.read_bytes() for path in files if path.name != "lock"}


@pytest.mark.soak  # in each run: test_rebuild.py, test_local_engine.py and test_submitted.py
def test_ctrl_c_stops_a_scan_cleanly_and_spark_submit_goes_on(
    store: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    import pyspark

    written = [path.read_bytes() for path in sorted((store / "index").iterdir())]
    for path in (store / "index").iterdir():
        path.unlink()
    before = contents(store)
    work = store / ".rocketlens-work"
    options = [str(store), "--slots", str(SLOTS), "--entries", str(ENTRIES), "--json"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    # Neither way of starting imports what lies where it is started.
    plant(tmp_path)

    command = [COMMAND[0], "-P", *COMMAND[1:], "rebuild", "index", *options, "--master", "local[1]"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        eventually(lambda: process.poll() is not None or len(list(work.glob("*/done/scan-*.msgpack"))) >= 3, SECONDS)
        started = descendants(process.pid)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
    scanned = len(list(work.glob("*/done/scan-*.msgpack")))
    assert (process.returncode, output) == (130, ""), errors
    assert errors.splitlines()[-1] == "rocketlens: stopped; run the same command again to continue"
    assert "Traceback" not in errors
    assert "ERROR" not in errors
    assert len(started) >= 2  # the JVM and its workers
    eventually(lambda: not any(map(is_running, started)))
    assert 3 <= scanned < SEGMENTS
    assert contents(store) == before

    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[1]", str(ROOT / "spark_jobs" / "rebuild_index.py"), *options]
    environment |= {
        "PYSPARK_PYTHON": str(quick_python(tmp_path_factory.mktemp("python"))),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    environment |= {"SPARK_LAUNCHER_OPTS": " ".join(QUICK), "SPARK_SUBMIT_OPTS": " ".join(QUICK)}
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    report = json.loads(ended.stdout)
    assert report["resumed"]
    assert [path.read_bytes() for path in sorted((store / "index").iterdir())] == written
    assert imported(tmp_path) == {}


def unreachable(master: str, tmp_path: Path, *options: str) -> list[str]:
    """What a job says whose master is not to be reached; its JVM must have gone with it."""
    command = [*COMMAND, "rebuild", "index", str(tmp_path / "store"), "--master", master, *options]
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "out")], cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        first = process.stderr.readline().rstrip()
        below: set[int] = set()
        below |= eventually(lambda: descendants(process.pid), SECONDS)
        # Not by `communicate`, which reads past what `readline` has taken in.
        errors, output = process.stderr.read(), process.stdout.read() if process.stdout else ""
        process.wait(SECONDS)
    assert (process.returncode, output) == (3, ""), errors
    assert below  # the JVM
    eventually(lambda: not any(map(is_running, below)))
    return [first, *errors.splitlines()]


@pytest.mark.soak  # in each run: that a JVM that ends is told of, tests/spark_jobs/run/test_spark_calls.py
@pytest.mark.parametrize("answers", [True, False])
def test_a_master_that_cannot_be_reached_is_told_in_a_sentence_in_time(
    store: Path, tmp_path: Path, answers: bool
) -> None:
    """A port where nobody listens, and one that takes connections and says nothing."""
    tool("java")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        master = f"spark://127.0.0.1:{listening.getsockname()[1]}"
        if not answers:
            listening.close()
        lines = unreachable(master, tmp_path, "--conf", "spark.rocketlens.startSeconds=5")
    planned = [line for line in lines if line.startswith("rocketlens: plan: ")]
    assert "rocketlens: plan: time: depends on the cluster" in planned
    assert [line for line in lines[:-1] if line not in planned] == [
        f"rocketlens: starting Spark ({master}), a few seconds"
    ]
    assert lines[-1].startswith(
        f"rocketlens: Spark does not start: the master {master} did not answer within 5 s; "
        "--conf spark.rocketlens.startSeconds=SECONDS waits longer"
    )
