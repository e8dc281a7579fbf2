"""A store of which something may not be read is served without it, and says so, to a user whom permissions bind."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from protocol.question import Question
from read_only import reachable_directory
from rights import as_user
from storage.store.message_store import MessageStore


@pytest.fixture
def store(g1_store: Path) -> Iterator[Path]:
    with reachable_directory() as directory:
        shutil.copytree(g1_store, directory / "store")
        yield directory / "store"


@pytest.mark.parametrize("name", ["consumequeue", "config", "index"])
def test_a_directory_that_may_not_be_entered_is_served_without(store: Path, name: str) -> None:
    (store / name).chmod(0)
    with as_user():
        opened = MessageStore.open(store)
        assert opened.query(Question("TopicTest", "hotkey")).count == 40
    assert any(f"/{name}" in problem and "cannot be" in problem for problem in opened.problems)


def test_a_segment_that_may_not_be_read_is_named_in_answers(store: Path) -> None:
    segment = store / "commitlog" / f"{0:020d}"
    segment.chmod(0)
    with as_user():
        opened = MessageStore.open(store)
        answer = opened.query(Question("TopicTest", "hotkey"))
    assert answer.count < 40
    assert answer.incomplete == f"segment {segment.name} cannot be read"
    assert any(str(segment) in problem or segment.name in problem for problem in opened.problems)
