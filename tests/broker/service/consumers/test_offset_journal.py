"""Offsets that were committed but not written to a file yet outlive the process that took the commits."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.service.consumers.consumer_offsets import ConsumerOffsets
from broker.service.consumers.offset_journal import OffsetJournal
from broker.service.consumers.offset_keeper import OffsetKeeper
from broker.service.state_directory import StateDirectory


@pytest.fixture
def store() -> Any:
    return SimpleNamespace(
        config=SimpleNamespace(consumer_offsets={}, pull_offsets={}, refuse_unknown_offsets=lambda *_: None)
    )


def offsets_of(store: Any, journal: OffsetJournal) -> ConsumerOffsets:
    offsets = ConsumerOffsets(store)
    offsets.take_up(journal)
    return offsets


def test_commits_of_a_process_that_died_are_taken_up_by_the_next_one(store: Any) -> None:
    journal = OffsetJournal()
    child = os.fork()
    if not child:
        offsets = offsets_of(store, journal)
        for offset in range(5):
            offsets.commit("G", "T", 0, offset)
            offsets.commit("组", "%RETRY%组", 7, 10 - offset)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    offsets = offsets_of(store, journal)
    assert offsets.everything() == {("G", "T"): {0: 4}, ("组", "%RETRY%组"): {7: 6}}
    assert offsets.changes, "they are still to be written down"


def test_a_commit_that_changes_nothing_is_not_noted(store: Any) -> None:
    journal = OffsetJournal()
    offsets = offsets_of(store, journal)
    for _ in range(3):
        offsets.commit("G", "T", 0, 4)
    assert list(journal.notes()) == [("G", "T", 0, 4)]


def test_what_was_written_down_is_forgotten_and_what_came_meanwhile_is_not(store: Any, tmp_path: Path) -> None:
    journal = OffsetJournal()
    offsets = ConsumerOffsets(store)
    keeper = OffsetKeeper(offsets, StateDirectory(tmp_path))
    offsets.take_up(journal)
    for number in range(3):  # the notes that stay are written to the other half each time
        offsets.commit("G", "T", 0, number)
        mark = journal.mark()
        offsets.commit("G", "T", 1, number)
        journal.forget(mark)
        assert list(journal.notes()) == [("G", "T", 1, number)]
    keeper.save()
    assert list(journal.notes()) == []
    keeper.stop()


def test_a_full_journal_keeps_the_last_note_of_each_queue() -> None:
    journal = OffsetJournal(200)
    mark = journal.mark()
    for offset in range(1000):
        journal.note("G", "T", offset % 3, offset)
    assert {note[2]: note[3] for note in journal.notes()} == {0: 999, 1: 997, 2: 998}
    before = list(journal.notes())
    journal.forget(mark)
    assert list(journal.notes()) == before, "a mark from before the journal was turned over says nothing"


def test_what_finds_no_room_is_left_out_and_nothing_breaks() -> None:
    journal = OffsetJournal(40)
    for queue_id in range(100):
        journal.note("G", "T", queue_id, 1)
    journal.note("G" * 100, "T", 0, 1)
    kept = list(journal.notes())
    assert kept == [("G", "T", queue_id, 1) for queue_id in range(len(kept))]
    assert kept


def test_a_journal_full_of_last_notes_is_gone_through_once_until_it_was_written_down(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else each commit of a made-up group would go through two megabytes of those before it."""
    journal = OffsetJournal(2000)
    gone_through = []
    notes = journal.notes
    monkeypatch.setattr(journal, "notes", lambda: gone_through.append(1) or notes())
    for number in range(1000):
        journal.note(f"G{number}", "T", 0, 1)
    assert len(gone_through) == 1
    journal.forget(journal.mark())
    assert list(notes()) == []
    for number in range(1000):
        journal.note(f"H{number}", "T", 0, 1)
    assert len(gone_through) == 2
