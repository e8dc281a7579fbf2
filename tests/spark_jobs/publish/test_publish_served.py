"""An open store is read on while it is published into, and has the new files when it looks again."""

import shutil
from pathlib import Path

from protocol.question import Question
from publishing import TIME
from spark_jobs.publish.publish import Staged, publish
from spark_jobs.publish.store_lock import StoreLock
from storage.store.message_store import MessageStore
from store_tour import tour

NAMES = ("consumequeue", "index")


def damaged_copy(store: Path, directory: Path) -> tuple[Path, list[Staged]]:
    """A copy of a store with one index file and no queues left, and the whole ones staged beside it."""
    copy, staged = directory / "store", directory / "staged"
    shutil.copytree(store, copy)
    for name in NAMES:
        shutil.copytree(store / name, staged / name)
    shutil.rmtree(copy / "consumequeue")
    for path in sorted((copy / "index").iterdir())[1:]:
        path.unlink()
    return copy, [Staged(name, staged / name) for name in NAMES]


def publish_whole(store: Path, staged: list[Staged]) -> None:
    with StoreLock(store) as lock:
        publish(lock, staged, store.parent / "journal", TIME)


def test_an_open_store_keeps_answering_and_has_the_new_files_after_a_refresh(g1_store: Path, tmp_path: Path) -> None:
    copy, staged = damaged_copy(g1_store, tmp_path)
    truth = MessageStore.open(g1_store)
    store = MessageStore.open(copy)
    query = Question("TopicTest", "hotkey")
    assert store.queues.is_lost
    before = store.query(query)
    publish_whole(copy, staged)
    # What was opened before stays readable: its files have other names now, and lie in the backup.
    assert store.query(query).records == before.records == truth.query(query).records
    store.refresh()
    assert [file.index.name for file in store.snapshot.index.files] == [
        file.index.name for file in truth.snapshot.index.files
    ]
    assert store.snapshot.index.last_update == truth.snapshot.index.last_update
    assert store.query(query).search == truth.query(query).search
    assert not store.queues.is_lost
    assert tour(store) == tour(truth)
    assert list(store.queues.topics()) == list(truth.queues.topics())
