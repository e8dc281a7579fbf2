"""All queues of a store: what is found in its directories, lazily, and whatever a topic's name may be."""

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles import java_hash
from queue_stores import open_queues, write_units
from storage.files.open_files import OpenFiles
from storage.log.commit_log import CommitLog
from storage.queue.batch_consume_queue import BatchConsumeQueue
from storage.queue.consume_queue import ConsumeQueue
from storage.queue.queue_store import QueueStore
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


def test_a_tree_that_cannot_be_listed_is_a_problem_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "no", str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    queues = QueueStore(tmp_path, CommitLog([], []))
    told = f"{tmp_path}/consumequeue: cannot be listed: Permission denied; the store is served without it"
    assert queues.problems[0] == told
    assert queues.topics() == []


def test_a_queue_is_one_object_until_a_refresh(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    writer.append("T", b"1")
    writer.flush()
    queues, log = open_queues(tmp_path)
    first = queues.queue("T", 0)
    assert first is queues.queue("T", 0)
    assert first is not None
    assert first.max_offset == 1
    writer.append("T", b"2")
    writer.append("U", b"3")
    writer.flush()
    assert (first.max_offset, queues.topics()) == (1, ["T"])
    again = queues.refresh(CommitLog.open([tmp_path / "commitlog"]))
    second = again.queue("T", 0)
    assert second is not None
    assert (second.max_offset, again.topics()) == (2, ["T", "U"])
    assert first.max_offset == 1
    stale = queues.refresh().queue("T", 0)
    assert stale is not None
    assert (stale.max_offset, log.end) == (1, CommitLog.open([tmp_path / "commitlog"]).end - 2 * 93)


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


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["T", "U"]), st.integers(0, 2), st.sampled_from([None, "Aa", "BB", "C"]), st.booleans()
        ),
        max_size=30,
    ),
    st.integers(0, 4000),
    st.integers(0, 4000),
)
def test_messages_with_a_tag_are_found_newest_first(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[tuple[str, int, str | None, bool]],
    start: int,
    stop: int,
) -> None:
    root = tmp_path_factory.mktemp("tags")
    writer = StoreWriter(root, queue_file_size=60, batch_queue_file_size=92)
    for topic, queue_id, tag, is_batch in messages:
        if is_batch:
            writer.append_inner_batch(f"B{topic}", [(b"", {})], queue_id=queue_id, tags=tag)
        else:
            writer.append(topic, b"", queue_id=queue_id, tags=tag)
    writer.append("T", b"last")
    writer.flush()
    queues, _ = open_queues(root)
    for topic in ("T", "BU"):
        for tag in ("Aa", "C", "D"):
            expected = sorted(
                (
                    record.physical_offset
                    for record in writer.records
                    if record.topic == topic
                    and java_hash(record.properties.get("TAGS", "")) == java_hash(tag)
                    and start <= record.physical_offset < stop
                ),
                reverse=True,
            )
            found = queues.offsets_with_tag(topic, java_hash(tag), start, stop)
            assert (found.tolist(), found.dtype) == (expected, np.dtype(np.int64))


# --- many queues ------------------------------------------------------------------------------------------------------


def test_opening_a_store_of_many_queues_opens_none_of_them(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    writer.append("T", b"")
    writer.flush()
    for number in range(400):
        write_units(tmp_path / "consumequeue" / f"topic{number}" / "0", 0, [(0, 91, 0)], 20)
    descriptors = set(os.listdir("/proc/self/fd"))
    files = OpenFiles(limit=8)
    queues = QueueStore(tmp_path, CommitLog.open([tmp_path / "commitlog"]), files)
    assert len(queues.topics()) == 401
    assert len(files) == 0
    for topic in queues.topics()[:200]:
        queue = queues.queue(topic, 0)
        assert queue is not None
        assert queue.entry_at(0) is None or topic == "T"
    assert len(files) <= 8
    assert len(set(os.listdir("/proc/self/fd")) - descriptors) < 40
