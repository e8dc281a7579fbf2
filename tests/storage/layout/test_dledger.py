"""How much of its log a DLedger group has agreed on, by the files beside the entries."""

from pathlib import Path

import pytest

from golden_store import GOLDEN, unpack
from oracles import packed
from storage.layout.dledger import uncommitted_from, uncommitted_problem
from storage.store.message_store import MessageStore


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """The entries of a recorded store that was closed cleanly: all are agreed on."""
    return unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-dledger") / "dledger-n0" / "data"


def checkpoint(ledger: Path, text: str) -> None:
    (ledger.parent / "checkpoint").write_text(text)


def units(ledger: Path) -> bytes:
    with (ledger.parent / "index" / ("0" * 20)).open("rb") as file:
        return file.read(1 << 16)


def position_of(ledger: Path, number: int) -> int:
    return int.from_bytes(units(ledger)[number * 32 + 4 : number * 32 + 12], "big")


@pytest.mark.parametrize(
    ("number", "form"), [(-1, "#a comment\n committedIndex : {} \n"), (17, "endIndex=81\ncommittedIndex={}\n")]
)
def test_what_lies_behind_the_committed_index_is_served_with_a_word(ledger: Path, number: int, form: str) -> None:
    checkpoint(ledger, form.format(number))
    place = position_of(ledger, number + 1)
    assert uncommitted_from(ledger) == place
    store = MessageStore.open(ledger.parents[1])
    (problem,) = store.problems
    assert f"the entries from physical offset {place} on lie behind the committedIndex" in problem
    assert store.record_at(place + 48) is not None
    assert uncommitted_problem([ledger], place) is None


@pytest.mark.parametrize("text", ["endIndex=5\n", "committedIndex=x\n", "committedIndex=999\n"])
def test_a_checkpoint_that_says_nothing_is_no_reason_to_say_anything(ledger: Path, text: str) -> None:
    checkpoint(ledger, text)
    assert uncommitted_from(ledger) is None


def test_an_index_file_that_is_gone_cut_or_of_something_else_says_nothing(ledger: Path) -> None:
    checkpoint(ledger, "committedIndex=3\n")
    path = ledger.parent / "index" / ("0" * 20)
    whole = units(ledger)
    for content in (
        b"",
        whole[: 4 * 32],
        whole[: 4 * 32 + 31],
        whole[: 4 * 32 + 16] + packed(9, 8) + whole[4 * 32 + 24 :],
    ):
        path.write_bytes(content)
        assert uncommitted_from(ledger) is None
        assert MessageStore.open(ledger.parents[1]).problems == []
    path.unlink()
    assert uncommitted_from(ledger) is None
    (ledger.parent / "checkpoint").unlink()
    assert uncommitted_from(ledger) is None
