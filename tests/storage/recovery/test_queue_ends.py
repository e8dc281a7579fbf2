"""How far the queues of a store reach once they are recovered; of directories that cannot be listed it is not known."""

import os
from pathlib import Path
from typing import Any

import pytest

from protocol.errors import StoreError
from storage.recovery.queue_ends import recovered_queues_end
from storage.store.message_store import MessageStore
from store_writer import StoreWriter


@pytest.fixture
def queues(tmp_path: Path) -> Path:
    writer = StoreWriter(tmp_path / "store")
    for number in range(6):
        writer.append(f"T{number % 2}", b"x", queue_id=number % 3)
    writer.close()
    return writer.root / "consumequeue"


def test_queues_reach_to_the_end_of_the_last_record_that_one_leads_to(queues: Path) -> None:
    log = MessageStore.open(queues.parent).commit_log
    assert recovered_queues_end(queues.parent) == log.end > 0
    assert recovered_queues_end(queues.with_name("no such directory")) == -1


@pytest.mark.parametrize("below", ["", "T1/2"])
def test_a_directory_that_cannot_be_listed_is_no_empty_one(
    queues: Path, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused, scandir = queues / below, os.scandir

    def refuse(path: Any = ".") -> Any:
        if Path(path) == refused:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StoreError, match="Permission denied") as caught:
        recovered_queues_end(queues.parent)
    assert str(refused) in str(caught.value)
