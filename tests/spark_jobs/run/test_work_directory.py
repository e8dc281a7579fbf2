"""A work directory goes on with its own job; two attempts of a task at a time leave what one would, byte for byte."""

import contextlib
import functools
import hashlib
import json
import os
import re
import threading
from unittest import mock

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loop_engine import LoopEngine
from protocol.errors import ConfigError, StoreError
from queue_runs import files_under
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands.run import run_compact, run_rebuild
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.doctor import _check_tasks
from spark_jobs.doctor.deep_check import run_deep_check
from spark_jobs.doctor.deep_request import DeepRequest
from spark_jobs.export.export import run_export
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.places.hashed_file import HashedFile
from spark_jobs.run.blocks import BlockWriter, read_block
from spark_jobs.run.progress import Silence
from spark_jobs.run.work_directory import WorkDirectory
from storage.build.queue_file_writer import QueueFileWriter
from storage.files.direct_writer import GrowingFile
from store_writer import START_TIMESTAMP, StoreWriter

WHEN = ("at once", "at the next phase", "after the job")
WRITES = ((BlockWriter, "_write_all", 2), (HashedFile, "write", 2), (_check_tasks, "_write", 1))
WRITES += ((GrowingFile, "finish", 1), (QueueFileWriter, "_write", 1))
"""What tasks write with, and at which call the first attempt stops."""

END_SECONDS = 60


class FirstAttempt(threading.Thread):
    def __init__(self, function, task) -> None:
        super().__init__(daemon=True)
        self._function, self._task = function, task
        self._calls = 0
        self.has_stopped = False
        self.stopped_or_ended, self.may_go_on = threading.Event(), threading.Event()
        self.answer = None
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.answer = self._function(self._task)
        except Exception as error:
            self.error = error
        self.stopped_or_ended.set()

    def note_call(self, number: int) -> None:
        """Stop at the so-manieth call of what writes."""
        self._calls += 1
        if self._calls == number:
            self.has_stopped = True
            self.stopped_or_ended.set()
            assert self.may_go_on.wait(END_SECONDS)

    def go_on(self) -> None:
        self.may_go_on.set()
        self.join(END_SECONDS)
        assert not self.is_alive()


