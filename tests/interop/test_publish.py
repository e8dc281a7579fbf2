"""Publishing beside the official broker: each keeps out of the other's way, and it keeps what was published."""

import os
import shutil
from pathlib import Path

import pytest

from interop.official_broker import official_broker
from protocol.errors import StoreError
from publishing import TIME
from spark_jobs.publish._new_checkpoint import latest_end_timestamp, write_checkpoint
from spark_jobs.publish._open_writers import find_writers
from spark_jobs.publish.publish import Staged, publish
from spark_jobs.publish.store_lock import StoreLock

pytestmark = pytest.mark.interop


@pytest.mark.soak  # in each run: that its lock is ours, the next test
def test_a_broker_does_not_start_while_the_store_is_locked(g1_store: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(g1_store, tmp_path / "store"))
    with StoreLock(store), pytest.raises(RuntimeError, match=r"Lock failed, ?MQ already started"):  # noqa: SIM117
        with official_broker(store, tmp_path):
            pytest.fail("it started")


def test_a_running_broker_is_refused_by_its_lock_and_by_its_files(g1_store: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(g1_store, tmp_path / "store"))
    with StoreLock(store) as lock:
        before = lock.identity
    with official_broker(store, tmp_path) as broker:
        with pytest.raises(StoreError, match=rf"lock: is locked by process {broker.process.pid} \(java\)"):
            StoreLock(store).__enter__()
        # By these it is known before it takes the lock.
        for directory in ("index", "consumequeue", "commitlog"):
            found, _ = find_writers([store / directory])
            assert [each.pid for each in found] == [broker.process.pid], directory
        broker.stop()
    with StoreLock(store) as lock:
        # What a killed publishing knows it by that a broker has run since.
        assert lock.identity != before


def published_copy(store: Path, directory: Path, *, with_checkpoint: bool) -> Path:
    """A copy of a store into which its own index files were published, under other inodes."""
    copy, staged = directory / "store", directory / "staged"
    shutil.copytree(store, copy)
    shutil.copytree(copy / "index", staged / "index")
    latest = latest_end_timestamp(staged / "index")
    assert latest is not None
    write_checkpoint(copy / "checkpoint", staged / "checkpoint", index_msg_timestamp=latest)
    things = [Staged(name, staged / name) for name in (["index", "checkpoint"] if with_checkpoint else ["index"])]
    with StoreLock(copy) as lock:
        publish(lock, things, directory / "journal", TIME)
    return copy


def index_inodes(store: Path) -> dict[str, int]:
    return {entry.name: entry.inode() for entry in os.scandir(store / "index")}


@pytest.mark.soak  # in each run: of a rebuild, test_rebuilt_store.py
def test_after_a_crash_the_broker_keeps_what_was_published_with_its_checkpoint(
    g1_crashed_store: Path, tmp_path: Path
) -> None:
    assert (g1_crashed_store / "abort").exists()
    store = published_copy(g1_crashed_store, tmp_path, with_checkpoint=True)
    published = index_inodes(store)
    contents = {name: (store / "index" / name).read_bytes() for name in published}
    with official_broker(store, tmp_path) as broker:
        broker.kill()
    assert (store / "abort").exists()
    assert index_inodes(store) == published
    for name in sorted(published)[:-1]:
        assert (store / "index" / name).read_bytes() == contents[name], name


@pytest.mark.soak
def test_with_the_old_checkpoint_the_broker_deletes_the_newest_as_it_always_does(
    g1_crashed_store: Path, tmp_path: Path
) -> None:
    store = published_copy(g1_crashed_store, tmp_path, with_checkpoint=False)
    published = index_inodes(store)
    with official_broker(store, tmp_path) as broker:
        broker.kill()
    found = index_inodes(store)
    assert found.items() >= {name: published[name] for name in sorted(published)[:-1]}.items()
    assert max(published) not in found
