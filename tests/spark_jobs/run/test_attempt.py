"""Two attempts of one task at the same time leave what one would: each kind of task of each job, byte for byte."""

import contextlib
import errno
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from loop_engine import LoopEngine
from overlapping import WHEN, Overlapping, overlapping_attempts
from queue_runs import files_under
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_compact, run_rebuild
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.doctor.deep_check import run_deep_check
from spark_jobs.doctor.deep_request import DeepRequest
from spark_jobs.export.export import run_export
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.publish._stage import stage_kept
from spark_jobs.run.attempt import run_attempt
from spark_jobs.run.progress import Silence
from spark_jobs.run.work_directory import WorkDirectory
from storage.files.attempt_names import attempt_name
from store_writer import START_TIMESTAMP, StoreWriter

Outcome = dict[str, Any]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some segments, index files and queues, and a clock that steps back."""
    writer = StoreWriter(
        tmp_path_factory.mktemp("twice") / "store", segment_size=4096, index_slots=97, index_entries=150
    )
    for number in range(60):
        stamp = START_TIMESTAMP + 700 * (number % 35)
        writer.append(
            "TopicTest", b"x" * 100, keys=f"k{number} hot", tags=f"T{number % 3}", queue_id=number % 3,
            store_timestamp=stamp,
        )  # fmt: skip
    writer.close()
    return writer.root


def rebuild(store: Path, out: Path) -> Outcome:
    request = RebuildRequest(store=str(store), out=str(out), index=True, queues=True, slots=97, entries=150, zone="UTC")
    report = run_rebuild(request, Silence())
    return {"messages": report.messages, "entries": report.entries, "units": report.units}


def compact(store: Path, out: Path) -> Outcome:
    report = run_compact(CompactRequest(store=str(store), out=str(out), zone="UTC"), Silence())
    return {"entries": report.entries, **msgspec.to_builtins(report.details.index)}


def verify(store: Path, out: Path) -> Outcome:
    out.mkdir(exist_ok=True)
    report = run_deep_check(DeepRequest(store=str(store), work=str(out)), Silence())
    details: Outcome = msgspec.to_builtins(report.details)
    return details


def export(format_: str) -> Callable[[Path, Path], Outcome]:
    def job(store: Path, out: Path) -> Outcome:
        run_export(ExportRequest(store=str(store), out=str(out), format=format_), Silence())
        manifest: Outcome = json.loads((out / "_manifest.json").read_bytes())
        for part in manifest["parts"]:
            data = (out / part["name"]).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (part["bytes"], part["sha256"])
        assert sorted(os.listdir(out)) == sorted(["_manifest.json", *(part["name"] for part in manifest["parts"])])
        return manifest

    return job


JOBS = {
    "rebuild": (rebuild, {"scan", "build-index", "build-queues"}),
    "compact": (compact, {"split", "merge", "order", "build-index"}),
    "verify": (verify, {"scan", "check-index", "check-queues"}),
    "export parquet": (export("parquet"), {"export"}),
}
"""What runs a job, and the kinds of its tasks that write."""


@contextlib.contextmanager
def tasks_run_by(engine: Any) -> Iterator[None]:
    """Jobs run on this engine."""
    with mock.patch("spark_jobs.run.local_engine.LocalEngine", return_value=engine):
        yield


@pytest.mark.parametrize(
    ("name", "when"),
    [
        pytest.param(name, when, marks=[] if number % len(WHEN) == WHEN.index(when) else pytest.mark.soak)
        for number, name in enumerate(JOBS)
        for when in WHEN
    ],
)
def test_two_attempts_of_each_task_at_a_time_leave_what_one_leaves(
    store: Path, tmp_path: Path, name: str, when: str
) -> None:
    job, kinds = JOBS[name]
    with tasks_run_by(LoopEngine()):
        expected = job(store, tmp_path / "once")
    with overlapping_attempts(when) as context, tasks_run_by(context):
        outcome = job(store, tmp_path / "twice")
    assert kinds_of(context) == kinds
    assert outcome == {**expected, **({"store": str(store)} if "store" in expected else {})}
    assert files_under(tmp_path / "twice") == files_under(tmp_path / "once")
    assert sorted(os.listdir(tmp_path / "twice")) == sorted(os.listdir(tmp_path / "once"))


def kinds_of(context: Overlapping) -> set[str]:
    return {re.sub("(-[0-9a-f]+)+$", "", name) for name in context.stopped}


@pytest.mark.parametrize("name", ["rebuild", "compact", "export parquet"])
def test_a_job_that_is_stopped_while_files_come_to_their_places_goes_on(store: Path, tmp_path: Path, name: str) -> None:
    """Stopped before each of the driver's renames, one run after the other; no task has to be done again."""
    job, _ = JOBS[name]
    with tasks_run_by(LoopEngine()):
        expected = job(store, tmp_path / "once")
        stops = 0
        while True:
            with stopped_at_rename(stops) as was_stopped, written_tasks() as names:
                with contextlib.suppress(KeyboardInterrupt):
                    outcome = job(store, tmp_path / "stopped")
                assert stops < 100
            assert bool(names) == (stops == 0)
            if not was_stopped:
                break
            stops += 1
    assert stops >= 1
    assert outcome == expected
    assert files_under(tmp_path / "stopped") == files_under(tmp_path / "once")
    assert sorted(os.listdir(tmp_path / "stopped")) == sorted(os.listdir(tmp_path / "once"))


