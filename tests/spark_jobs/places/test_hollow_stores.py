"""Stores in a hollow copy say what they say in their directory: databases, and what depends on times of files."""

import contextlib
import itertools
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import fsspec
import pytest

from doctoring import make_store
from golden_store import GOLDEN, unpack
from spark_jobs.places import file_systems
from spark_jobs.places.hollow_copy import HollowCopy
from spark_jobs.places.remote_tree import list_tree
from storage.doctor.examine import examine
from storage.files.hollow_files import is_undated
from storage.layout.store_config import LIGHT_OFFSETS, OFFSETS, TOPICS, StoreConfig

NUMBERS = itertools.count()
DATABASES = ("g2-rocksdb-killed", "g2-rocksdb-v2")
MOMENT = 1_767_323_045


@contextlib.contextmanager
def copied(store: Path, to: Path) -> Iterator[HollowCopy]:
    """A hollow copy of a copy of a store in a file system of this process, which has the times of its files."""
    place, memory = f"memory://hollow-stores-{next(NUMBERS)}", fsspec.filesystem("memory")
    memory.put(str(store), place, recursive=True)
    for path in (each for each in store.rglob("*") if each.is_file()):
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        memory.store[memory._strip_protocol(f"{place}/{path.relative_to(store)}")].created = written
    copy = HollowCopy(list_tree(place, ""), to)
    with copy.read_here():
        yield copy
        copy.settle()
    memory.rm(place, recursive=True)


@pytest.mark.parametrize("name", DATABASES)
def test_configuration_in_a_database_is_read(name: str, tmp_path: Path) -> None:
    root = unpack("store", tmp_path, archives=GOLDEN / "g2" / name)
    here = StoreConfig.load(root)
    with copied(root, tmp_path / "copy"):
        there = StoreConfig.load(tmp_path / "copy")
    assert here.topics
    for part in ("topics", "topics_version", "subscription_groups", "consumer_offsets", "consumer_offsets_version"):
        assert getattr(there, part) == getattr(here, part)
    assert there.problems == here.problems == []


@pytest.mark.parametrize(("newer", "offset"), [(OFFSETS, 3), (LIGHT_OFFSETS, 1)])
def test_the_offsets_count_that_were_written_last(newer: str, offset: int, tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    (root / "config" / TOPICS).write_text('{"topicConfigTable":{}}')
    for name, number in ((OFFSETS, 3), (LIGHT_OFFSETS, 1)):
        (root / "config" / name).write_text(f'{{"offsetTable":{{"T@G":{{0:{number}}}}}}}')
        os.utime(root / "config" / name, (MOMENT, MOMENT + (name == newer)))
    assert StoreConfig.load(root).consumer_offsets == {("G", "T"): {0: offset}}
    with copied(root, tmp_path / "copy"):
        there = StoreConfig.load(tmp_path / "copy")
    assert (there.consumer_offsets, there.problems) == ({("G", "T"): {0: offset}}, [])


def test_a_listing_without_times_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_systems, "TIMES", ())
    root = tmp_path / "store"
    (root / "config").mkdir(parents=True)
    (root / "config" / TOPICS).write_text('{"topicConfigTable":{}}')
    for name in (OFFSETS, LIGHT_OFFSETS):
        (root / "config" / name).write_text('{"offsetTable":{"T@G":{0:1}}}')
    copy = tmp_path / "copy"
    with copied(root, copy):
        (problem,) = StoreConfig.load(copy).problems
        assert is_undated(copy / "config" / OFFSETS)
    assert problem.startswith(f"{copy}/config/{OFFSETS} and {LIGHT_OFFSETS} have the same, and it is not known which")
    assert not is_undated(copy / "config" / OFFSETS)


@pytest.mark.parametrize("has_times", [True, False])
def test_what_a_rebuild_has_just_left_is_known_by_times(
    has_times: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_times:
        monkeypatch.setattr(file_systems, "TIMES", ())
    root = tmp_path / "store"
    writer, _ = make_store(root, 400)
    writer.close()
    with (root / "consumequeue" / "T" / "1" / f"{1000:020d}").open("r+b") as file:
        file.truncate(980)
    (root / "consumequeue.bak-20260102030405" / "T").mkdir(parents=True)
    (root / "consumequeue.bak-20260102030405" / "T" / "file").touch()
    for path in root.rglob("*"):
        os.utime(path, (MOMENT, MOMENT))
    with copied(root, tmp_path / "copy"):
        there = {each.remedy for each in examine(tmp_path / "copy").findings if each.check == "queues"}
    here = {each.remedy for each in examine(root).findings if each.check == "queues"}
    assert here
    assert all("was run at" in each for each in here)
    if has_times:
        assert {each.replace(str(tmp_path / "copy"), str(root)) for each in there} == here
    else:
        assert there == {f"rocketlens rebuild queues {tmp_path / 'copy'}"}
