"""Where the log ends early, it says why, and what the end hides."""

import os
import shutil
import zlib
from pathlib import Path

import pytest

from protocol.question import KeyKind, Question
from storage.store.message_store import MessageStore
from store_writer import StoreWriter


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[StoreWriter, Path]:
    """Ten messages, of which one bit of the sixth one's body is wrong."""
    writer = StoreWriter(tmp_path)
    written = [writer.append("T", b"body", keys=f"k{number}") for number in range(10)]
    writer.close()
    sixth = written[5]
    place = sixth.physical_offset + sixth.record.index(b"body")
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    return writer, tmp_path


def test_the_damaged_record_can_be_shown_and_explained(damaged: tuple[StoreWriter, Path]) -> None:
    writer, root = damaged
    sixth = writer.written[5]
    store = MessageStore.open(root)
    assert store.record_at(sixth.physical_offset) is None
    shown = store.damaged_record_at(sixth.physical_offset)
    assert shown is not None
    assert len(shown) == sixth.size
    assert zlib.crc32(shown) != zlib.crc32(sixth.record)
    assert "does not match its CRC" in store.explain_absence(sixth.physical_offset)


def test_a_damaged_record_behind_the_end_can_be_shown(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    writer.append("T", b"whole")
    torn = writer.append("T", b"torn", body_crc=1)
    writer.close()
    store = MessageStore.open(tmp_path)
    assert store.commit_log.end == torn.physical_offset
    shown = store.damaged_record_at(torn.physical_offset)
    assert shown is not None
    assert bytes(shown) == torn.record


class TestMissingQueues:
    """A tag query over an index without tag entries needs the queues; where they are missing, its answer says so."""

    @pytest.fixture
    def old_store(self, tmp_path: Path) -> Path:
        writer = StoreWriter(tmp_path, profile="5.3", index_entries=40)
        writer.set_topic("T")
        for number in range(60):
            writer.append("T", keys=f"k{number}", tags="t", queue_id=number % 4)
        writer.close()
        return tmp_path

    @pytest.mark.parametrize("gone", ["consumequeue", "consumequeue/T"])
    def test_queues_that_are_all_missing_are_those_of_the_log(self, old_store: Path, gone: str) -> None:
        shutil.rmtree(old_store / gone)
        answer = MessageStore.open(old_store).query(Question("T", "t", KeyKind.TAG))
        assert (answer.count, answer.incomplete) == (60, None)

    def test_a_missing_queue_is_named(self, old_store: Path) -> None:
        shutil.rmtree(old_store / "consumequeue" / "T" / "2")
        answer = MessageStore.open(old_store).query(Question("T", "t", KeyKind.TAG))
        assert answer.count < 60
        assert answer.incomplete is not None
        assert "queues 2 of T" in answer.incomplete


@pytest.mark.parametrize(("name", "kind"), [("config/topics.json", "fifo"), ("abort", "fifo"), ("abort", "device")])
def test_what_is_no_regular_file_is_not_waited_on(g1_store: Path, tmp_path: Path, name: str, kind: str) -> None:
    root = tmp_path / "store"
    shutil.copytree(g1_store, root)
    path = root / name
    path.unlink(missing_ok=True)
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    store = MessageStore.open(root)
    assert store.query(Question("TopicTest", "hotkey")).count == 40
