"""The sizes of a store's files, as a broker's properties have them."""

import shutil
from pathlib import Path

from storage.store.file_sizes import file_sizes
from storage.store.message_store import MessageStore
from store_writer import StoreWriter


def sizes_of(root: Path) -> dict[str, int]:
    return file_sizes(MessageStore.open(root).snapshot)


def test_the_recorded_store_has_the_sizes_that_its_broker_was_given(g1_store: Path) -> None:
    assert sizes_of(g1_store) == {
        "mappedFileSizeCommitLog": 131072,
        "mappedFileSizeConsumeQueue": 2000,
        "maxHashSlotNum": 97,
        "maxIndexNum": 150,
    }


def test_one_file_that_was_cut_does_not_count_against_the_others(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, segment_size=4096, queue_file_size=400)
    for number in range(90):
        writer.append("T", bytes(200), queue_id=number % 2)
    writer.close()
    last = max((tmp_path / "commitlog").iterdir())
    last.write_bytes(last.read_bytes()[:1000])
    (tmp_path / "consumequeue" / "T" / "0" / "00000000000000000000").write_bytes(bytes(30))
    (tmp_path / "consumequeue" / "T" / "0" / "notes.txt").write_bytes(bytes(7))
    sizes = sizes_of(tmp_path)
    assert (sizes["mappedFileSizeCommitLog"], sizes["mappedFileSizeConsumeQueue"]) == (4096, 400)


def test_what_is_not_there_has_no_size(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path, segment_size=4096)
    writer.append("T", b"alone")
    writer.close()
    for tree in ("consumequeue", "index"):
        shutil.rmtree(tmp_path / tree)
    assert sizes_of(tmp_path) == {"mappedFileSizeCommitLog": 4096}
