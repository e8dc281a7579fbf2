"""A store whose log is DLedger's, as it grows: what has only begun is waited for."""

from pathlib import Path

import pytest

from growing_store import Followed
from protocol.question import KeyKind
from storage.store import _log_follower
from storage.store.message_store import MessageStore
from store_files import LEDGER_HEAD

pytestmark = pytest.mark.usefixtures("hurried")


@pytest.fixture
def ledger(tmp_path: Path) -> Followed:
    """A ledger that grows, and a follower of it."""
    return Followed(tmp_path / "store", is_ledger=True)


def test_it_grows_over_segments_elections_and_changes_of_the_group(ledger: Followed) -> None:
    for number in range(40):
        ledger.growing.add(body=b"x" * (number % 7 * 40))
        if number % 9 == 0:
            ledger.growing.log.write_empty_entry()
        if number % 11 == 0:
            ledger.growing.log.write_empty_entry(3, b"n0-127.0.0.1:40911;n1-127.0.0.1:40912")
        ledger.growing.flush()
        if number % 5 == 0:
            ledger.settle()
            ledger.check()
    ledger.settle()
    ledger.check()
    assert len(ledger.store.commit_log.segments) > 3
    assert ledger.store.problems == []


@pytest.mark.parametrize("is_empty_between", [False, True])
def test_a_log_that_was_opened_with_a_torn_end_grows_once_its_entry_is_whole(
    ledger: Followed, is_empty_between: bool
) -> None:
    torn = ledger.growing.add_torn(0.5, keys="first")
    ledger.open()
    ledger.poll(2)
    assert ledger.store.record_at(torn.physical_offset) is None
    ledger.growing.mend()
    if is_empty_between:
        ledger.growing.log.write_empty_entry()
    second = ledger.growing.add(keys="second")
    ledger.growing.flush()
    ledger.settle()
    assert ledger.store.commit_log.end == ledger.growing.log.end
    assert ledger.found("first") == [torn.physical_offset]
    assert ledger.found("second") == [second.physical_offset]
    ledger.check()


@pytest.mark.parametrize("there", [1, 7, 8, 47])
def test_a_part_of_a_head_is_waited_for(ledger: Followed, there: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_log_follower, "DAMAGED_SECONDS", 1000.0)
    end = ledger.growing.log.end
    written = ledger.growing.add()
    writer, size = ledger.growing.writer, LEDGER_HEAD + written.size
    whole = writer.log.segments[0].read_bytes()[end : end + size]
    writer.overwrite(end, whole[:there] + bytes(size - there))
    ledger.poll(4)
    assert ledger.store.commit_log.end == end
    writer.overwrite(end, whole)
    ledger.growing.flush()
    ledger.settle()
    assert ledger.found("u1", KeyKind.UNIQUE) == [written.physical_offset]
    ledger.check()


@pytest.mark.parametrize("cut", [1, LEDGER_HEAD - 1, LEDGER_HEAD, LEDGER_HEAD + 30])
def test_a_segment_that_is_cut_inside_an_entry_keeps_the_messages_before_it(ledger: Followed, cut: int) -> None:
    kept = ledger.growing.add(keys="kept")
    end = ledger.growing.log.end
    ledger.growing.add(keys="lost")
    ledger.growing.writer.close()
    path = ledger.growing.log.segments[0]
    path.write_bytes(path.read_bytes()[: end + cut])
    store = MessageStore.open(ledger.growing.root)
    assert store.commit_log.end == end
    assert store.record_at(kept.physical_offset) == kept.record
    # Of fewer than eight bytes nobody can say what they were to become.
    assert any("a record is damaged or cut short" in problem for problem in store.problems) == (cut >= 8)
