"""A queue built in parts has the very files that one task makes; a queue that is not in order is left to one task."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job_runs import Rebuilt
from queue_runs import files_under
from spark_jobs.build import build_queues as job
from spark_jobs.build import split_queues
from spark_jobs.run.report import Damage
from store_writer import StoreWriter

SEGMENT = 4096
FILE = 400
"""Bytes of a queue's file: 20 units."""


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_queues, "LEAST_UNITS", 20)
    monkeypatch.setattr(split_queues, "SEGMENTS_AT_ONCE", 2)


def hot(root: Path, count: int = 300, oddity: Callable[[StoreWriter, int], None] | None = None) -> StoreWriter:
    """A store with one queue that has nearly all messages; `oddity` is called before each of its messages."""
    writer = StoreWriter(root, segment_size=SEGMENT, queue_file_size=FILE)
    for number in range(count):
        if oddity is not None:
            oddity(writer, number)
        writer.append("Hot", b"body", tags=f"t{number}")
        if number % 10 == 0:
            writer.append("Cold", queue_id=number % 3)
    writer.close()
    return writer


def in_one(monkeypatch: pytest.MonkeyPatch, store: Path, work: Path, **options: Any) -> Rebuilt:
    """The same rebuild, nothing split."""
    with monkeypatch.context() as patched:
        patched.setattr(split_queues, "LEAST_UNITS", 1 << 30)
        return Rebuilt(store, work, **options)


def parts(rebuilt: Rebuilt) -> int:
    return sum(task.part is not None for task in rebuilt.tasks)


def test_the_files_are_those_of_one_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = hot(tmp_path / "store")
    split = Rebuilt(writer.root, tmp_path / "split")
    whole = in_one(monkeypatch, writer.root, tmp_path / "whole")
    assert (parts(split), parts(whole)) == (3, 0)
    assert split.files == whole.files == {f"consumequeue/{k}": v for k, v in files_under(
        writer.root / "consumequeue").items()}  # fmt: skip
    assert (split.details, split.notes) == (whole.details, whole.notes)
    # No part reads the segments that have nothing of it.
    assert min(task.units.stop - task.units.start for task in split.tasks if task.part) < len(split.segments)


def again(writer: StoreWriter, number: int) -> None:
    """The topic is made again: its numbers begin anew."""
    if number == 120:
        writer.next_queue_offset.clear()


def expired(writer: StoreWriter, number: int) -> None:
    """The first messages went with segments that are gone: numbers begin in the middle of a file."""
    if number == 0:
        writer.next_queue_offset["Hot", 0] = 47


def claim(number: int, offset: int) -> Callable[[StoreWriter, int], None]:
    """Before a message stands one that claims a queue offset, even if another one has it."""

    def oddity(writer: StoreWriter, at: int) -> None:
        if at == number:
            expected = writer.next_queue_offset["Hot", 0]
            writer.append("Hot", b"odd", queue=False, queue_offset=offset)
            writer.next_queue_offset["Hot", 0] = expected

    return oddity


@pytest.mark.parametrize(
    ("oddity", "is_split"),
    [
        (expired, True),
        (again, False),
        (claim(100, 7), False),
        (claim(100, 1 << 40), False),
        (claim(0, 3), False),
        (claim(299, 12), False),
    ],
)
def test_oddities_leave_a_queue_to_one_task(
    oddity: Callable[[StoreWriter, int], None], is_split: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = hot(tmp_path / "store", oddity=oddity)
    split = Rebuilt(writer.root, tmp_path / "split")
    whole = in_one(monkeypatch, writer.root, tmp_path / "whole")
    assert bool(parts(split)) == is_split
    assert split.files == whole.files
    assert (split.details, split.notes) == (whole.details, whole.notes)


@pytest.mark.parametrize(("first", "is_split"), [(100, False), (295, True)])
def test_lost_messages(first: int, is_split: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle they leave a gap; at the end the queue that is replaced says how far its last part goes."""
    writer = hot(tmp_path / "store")
    mine = [written for written in writer.written if written.topic == "Hot"][first : first + 5]
    for written in mine:
        writer.overwrite(written.physical_offset + 4, b"\xff" * 4)
    stop = mine[-1].physical_offset + mine[-1].size
    lost = Damage("path", mine[0].physical_offset, stop - mine[0].physical_offset, "a record", "none")
    end = writer.written[-1].physical_offset + writer.written[-1].size
    split = Rebuilt(writer.root, tmp_path / "split", damages=(lost,), end=end)
    whole = in_one(monkeypatch, writer.root, tmp_path / "whole", damages=(lost,), end=end)
    assert bool(parts(split)) == is_split
    assert (split.files, split.details) == (whole.files, whole.details)
    assert split.details.repeated == 5


@settings(max_examples=settings.default.max_examples // 5)
@given(cut=st.integers(1, 329), bundles=st.integers(1, 6))
def test_a_log_cut_anywhere_gives_the_same(tmp_path_factory: pytest.TempPathFactory, cut: int, bundles: int) -> None:
    root = tmp_path_factory.mktemp("cut")
    writer = hot(root / "store")
    end = writer.written[cut].physical_offset
    with pytest.MonkeyPatch.context() as patched:
        split = Rebuilt(writer.root, root / "split", end=end, bundles=bundles)
        whole = in_one(patched, writer.root, root / "whole", end=end, bundles=bundles)
    assert (split.files, split.details) == (whole.files, whole.details)


def test_queues_of_batches_and_with_extensions_are_not_split(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=SEGMENT, queue_file_size=FILE, ext_bit_map=b"")
    for _ in range(200):
        writer.append("Hot")
        writer.append_inner_batch("B", [(b"a", {}), (b"b", {})])
    writer.close()
    assert parts(Rebuilt(writer.root, tmp_path / "work")) == 0


def test_a_finished_part_is_built_again_only_where_a_file_of_its_own_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = hot(tmp_path / "store")
    first = Rebuilt(writer.root, tmp_path / "work")
    built: list[str] = []
    run: Callable[[job.BundleBuild], dict[str, Any]] = job.BundleBuild.run
    monkeypatch.setattr(job.BundleBuild, "run", lambda self: built.append(self._task.name) or run(self))
    assert Rebuilt(writer.root, tmp_path / "work").files == first.files
    assert built == []
    (first.work.staged / "consumequeue" / "Hot" / "0" / f"{FILE * 13:020d}").unlink()
    assert Rebuilt(writer.root, tmp_path / "work").files == first.files
    assert [name.rpartition("-")[2] for name in built] == ["00002"]
    shutil.rmtree(first.work.staged / "consumequeue" / "Hot" / "0")
    assert Rebuilt(writer.root, tmp_path / "work").files == first.files
