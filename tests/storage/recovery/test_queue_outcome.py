"""What a start takes out of queues and index, from files as they lie; tests/interop compares it with brokers."""

from pathlib import Path

import pytest

from doctoring import put
from storage.layout.checkpoint import Checkpoint
from storage.recovery.queue_ends import recovered_queues
from storage.recovery.queue_outcome import QueueOutcome, doomed_index_files, queue_outcomes
from storage.store.message_store import MessageStore
from store_writer import StoreWriter, Written

UNIT = 20
IN_FILE = 10
COUNT = 58


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def written(root: Path) -> list[Written]:
    writer = StoreWriter(root, queue_file_size=UNIT * IN_FILE, index_slots=7, index_entries=40)
    found = [writer.append("T", b"body", keys=f"k{number}") for number in range(COUNT)]
    writer.close()
    return found


def file_of(root: Path, number: int) -> Path:
    return root / "consumequeue" / "T" / "0" / f"{number // IN_FILE * IN_FILE * UNIT:020d}"


def outcomes(root: Path, log_end: int, dispatched_from: int) -> list[QueueOutcome]:
    log = MessageStore.open(root).commit_log
    return list(queue_outcomes(recovered_queues(root), log, log_end, dispatched_from))


def test_a_sound_queue_loses_nothing(root: Path, written: list[Written]) -> None:
    assert outcomes(root, written[-1].physical_offset + written[-1].size, 0) == []


@pytest.mark.parametrize("number", [31, 40, 56])
def test_behind_damage_in_the_last_three_files_all_units_go_but_what_is_dispatched_again(
    root: Path, written: list[Written], number: int
) -> None:
    put(file_of(root, number), number % IN_FILE * UNIT, bytes(UNIT))
    after = number + 1 if number % IN_FILE else number + IN_FILE
    number += IN_FILE * (number % IN_FILE == 0)  # of a file that is the last one the first unit is not looked at
    end = written[-1].physical_offset + written[-1].size
    first = (number + IN_FILE - 1) // IN_FILE * IN_FILE
    deleted = tuple(str(file_of(root, each)) for each in range(first, COUNT, IN_FILE))
    path = str(root / "consumequeue" / "T" / "0")
    assert outcomes(root, end, end) == [QueueOutcome(path, "T", 0, number, COUNT - after, deleted)]
    place = written[52].physical_offset  # from there on all is put into its queues again
    left = max(52 - after, 0)
    expected = [QueueOutcome(path, "T", 0, number, left, deleted)] if left or deleted else []
    assert outcomes(root, end, place) == expected


def test_damage_before_the_last_three_files_ends_no_queue(root: Path, written: list[Written]) -> None:
    put(file_of(root, 29), 9 * UNIT, bytes(UNIT))
    assert outcomes(root, written[-1].physical_offset + written[-1].size, 1 << 40) == []


@pytest.mark.parametrize("number", [1, 20, 57])
def test_what_leads_behind_the_end_of_the_log_is_cut_and_nothing_before_it_lost(
    root: Path, written: list[Written], number: int
) -> None:
    (queue,) = recovered_queues(root)
    cut = queue.cut_at(written[number].physical_offset)
    assert cut.end == number * UNIT
    kept = (number + IN_FILE - 1) // IN_FILE
    assert [path for _, path in cut.files] == [file_of(root, IN_FILE * each) for each in range(kept)]
    assert set(cut.deleted) == {file_of(root, IN_FILE * each) for each in range(kept, 6)}
    assert all(each.lost == 0 for each in outcomes(root, written[number].physical_offset, 1 << 40))


def test_index_files_that_the_checkpoint_does_not_know_go_after_a_crash(root: Path, written: list[Written]) -> None:
    files = sorted((root / "index").iterdir())
    assert len(files) > 1
    assert doomed_index_files(root / "index", None) == files
    first_end = int.from_bytes(files[0].read_bytes()[8:16])
    assert doomed_index_files(root / "index", Checkpoint(0, 0, first_end, 0, 0, 0)) == files[1:]
    files[1].write_bytes(b"short")  # a broker extends it with zeros
    assert doomed_index_files(root / "index", None) == [files[0], *files[2:]]
    assert doomed_index_files(root / "nowhere", None) == []