@contextlib.contextmanager
def stopped_at_rename(number: int) -> Iterator[list[int]]:
    """Stop a job, as a kill would, before it brings one file more to its place than it did before."""
    moves, stopped = 0, []

    def guard(rename: Callable[..., None]) -> Callable[..., None]:
        def guarded(source: Path, target: Path) -> None:
            nonlocal moves
            if "/partial/" in str(source) and os.path.exists(source):
                moves += 1
                if moves > 1 or number == 0:
                    stopped.append(number)
                    raise KeyboardInterrupt
            rename(source, target)

        return guarded

    with mock.patch.object(os, "rename", guard(os.rename)), mock.patch.object(os, "replace", guard(os.replace)):
        yield stopped


@contextlib.contextmanager
def written_tasks() -> Iterator[list[str]]:
    """The tasks whose attempts came to their ends."""
    finish, names = WorkDirectory.finish_first, list[str]()

    def finish_first(work: WorkDirectory, task: str, record: Outcome) -> Outcome:
        names.append(task)
        return finish(work, task, record)

    with mock.patch.object(WorkDirectory, "finish_first", finish_first):
        yield names


def written(text: str) -> Callable[[Any, Any], Outcome]:
    def make(attempt: Any, report: Any) -> Outcome:
        attempt.blocks("entries").write_text(text)
        attempt.partial.mkdir()
        (attempt.partial / "part").write_text(text)
        report(len(text), 1)
        return {"text": text}

    return make


@pytest.fixture
def work(tmp_path: Path) -> Iterator[WorkDirectory]:
    opened = WorkDirectory.open(tmp_path / "work", {"job": 1})
    with contextlib.closing(opened):
        yield opened


def left(work: WorkDirectory) -> list[str]:
    """What attempts left."""
    return sorted(
        str(path.relative_to(work.root))
        for name in ("blocks", "partial", "progress", "done")
        for path in (work.root / name).rglob("*")
        if path.is_file()
    )


def of(attempt: str, task: str = "scan-1") -> list[str]:
    names = f"blocks/{attempt}.entries", f"done/{task}.msgpack", f"partial/{attempt}/part", f"progress/{attempt}"
    return sorted(names)


def test_the_first_attempt_at_its_end_counts_and_the_other_returns_its_record(work: WorkDirectory) -> None:
    records: list[Outcome] = []

    def overtaken(attempt: Any, report: Any) -> Outcome:
        records.append(run_attempt(str(work.root), "scan-1", written("second")))
        return written("first")(attempt, report)

    records.append(run_attempt(str(work.root), "scan-1", overtaken))
    assert records[0] == records[1] == work.done("scan-1")
    assert (records[0]["text"], records[0]["files"]) == ("second", {"entries": 6})
    assert left(work) == of(records[0]["attempt"])
    assert list(work.progress("scan")) == [(6, 1)]


def test_an_attempt_that_fails_leaves_nothing(work: WorkDirectory) -> None:
    def fail(attempt: Any, report: Any) -> Outcome:
        written("half")(attempt, report)
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        run_attempt(str(work.root), "scan-1", fail)
    assert left(work) == []


def test_a_job_that_goes_on_keeps_finished_attempts_and_removes_the_others(tmp_path: Path, work: WorkDirectory) -> None:
    record = run_attempt(str(work.root), "scan-1", written("whole"))
    killed = attempt_name("scan-2")
    (work.blocks / f"{killed}.entries").write_text("ha")
    (work.partial / killed).mkdir()
    (work.partial / killed / "part").write_text("ha")
    (work.root / "done" / attempt_name("scan-2.msgpack")).write_text("ha")
    work.close()
    again = WorkDirectory.open(tmp_path / "work", {"job": 1})
    with contextlib.closing(again):
        assert left(again) == of(record["attempt"])
        assert run_attempt(str(again.root), "scan-1", written("anew")) == record


def test_what_is_gone_of_a_finished_task_is_made_anew(work: WorkDirectory) -> None:
    first = run_attempt(str(work.root), "scan-1", written("one"))
    (work.blocks / f"{first['attempt']}.entries").write_text("on")
    second = run_attempt(str(work.root), "scan-1", written("two"))
    assert second["text"] == "two"
    third = run_attempt(str(work.root), "scan-1", written("three"), lambda *_: False)
    work.keep_attempts("scan", {third["attempt"]})
    assert left(work) == of(third["attempt"])


@pytest.mark.parametrize("error", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_links_keeps_whole_records(
    work: WorkDirectory, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise OSError(error, os.strerror(error), str(source), None, str(target))

    monkeypatch.setattr(os, "link", refuse)
    record = run_attempt(str(work.root), "scan-1", written("whole"))
    assert work.done("scan-1") == record
    assert left(work) == of(record["attempt"])


def test_a_copy_beside_another_that_is_half_done_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that stage the same file: the one that comes later neither writes into the other's nor takes it away."""
    source, staged, partial = (tmp_path / name for name in ("source", "staged", "partial"))
    for directory in (source, staged, partial):
        directory.mkdir()
    (source / "a").write_bytes(b"x" * 100_000)
    sync, others = os.fsync, iter([1])

    def sync_with_another_in_between(descriptor: int) -> None:
        if next(others, None):
            stage_kept(["a"], source, staged, partial, link=False)
            assert (staged / "a").read_bytes() == (source / "a").read_bytes()
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", sync_with_another_in_between)
    stage_kept(["a"], source, staged, partial, link=False)
    assert files_under(staged) == files_under(source)
    assert files_under(partial) == {}
