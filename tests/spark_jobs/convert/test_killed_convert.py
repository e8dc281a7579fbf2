"""Kill −9 at any step on the disk: the store stays as it was, and the same command ends the work as if nothing was."""

import os
import shutil
from collections import Counter

import pytest

from job_runs import left_in
from killing import Renames, gets_through
from protocol.errors import ConfigError
from spark_jobs.commands.run import run_convert, run_rescue
from spark_jobs.convert.convert_request import ConvertRequest
from spark_jobs.convert.rescue_request import RescueRequest
from spark_jobs.run.progress import Silence
from spark_jobs.run.work_directory import REPORT
from store_kinds import Ledger

WORK = "plain.rocketlens-work"
RESCUE = {"mend", "relate", "scan", "build"}
PHASES = {
    "convert": {"convert", "relate", "scan", "build"},
    "rescue": RESCUE,
    "rescue --link": RESCUE,
    "rescue --fill-from": RESCUE | {"compare", "fill", "rescan"},
}
ENDED = "ended"
MOST_BYTES = 65_536
"""Only a timer wheel is longer, and has nothing but zeros behind them."""


@pytest.fixture(params=list(PHASES))
def job(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(tmp_path, job):
    """A log with commits and timers whose records lie in other segments, damage, and a file of everything else."""
    ledger = Ledger(tmp_path / "store", is_ledger=job == "convert")
    ledger.transaction(0, 40)
    ledger.timer(0)
    ledger.fill(5)
    ledger.write_timer_log()
    if job == "convert":  # to copy a wheel takes longer than all else, and is tried with the others
        (ledger.root / "timerwheel").unlink()
    ledger.writer.consumer_offsets = {"Topic@group": {0: 3}}
    ledger.writer.close()
    (ledger.root / "config" / "timercheck").write_bytes(b"\1" * 4096)
    torn, other = ledger.writer.written[-2], ledger.writer.written[7]
    ledger.writer.overwrite(torn.physical_offset, b"\x55" * torn.size)
    if job == "rescue --fill-from":
        shutil.copytree(ledger.root, tmp_path / "copy")
        ledger.writer.overwrite(other.physical_offset, bytes(other.size))
    return ledger.root


def tree(root):
    """All files below a directory with their bytes and length, and those of a log with their times."""
    found = {}
    for path in sorted(root.rglob("*")):
        name, status = str(path.relative_to(root)), path.stat()
        if path.is_dir():
            found[name] = None
            continue
        with path.open("rb") as file:
            data = file.read(MOST_BYTES)
        found[name] = data, status.st_size, status.st_mtime_ns if path.parent.name == "commitlog" else 0
    return found


def has_report(out):
    left = left_in(out.with_name(WORK))
    return left is not None and left.done(REPORT) is not None


def convert(store, out, job):
    """Convert a store, or rescue a plain one; whether that went on with what another one had left."""
    options = {"store": str(store), "out": str(out), "zone": "+00:00"}
    if job == "convert":
        report = run_convert(ConvertRequest(**options), Silence())
    else:
        copies = (str(store.with_name("copy")),) if job == "rescue --fill-from" else ()
        request = RescueRequest(**options, link=job == "rescue --link", fill_from=copies)
        report = run_rescue(request, Silence())
        assert len(report.details.mended.fillings.filled) == len(copies)
    assert report.exit_code == 4
    return report.resumed


def phase_of(out):
    left = left_in(out.with_name(WORK))
    manifest = left.manifest() if left else None
    return manifest.phase if manifest else ""


def kill_and_go_on(store, expected, number, job):
    """Kill before a step and go on; the phase that it hit, None where the conversion has fewer steps."""
    out = store.with_name("plain")
    old, beside = tree(store), set(os.listdir(store.parent))
    if gets_through(convert, (store, out, job), number, Renames.ALL):
        shutil.rmtree(out)
        return None
    phase = phase_of(out)
    assert tree(store) == old
    assert not out.exists() or tree(out) == expected, "a part of a store has its place"
    if out.exists() and not has_report(out):
        # Nothing was to be done any more but to remove a few names of the work directory.
        assert not list(out.with_name(WORK).glob("run-*/staged"))
        with pytest.raises(ConfigError, match="exists already"):
            convert(store, out, job)
        shutil.rmtree(out.with_name(WORK), ignore_errors=True)
        phase = ENDED
    else:
        convert(store, out, job)
    assert tree(out) == expected
    assert tree(store) == old
    assert set(os.listdir(store.parent)) == beside | {out.name}
    shutil.rmtree(out)
    return phase


@pytest.fixture
def expected(store, job):
    whole = store.with_name("whole")
    convert(store, whole, job)
    made = tree(whole)
    shutil.rmtree(whole)
    return made


@pytest.mark.parametrize(
    ("job", "each"),
    [("rescue --fill-from", 7), *(pytest.param(job, 1, marks=pytest.mark.soak) for job in PHASES)],
    indirect=["job"],
)
def test_a_conversion_that_is_killed_goes_on(store, expected, job, each) -> None:
    hit, number = Counter[str](), 1
    while (phase := kill_and_go_on(store, expected, number, job)) is not None:
        hit[phase] += 1
        number += each
    assert hit.keys() >= PHASES[job], hit
    assert hit[ENDED] < 10