class Overlapping(LoopEngine):
    """An engine that does; `stopped` are the names of the tasks whose first attempt was overtaken."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self._when = when
        self._waiting: list[FirstAttempt] = []
        self.stopped: list[str] = []

    def run_tasks(self, name, tasks, function, /):
        if self._when == "at the next phase":
            self.let_go()
        return super().run_tasks(name, tasks, function)

    def run(self, function, task):
        first = FirstAttempt(function, task)
        first.start()
        assert first.stopped_or_ended.wait(END_SECONDS)
        answer = function(task)
        if first.has_stopped:
            self.stopped.append(task.name)
        self._waiting.append(first)
        if self._when == "at once":
            self.let_go()
            assert first.error is None
            return first.answer
        return answer

    def let_go(self) -> None:
        for first in self._waiting:
            first.go_on()
            assert first.error is None or "No such file" in str(first.error), first.error
        self._waiting.clear()


@contextlib.contextmanager
def overlapping_attempts(when):
    engine = Overlapping(when)
    with contextlib.ExitStack() as patches:
        for owner, name, number in WRITES:
            patches.enter_context(mock.patch.object(owner, name, _stopping(getattr(owner, name), number)))
        yield engine
        engine.let_go()


def _stopping(method, number):
    @functools.wraps(method)
    def stopping(*arguments, **named):
        attempt = threading.current_thread()
        if isinstance(attempt, FirstAttempt):
            attempt.note_call(number)
        return method(*arguments, **named)

    return stopping


JOB = {"command": "rebuild", "files": [("a", 1)]}


def left_by_a_run(base, identity=None):
    work = WorkDirectory.open(base, identity or JOB)
    work.finish("scan-1", {"records": 7, "queues": [[b"T", 1]]})
    work.enter("build")
    work.close()
    return work


@pytest.mark.parametrize("change", ["identity", "fresh", "manifest"])
def test_another_job_starts_over(tmp_path, change) -> None:
    before = left_by_a_run(tmp_path)
    if change == "manifest":
        (before.root / "manifest.msgpack").write_bytes(b"\xc1")
    work = WorkDirectory.open(tmp_path, {**JOB, "option": 1} if change == "identity" else JOB, fresh=change == "fresh")
    assert work.done("scan-1") is None
    assert not before.root.exists()


def test_a_task_of_a_killed_run_finds_its_directory_no_more(tmp_path) -> None:
    before = left_by_a_run(tmp_path)
    work = WorkDirectory.open(tmp_path, JOB)
    with pytest.raises(FileNotFoundError):
        before.finish("scan-2", {})
    with pytest.raises(FileNotFoundError):
        before.report("scan-2")
    work.remove()
    assert not before.root.exists()


def test_a_directory_with_anything_else_in_it_is_left_alone(tmp_path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match=r"thesis\.tex"):
        WorkDirectory.open(tmp_path, JOB, fresh=True)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_record_that_is_cut_counts_as_not_finished(tmp_path) -> None:
    work = WorkDirectory.open(tmp_path, JOB)
    work.finish("scan-1", {"records": 7})
    path = work.root / "done" / "scan-1.msgpack"
    path.write_bytes(path.read_bytes()[:-1])
    assert work.done("scan-1") is None


def read_blocks(path):
    with path.open("rb") as file:
        position, size = 0, os.fstat(file.fileno()).st_size
        while position < size:
            block, position = read_block(path, file.fileno(), position)
            yield block


@given(st.data())
def test_a_changed_byte_and_a_cut_are_noticed_and_the_file_named(tmp_path_factory, data) -> None:
    path = tmp_path_factory.mktemp("blocks") / "one.blocks"
    with BlockWriter(path, "x") as writer:
        writer.write(5, 9, {"hashes": np.arange(50, dtype=np.int32)})
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(len(content) - 200, len(content) - 1), label="position")
    flip = data.draw(st.integers(0, 255), label="flip, or 0 for a cut")
    content[position] ^= flip
    path.write_bytes(content if flip else content[:position])
    with pytest.raises(StoreError, match=r"one\.blocks"):
        list(read_blocks(path))


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    sizes = {"segment_size": 4096, "index_slots": 97, "index_entries": 150}
    with StoreWriter(tmp_path_factory.mktemp("twice") / "store", **sizes) as writer:
        for number in range(60):
            named = {"keys": f"k{number} hot", "tags": f"T{number % 3}", "queue_id": number % 3}
            writer.append("TopicTest", b"x" * 100, store_timestamp=START_TIMESTAMP + 700 * (number % 35), **named)
    return writer.root


def rebuild(store, out):
    request = RebuildRequest(store=str(store), out=str(out), index=True, queues=True, slots=97, entries=150, zone="UTC")
    report = run_rebuild(request, Silence())
    return {"messages": report.messages, "entries": report.entries, "units": report.units}


def compact(store, out):
    report = run_compact(CompactRequest(store=str(store), out=str(out), zone="UTC"), Silence())
    return {"entries": report.entries, **msgspec.to_builtins(report.details.index)}


def verify(store, out):
    out.mkdir(exist_ok=True)
    return msgspec.to_builtins(run_deep_check(DeepRequest(store=str(store), work=str(out)), Silence()).details)


def export(format_):
    def job(store, out):
        run_export(ExportRequest(store=str(store), out=str(out), format=format_), Silence())
        manifest = json.loads((out / "_manifest.json").read_bytes())
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


@contextlib.contextmanager
def tasks_run_by(engine):
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
def test_two_attempts_of_each_task_at_a_time_leave_what_one_leaves(store, tmp_path, name, when) -> None:
    job, kinds = JOBS[name]
    with tasks_run_by(LoopEngine()):
        expected = job(store, tmp_path / "once")
    with overlapping_attempts(when) as context, tasks_run_by(context):
        outcome = job(store, tmp_path / "twice")
    assert {re.sub("(-[0-9a-f]+)+$", "", name) for name in context.stopped} == kinds
    assert outcome == {**expected, **({"store": str(store)} if "store" in expected else {})}
    assert files_under(tmp_path / "twice") == files_under(tmp_path / "once")
    assert sorted(os.listdir(tmp_path / "twice")) == sorted(os.listdir(tmp_path / "once"))


@pytest.mark.parametrize("name", ["rebuild", "compact", "export parquet"])
def test_a_job_that_is_stopped_while_files_come_to_their_places_goes_on(store, tmp_path, name) -> None:
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
def stopped_at_rename(number):
    """Stop a job, as a kill would, before it brings one file more to its place than it did before."""
    moves, stopped = 0, []

    def guard(rename):
        def guarded(source, target) -> None:
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
def written_tasks():
    finish, names = WorkDirectory.finish_first, list[str]()

    def finish_first(work, task, record):
        names.append(task)
        return finish(work, task, record)

    with mock.patch.object(WorkDirectory, "finish_first", finish_first):
        yield names
