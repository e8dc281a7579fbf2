"""Whether a store without a directory of a plain queue has lost them, or never had a message of one."""

from pathlib import Path

import pytest

from storage.files.waiting import finish
from storage.log.commit_log import CommitLog
from storage.queue._unlisted_queues import UnlistedQueues
from store_writer import StoreWriter


def are_missed(writer: StoreWriter) -> bool:
    return finish(UnlistedQueues().are_missed_by(CommitLog.open(writer.log.directories), frozenset({"B"})))


@pytest.mark.parametrize("is_rolled", [False, True])
def test_entries_without_messages_miss_no_queue(tmp_path: Path, is_rolled: bool) -> None:
    writer = StoreWriter(tmp_path, segment_size=4096, is_ledger=True)
    for _ in range(3):
        writer.log.write_empty_entry()
    if is_rolled:
        writer.roll()
        writer.log.write_empty_entry()
    assert CommitLog.open(writer.log.directories).end == writer.log.end > 0
    assert not are_missed(writer)


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
