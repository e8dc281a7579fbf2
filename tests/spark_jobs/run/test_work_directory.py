"""A work directory goes on with its own job, starts over for any other, and never touches what is not its own."""

import multiprocessing
import os
from pathlib import Path

import pytest

from protocol.errors import ConfigError
from spark_jobs.run.work_directory import WorkDirectory

JOB = {"command": "rebuild", "files": [("a", 1)]}


def left_by_a_run(base: Path, identity: dict[str, object] | None = None) -> WorkDirectory:
    """What a run that was killed leaves: its lock has gone with its process."""
    work = WorkDirectory.open(base, identity or JOB)
    work.finish("scan-1", {"records": 7, "queues": [[b"T", 1]]})
    work.enter("build")
    work.close()
    return work


def test_the_same_job_goes_on_with_what_is_finished(tmp_path: Path) -> None:
    left_by_a_run(tmp_path)
    work = WorkDirectory.open(tmp_path, JOB)
    assert work.done("scan-1") == {"records": 7, "queues": [[b"T", 1]]}
    manifest = work.manifest()
    assert manifest is not None
    assert manifest.phase == "build"


@pytest.mark.parametrize("change", ["identity", "fresh", "manifest"])
def test_another_job_starts_over(tmp_path: Path, change: str) -> None:
    before = left_by_a_run(tmp_path)
    if change == "manifest":
        (before.root / "manifest.msgpack").write_bytes(b"\xc1")
    work = WorkDirectory.open(tmp_path, {**JOB, "option": 1} if change == "identity" else JOB, fresh=change == "fresh")
    assert work.done("scan-1") is None
    assert not before.root.exists()


def test_a_task_of_a_killed_run_finds_its_directory_no_more(tmp_path: Path) -> None:
    before = left_by_a_run(tmp_path)
    work = WorkDirectory.open(tmp_path, JOB)
    with pytest.raises(FileNotFoundError):
        before.finish("scan-2", {})
    with pytest.raises(FileNotFoundError):
        before.report("scan-2")
    work.remove()
    assert not before.root.exists()


def test_two_jobs_in_one_directory_are_refused(tmp_path: Path) -> None:
    work = WorkDirectory.open(tmp_path, JOB)
    refused = multiprocessing.get_context("spawn").Pool(1)
    with refused:
        text = refused.apply(_open, (str(tmp_path),))
    assert text == f"another job is running in {tmp_path}: wait for its end, or choose another directory with --work"
    work.remove()
    assert not tmp_path.exists()


def _open(base: str) -> str:
    try:
        WorkDirectory.open(Path(base), JOB)
    except ConfigError as error:
        return str(error)
    return "opened"


def test_a_directory_with_anything_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match=r"thesis\.tex"):
        WorkDirectory.open(tmp_path, JOB, fresh=True)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_record_that_is_cut_counts_as_not_finished(tmp_path: Path) -> None:
    work = WorkDirectory.open(tmp_path, JOB)
    work.finish("scan-1", {"records": 7})
    path = work.root / "done" / "scan-1.msgpack"
    path.write_bytes(path.read_bytes()[:-1])
    assert work.done("scan-1") is None


def test_progress_adds_up_what_the_tasks_of_a_phase_report(tmp_path: Path) -> None:
    work = WorkDirectory.open(tmp_path, JOB)
    for number, (name, done) in enumerate([("scan-1", 10), ("scan-2", 20), ("build-1", 40)]):
        progress = work.report(name)
        progress.update(done, number)
        progress.close()
    assert sorted(work.progress("scan")) == [(10, 0), (20, 1)]
