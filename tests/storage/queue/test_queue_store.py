"""All queues of a store: what is found in its directories, lazily, whatever a name may be, and their files."""

import os
from pathlib import Path

import pytest

from protocol.errors import TruncatedFile
from queue_stores import open_queues
from storage.files.open_files import OpenFiles
from storage.files.waiting import finish
from storage.log.commit_log import CommitLog
from storage.queue._unlisted_queues import UnlistedQueues
from storage.queue.batch_consume_queue import BatchConsumeQueue
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.queue_files import QueueFiles
from store_writer import StoreWriter


@pytest.mark.parametrize(
    "topic", ["nosuch", "", ".", "..", "../consumequeue", "TopicTest/0", "/", "\0", "TopicTest\0", "\ud800", "x" * 5000]
)
def test_a_name_that_is_no_topic_has_no_queues(topic: str, g1_store: Path) -> None:
    queues, _ = open_queues(g1_store)
    assert not queues.has_topic(topic)
    assert queues.queue_ids(topic) == ()
    assert queues.queue(topic, 0) is None
    assert list(queues.queues_of(topic)) == []
    assert queues.offsets_with_tag(topic, 5, 0, 1 << 62).size == 0


def test_what_is_no_queue_of_a_topic_is_ignored(tmp_path: Path) -> None:
    StoreWriter(tmp_path).append("T", b"")
    topic = tmp_path / "consumequeue" / "T"
    for name in ("0", "7", "-1", "+3", "04", "x", "٣", "2147483648", "99999999999999999999"):
        (topic / name).mkdir(parents=True)
    (topic / "5").write_text("a file")
    (tmp_path / "consumequeue" / "file").write_text("no topic")
    os.mkdir(os.fsencode(tmp_path / "consumequeue") + b"/\xff\xfe")
    queues, _ = open_queues(tmp_path)
    assert queues.topics() == ["T"]
    assert queues.queue_ids("T") == (0, 5, 7), "the directory of queue 5 is lost"


def test_a_topic_whose_type_changed_is_served_from_the_queue_written_last(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    writer.append("T", b"plain")
    writer.append_inner_batch("T", [(b"a", {}), (b"b", {})])
    writer.append("U", b"", queue_id=4)
    writer.append_inner_batch("U", [(b"", {})], queue_id=5)
    writer.flush()
    queues, _ = open_queues(tmp_path)
    assert isinstance(queues.queue("T", 0), BatchConsumeQueue)
    assert queues.queue_ids("U") == (4, 5)
    assert isinstance(queues.queue("U", 4), ConsumeQueue)
    assert isinstance(queues.queue("U", 5), BatchConsumeQueue)


def files_of(directory: Path, sizes: dict[int, int], unit_size: int = 20) -> QueueFiles:
    directory.mkdir(exist_ok=True)
    for start, size in sizes.items():
        (directory / f"{start:020d}").write_bytes(bytes(range(256)) * (size // 256) + bytes(range(size % 256)))
    return QueueFiles(directory, unit_size, OpenFiles())


def test_bytes_are_read_within_one_file(tmp_path: Path) -> None:
    files = files_of(tmp_path, {0: 100, 100: 100})
    assert bytes(files.read(60, 20) or b"") == bytes(range(60, 80))
    assert bytes(files.read(100, 5) or b"") == bytes(range(5))
    assert files.read(90, 20) is None
    assert files.read(200, 1) is None


def test_a_file_cut_after_it_was_listed_is_truncated(tmp_path: Path) -> None:
    files = files_of(tmp_path, {0: 100})
    (tmp_path / f"{0:020d}").write_bytes(bytes(40))
    with pytest.raises(TruncatedFile, match="20 bytes at position 80"):
        files.read(80, 20)


def are_missed(writer: StoreWriter) -> bool:
    return finish(UnlistedQueues().are_missed_by(CommitLog.open(writer.log.directories), frozenset({"B"})))


@pytest.mark.parametrize(("topic", "expected"), [("B", False), ("T", True)])
@pytest.mark.parametrize("is_ledger", [False, True])
def test_the_queue_of_a_message_between_others_is_missed_if_it_is_plain(
    tmp_path: Path, topic: str, expected: bool, is_ledger: bool
) -> None:
    writer = StoreWriter(tmp_path, segment_size=4096, is_ledger=is_ledger)
    writer.append("B", b"x")
    if is_ledger:
        writer.log.write_empty_entry()
    writer.append(topic, b"y")
    if is_ledger:
        writer.log.write_empty_entry()
    assert are_missed(writer) is expected
