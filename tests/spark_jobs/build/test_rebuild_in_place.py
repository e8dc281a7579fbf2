"""A rebuild that replaces the store's own index: under the lock, with a backup, told in the checkpoint, resumable."""

import os
import sys
from collections.abc import Iterator
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any

import pytest

from golden_store import unpack
from loop_engine import LoopEngine
from oracles import BLANK_MAGIC
from protocol.errors import ConfigError, StoreError
from protocol.question import Question
from queue_runs import files_under
from spark_jobs.build.rebuild_request import RebuildRequest
from spark_jobs.commands import run
from spark_jobs.commands.job_plan import JobPlan, make_plan
from spark_jobs.commands.run import plan_job, run_compact, run_rebuild
from spark_jobs.compact.compact_request import CompactRequest
from spark_jobs.places.place_names import WORK
from spark_jobs.run.progress import Silence
from spark_jobs.run.report import Report
from storage.layout.checkpoint import Checkpoint
from storage.store.message_store import MessageStore
from store_writer import StoreWriter, Written


def rebuild(store: Path, **options: Any) -> Report:
    return run_rebuild(RebuildRequest(store=str(store), index=True, **options), Silence())


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """The recorded crashed store after what a broker does to it first: without its last index file."""
    store = unpack("store-crashed", tmp_path)
    sorted((store / "index").iterdir())[-1].unlink()
    return store


def test_the_missing_file_comes_back_and_nothing_else_changes_but_the_checkpoint(crashed: Path) -> None:
    before, files = files_under(crashed), {path.name: path.stat().st_ino for path in (crashed / "index").iterdir()}
    old = Checkpoint.read(crashed / "checkpoint")
    report = rebuild(crashed)
    after = files_under(crashed)
    assert report.details.index.kept == sorted(files)
    found = {path.name: path.stat().st_ino for path in (crashed / "index").iterdir()}
    assert {name: found[name] for name in files} == files, "they are the same files"
    whole = files_under(unpack("store-crashed", crashed.parent / "whole") / "index")
    assert [data[40:] for data in files_under(crashed / "index").values()] == [data[40:] for data in whole.values()]
    (index_backup, checkpoint_backup) = sorted(report.details.backups, key=lambda path: "checkpoint" in path)
    assert files_under(Path(index_backup)) == {
        Path(name).name: data for name, data in before.items() if name.startswith("index/")
    }
    assert Path(checkpoint_backup).read_bytes() == before["checkpoint"]
    untouched = {name for name in before if not name.startswith("index/") and name not in ("checkpoint", "lock")}
    assert {name: after[name] for name in untouched} == {name: before[name] for name in untouched}
    assert not (crashed / WORK).exists()
    new = Checkpoint.read(crashed / "checkpoint")
    assert old is not None
    assert new is not None
    newest = max((crashed / "index").iterdir()).read_bytes()
    assert new.index_msg_timestamp == int.from_bytes(newest[8:16], "big") > old.index_msg_timestamp
    fields = [name for name in Checkpoint.__dataclass_fields__ if name != "index_msg_timestamp"]
    assert [getattr(new, name) for name in fields] == [getattr(old, name) for name in fields]
    rebuild(crashed, keep_checkpoint=True, drop_backup=True)
    assert (crashed / "checkpoint").read_bytes() == after["checkpoint"]


