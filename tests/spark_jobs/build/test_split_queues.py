"""A queue built in parts has the very files that one task makes; a queue that is not in order is left to one task."""

import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job_runs import Rebuilt
from spark_jobs.build import build_queues as job
from spark_jobs.build import split_queues
from store_writer import StoreWriter

SEGMENT = 4096
FILE = 400


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_queues, "LEAST_UNITS", 20)
    monkeypatch.setattr(split_queues, "SEGMENTS_AT_ONCE", 2)


def hot(root, count=300, oddity=None):
    """A store with one queue that has nearly all messages; `oddity` is called before each of its messages."""
    with StoreWriter(root, segment_size=SEGMENT, queue_file_size=FILE) as writer:
        for number in range(count):
            if oddity is not None:
                oddity(writer, number)
            writer.append("Hot", b"body", tags=f"t{number}")
            if number % 10 == 0:
                writer.append("Cold", queue_id=number % 3)
    return writer


def in_one(monkeypatch, store, work, **options):
    with monkeypatch.context() as patched:
        patched.setattr(split_queues, "LEAST_UNITS", 1 << 30)
        return Rebuilt(store, work, **options)


def parts(rebuilt: Rebuilt) -> int:
    return sum(task.part is not None for task in rebuilt.tasks)


def again(writer: StoreWriter, number: int) -> None:
    """The topic is made again: its numbers begin anew."""
    if number == 120:
        writer.next_queue_offset.clear()


def expired(writer: StoreWriter, number: int) -> None:
    """The first messages went with segments that are gone: numbers begin in the middle of a file."""
    if number == 0:
        writer.next_queue_offset["Hot", 0] = 47


def claim(number, offset):
    """Before a message stands one that claims a queue offset, even if another one has it."""

    def oddity(writer: StoreWriter, at: int) -> None:
        if at == number:
            expected = writer.next_queue_offset["Hot", 0]
            writer.append("Hot", b"odd", queue=False, queue_offset=offset)
            writer.next_queue_offset["Hot", 0] = expected

    return oddity


@pytest.mark.parametrize(("oddity", "is_split"), [(expired, True), (again, False), (claim(100, 1 << 40), False)])
def test_oddities_leave_a_queue_to_one_task(oddity, is_split, tmp_path, monkeypatch) -> None:
    writer = hot(tmp_path / "store", oddity=oddity)
    split = Rebuilt(writer.root, tmp_path / "split")
    whole = in_one(monkeypatch, writer.root, tmp_path / "whole")
    assert bool(parts(split)) == is_split
    assert split.files == whole.files
    assert (split.details, split.notes) == (whole.details, whole.notes)


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


def test_a_finished_part_is_built_again_only_where_a_file_of_its_own_is_gone(tmp_path, monkeypatch) -> None:
    writer = hot(tmp_path / "store")
    first = Rebuilt(writer.root, tmp_path / "work")
    built: list[str] = []
    run = job.BundleBuild.run
    monkeypatch.setattr(job.BundleBuild, "run", lambda self: built.append(self._task.name) or run(self))
    assert Rebuilt(writer.root, tmp_path / "work").files == first.files
    assert built == []
    (first.work.staged / "consumequeue" / "Hot" / "0" / f"{FILE * 13:020d}").unlink()
    assert Rebuilt(writer.root, tmp_path / "work").files == first.files
    assert [name.rpartition("-")[2] for name in built] == ["00002"]
    shutil.rmtree(first.work.staged / "consumequeue" / "Hot" / "0")
    assert Rebuilt(writer.root, tmp_path / "work").files == first.files