def test_places_that_cannot_be_are_refused(crashed: Path, tmp_path: Path) -> None:
    before = files_under(crashed)
    for inside in ("", "index", "new/place"):
        with pytest.raises(ConfigError, match="is in the store"):
            rebuild(crashed, out=str(crashed / inside))
    assert files_under(crashed) == before
    (tmp_path / "out" / "index").mkdir(parents=True)
    with pytest.raises(ConfigError, match="index exists already"):
        rebuild(crashed, out=str(tmp_path / "out"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="empty"):
        rebuild(tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) in ([], [tmp_path / "empty" / "lock"])


def test_two_runs_within_a_second_leave_a_backup_each(crashed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stopped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Stopped":
            return cls(2024, 2, 29, 23, 59, 59, tzinfo=tz)

    monkeypatch.setattr("spark_jobs.publish.deliver.datetime", Stopped)
    backups = [backup for _ in range(2) for backup in rebuild(crashed, keep_checkpoint=True).details.backups]
    assert [Path(path).name for path in backups] == ["index.bak-20240229235959", "index.bak-20240301000000"]
    assert all(map(os.path.isdir, backups))


def test_in_place_damage_where_a_recovery_looks_ends_the_log(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=4096, index_slots=7, index_entries=50)
    for number in range(20):
        writer.append("TopicTest", b"body", keys=f"k{number}")
    writer.close()
    victim = writer.written[12]
    writer.overwrite(victim.physical_offset + 4, b"\0\0\0\0")
    before = files_under(tmp_path / "store")
    for queues in (True, False):
        with pytest.raises(StoreError) as refused:
            rebuild(tmp_path / "store", slots=7, entries=50, from_offset=0, queues=queues)
        assert str(refused.value).count("to 19 sound records of ") == 1 + queues
        assert str(refused.value).count("those that were built to 12") == 1 + queues
        assert "--allow-fewer" in str(refused.value)
    after = files_under(tmp_path / "store")
    assert {name: after[name] for name in before} == before
    inside = rebuild(tmp_path / "store", slots=7, entries=50, from_offset=0, allow_fewer=True)
    assert (inside.exit_code, inside.resumed) == (4, True)
    assert inside.details.log_end == victim.physical_offset
    assert inside.entries == 12
    beside = rebuild(tmp_path / "store", slots=7, entries=50, from_offset=0, out=str(tmp_path / "out"))
    assert beside.exit_code == 4
    assert beside.entries == 19
    assert [damage.physical_offset for damage in beside.damages] == [victim.physical_offset]
    assert beside.damages[0].path == str(tmp_path / "store" / "commitlog" / "00000000000000000000")


def test_a_compaction_from_the_log_replaces_no_index_that_leads_to_more(tmp_path: Path) -> None:
    """It does with --allow-fewer; a compaction from the index files alone loses nothing of the log."""
    writer = StoreWriter(tmp_path / "store", segment_size=4096, index_slots=7, index_entries=50)
    for number in range(20):
        writer.append("TopicTest", b"body", keys=f"k{number}")
    writer.close()
    writer.overwrite(writer.written[12].physical_offset + 4, b"\0\0\0\0")
    before = files_under(tmp_path / "store")

    def compact(**options: Any) -> Report:
        request = CompactRequest(store=str(tmp_path / "store"), slots=7, entries=50, from_log=True, **options)
        return run_compact(request, Silence())

    with pytest.raises(StoreError) as refused:
        compact()
    assert "index files that it has lead to 19 sound records" in str(refused.value)
    assert "those that were built to 12" in str(refused.value)
    assert "--allow-fewer" in str(refused.value)
    after = files_under(tmp_path / "store")
    assert {name: after[name] for name in before} == before
    report = compact(allow_fewer=True)
    assert (report.exit_code, report.entries) == (4, 12)
    assert len(MessageStore.open(tmp_path / "store").query(Question("TopicTest", "k3")).physical_offsets) == 1


def store_with_false_blank(root: Path) -> tuple[StoreWriter, Written]:
    """In the first of several segments one record begins as a BLANK of its own size."""
    writer = StoreWriter(root, segment_size=4096, index_slots=7, index_entries=500)
    for number in range(80):
        writer.append("TopicTest", b"body" * 10, keys=f"k{number}", queue_id=number % 2)
    writer.close()
    victim = writer.written[6]
    assert len(writer.log.segments) > 2
    writer.overwrite(victim.physical_offset + 4, BLANK_MAGIC.to_bytes(4, "big"))
    return writer, victim


def test_a_false_blank_costs_one_message_and_is_told_of(tmp_path: Path) -> None:
    store = tmp_path / "store"
    writer, victim = store_with_false_blank(store)
    report = rebuild(store, queues=True, slots=7, entries=500, from_offset=0)
    assert (report.exit_code, report.messages, report.entries, report.units) == (4, 79, 79, 79)
    (damage,) = report.damages
    assert (damage.physical_offset, damage.length) == (victim.physical_offset, victim.size)
    assert "it is a BLANK" in damage.found
    opened = MessageStore.open(store)
    kept = [each for each in writer.written if each is not victim]
    found = [opened.query(Question("TopicTest", f"k{number}")).physical_offsets for number in range(80)]
    assert [offset for offsets in found for offset in offsets] == [each.physical_offset for each in kept]


# --- who does the work ------------------------------------------------------------------------------------------------


@pytest.fixture
def opened_here() -> Iterator[list[str]]:
    """Paths that this process, the driver, opens."""
    opened: list[str] = []
    is_on = True

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if is_on and event == "open":
            opened.append(os.fspath(arguments[0]) if isinstance(arguments[0], (str, os.PathLike)) else "")

    sys.addaudithook(hook)
    yield opened
    is_on = False


def test_the_driver_opens_segments_for_its_plan_alone(
    tmp_path: Path, opened_here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(*arguments: Any) -> JobPlan:
        made = make_plan(*arguments)
        opened_here.clear()
        return made

    def run_elsewhere(engine: LoopEngine, function: Any, task: Any) -> Any:
        before = len(opened_here)
        answer = function(task)
        del opened_here[before:]
        return answer

    monkeypatch.setattr(run, "make_plan", plan)
    monkeypatch.setattr(LoopEngine, "run", run_elsewhere)
    rebuild(unpack("store", tmp_path), out=str(tmp_path / "out"), from_offset=0)
    assert opened_here
    assert [path for path in opened_here if "/commitlog/" in path] == []


def test_a_plan_opens_few_segments_of_many(tmp_path: Path, opened_here: list[str]) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=1 << 12)
    for number in range(3000):
        writer.append("T", b"body", keys=f"k{number}")
    writer.close()
    request = RebuildRequest(store=str(writer.root), master="local[1]", index=True, queues=True)
    opened_here.clear()
    assert plan_job("rebuild", request).segments == len(list((writer.root / "commitlog").iterdir())) > 60
    opened = {path for path in opened_here if "/commitlog/" in path}
    assert 1 <= len(opened) <= 14  # the samples, the open ones, and those that the newest index files lead to


# --- going on after a kill --------------------------------------------------------------------------------------------


def test_a_changed_source_or_option_starts_over(crashed: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    for change in ("option", "source"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("spark_jobs.commands.run.deliver", _killed)
            with pytest.raises(KeyboardInterrupt):
                rebuild(crashed, work=str(work), out=str(tmp_path / "out"))
        if change == "source":
            segment = sorted((crashed / "commitlog").iterdir())[0]
            os.utime(segment)
        options: dict[str, Any] = {"from_offset": 0} if change == "option" else {}
        report = rebuild(crashed, work=str(work), out=str(tmp_path / change), **options)
        assert not report.resumed


def _killed(*_: object) -> None:
    raise KeyboardInterrupt
