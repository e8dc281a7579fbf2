"""Which of the bytes behind the end of a log are records, and when."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from growing_store import Followed
from protocol.question import KeyKind
from storage.log.commit_log import CommitLog
from storage.store import _log_follower
from storage.store._log_follower import LogFollower
from storage.store.message_store import MessageStore
from store_files import LEDGER_HEAD
from store_writer import Written

pytestmark = pytest.mark.usefixtures("hurried")


@pytest.fixture(params=[False, True], ids=["plain", "ledger"])
def followed(tmp_path: Path, request: pytest.FixtureRequest) -> Followed:
    """A store with either kind of log that grows, and a follower of it."""
    return Followed(tmp_path / "store", is_ledger=request.param, segment_size=4096)


def start_of(followed: Followed, written: Written) -> int:
    """Where a message begins in the log: with its head, if it has one."""
    return written.physical_offset - (LEDGER_HEAD if followed.growing.log.is_ledger else 0)


class TestTornRecords:
    @pytest.mark.parametrize("share", [0.0, 0.1, 0.99])
    def test_half_a_record_is_no_record_and_the_rest_makes_it_one(
        self, followed: Followed, share: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(_log_follower, "DAMAGED_SECONDS", 1000.0)
        written = followed.growing.add_torn(share, body=b"x" * 200)
        followed.poll(4)
        assert followed.store.record_at(written.physical_offset) is None
        assert followed.store.commit_log.end == start_of(followed, written)
        followed.growing.mend()
        followed.growing.flush()
        followed.settle()
        assert followed.found(f"u{1}", KeyKind.UNIQUE) == [written.physical_offset]
        followed.check()

    def test_properties_that_are_not_there_yet_are_waited_for(
        self, followed: Followed, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The body's checksum holds while topic and properties, which are copied last, are still zeros."""
        monkeypatch.setattr(_log_follower, "DAMAGED_SECONDS", 1000.0)
        whole = followed.growing.add(keys="late", unique_key=None, tags=None)
        zeros = bytes(len("late") + 1)
        followed.growing.writer.overwrite(whole.physical_offset + whole.size - len(zeros), zeros)
        followed.poll(5)
        assert followed.store.commit_log.end == start_of(followed, whole)
        followed.growing.writer.overwrite(whole.physical_offset, whole.record)
        followed.poll(3)
        assert followed.found("late") == [whole.physical_offset]

    def test_a_record_with_a_zero_byte_counts_when_its_queue_has_it(self, followed: Followed) -> None:
        written = followed.growing.add(properties={"a": "\0"})
        followed.growing.flush()
        followed.poll(2)
        assert followed.store.record_at(written.physical_offset) == written.record

    def test_a_record_that_changes_is_looked_at_anew(self, followed: Followed) -> None:
        first = followed.growing.add(body=b"first")
        followed.poll(1)
        other = first.record.replace(b"first", b"other")
        crc = followed.growing.writer.append("X", b"other", index=False, queue=False).record[8:12]
        changed = other[:8] + crc + other[12:]
        followed.growing.writer.overwrite(first.physical_offset, changed + bytes(200))
        followed.poll(1)
        assert followed.store.record_at(first.physical_offset) is None
        followed.poll(1)
        assert followed.store.record_at(first.physical_offset) == changed

    def test_a_record_whose_checksum_is_wrong_does_not_hide_those_behind_it(self, followed: Followed) -> None:
        bad = followed.growing.add(body_crc=1)
        good = followed.growing.add(keys="good")
        followed.growing.flush()
        followed.poll(6)
        assert followed.store.record_at(bad.physical_offset) is None
        assert followed.found("good") == [good.physical_offset]

    def test_a_record_that_stays_torn_ends_the_log_and_is_told_of(self, followed: Followed) -> None:
        written = followed.growing.add_torn(0.5)
        followed.poll(4)
        fresh = MessageStore.open(followed.growing.root)
        assert followed.store.problems == fresh.problems
        assert any(f"at physical offset {start_of(followed, written)}" in problem for problem in fresh.problems)
        followed.growing.mend()
        followed.growing.flush()
        followed.settle()
        assert not any("damaged" in problem for problem in followed.store.problems)
        followed.check()


class TestEnds:
    def test_a_log_that_has_no_segment_yet_has_no_end_to_look_at(self, tmp_path: Path) -> None:
        follower, log = LogFollower([tmp_path]), CommitLog.open([tmp_path])
        assert follower.look(log, lambda *_: True) is None
        assert follower.look(CommitLog.open([tmp_path]), lambda *_: True) is None
        assert (follower.last_offset, follower.watched(log)) == (-1, [])

    def test_the_same_end_of_another_log_is_gone_on_from(self, followed: Followed) -> None:
        """As when segments expired at the other end: what was seen of a record that settles is kept."""
        log = followed.store.commit_log
        follower = LogFollower(log_directories(followed))
        follower.adopt(log)
        written = followed.growing.add()
        assert follower.look(log, lambda *_: False) is None
        growth = follower.look(CommitLog(log.segments, ()), lambda *_: False)
        assert growth is not None
        assert growth.last == written.physical_offset

    def test_the_next_segment_is_looked_for_until_it_is_there(self, followed: Followed) -> None:
        followed.growing.writer.roll()
        followed.poll(2)
        written = followed.growing.add()
        followed.growing.flush()
        followed.poll(3)
        assert followed.store.record_at(written.physical_offset) == written.record

    @pytest.mark.parametrize("behind", [0, 200])
    def test_a_log_that_is_cut_behind_its_end_is_opened_anew(self, followed: Followed, behind: int) -> None:
        followed.settle()
        log = followed.store.commit_log
        os.truncate(log.segments[-1].file.path, log.end + behind)
        followed.settle()
        segment = followed.store.commit_log.segments[-1]
        assert (segment.file.size, segment.end) == (log.end + behind, log.end)
        assert followed.poll(3) == []

    @pytest.mark.parametrize("kept", [0, 64])
    def test_a_log_that_is_cut_before_its_end_is_opened_anew(self, followed: Followed, kept: int) -> None:
        followed.growing.add()
        followed.growing.flush()
        followed.settle()
        last = followed.growing.writer.written[-1]
        os.truncate(followed.store.commit_log.segments[-1].file.path, last.physical_offset + kept)
        followed.settle()
        assert followed.store.commit_log.end == start_of(followed, last)
        assert followed.store.record_at(last.physical_offset) is None

    def test_a_log_that_is_gone_is_no_log(self, followed: Followed) -> None:
        os.truncate(followed.store.commit_log.segments[-1].file.path, 0)
        followed.settle()
        assert followed.store.commit_log.segments == ()
        assert any("is empty" in problem for problem in followed.store.problems)


def log_directories(followed: Followed) -> tuple[Path, ...]:
    return followed.store.layout.commit_log_directories


class TestCutLogs:
    """A broker that crashed cuts its log and goes on; what lies behind the cut is old, whatever it looks like."""

    def cut(self, followed: Followed, kept: int) -> list[Any]:
        """Damage one message of several of one size; the broker will go on in its place."""
        old = [followed.growing.add(keys=f"o{number}", unique_key=f"u{number:04}") for number in range(8)]
        followed.growing.flush()
        writer = followed.growing.writer
        writer.overwrite(old[kept].physical_offset + 40, b"\xff" * 8)
        writer.overwrite(old[kept].physical_offset + 90, b"\xff" * 8)
        followed.open()
        assert followed.store.commit_log.end == old[-1].physical_offset + old[-1].size, "nothing was cut yet"
        followed.poll(3)
        writer.log.end = start_of(followed, old[kept])
        writer.written = writer.written[: 1 + kept]
        return old

    def test_old_records_behind_the_new_end_are_not_taken_for_new(self, followed: Followed) -> None:
        old = self.cut(followed, 3)
        new = []
        for number in range(3):
            new.append(followed.growing.add(keys=f"n{number}", unique_key=f"v{number:04}", index=False, queue=False))
            assert new[-1].physical_offset == old[3 + number].physical_offset
            followed.poll(4)
            assert followed.store.commit_log.end == new[-1].physical_offset + new[-1].size
        for number, written in enumerate(new):
            assert followed.found(f"n{number}") == [written.physical_offset]
        assert followed.store.record_at(old[6].physical_offset) is None

    def test_a_log_that_was_cut_and_written_anew_under_us_is_opened_anew(self, followed: Followed) -> None:
        writer = followed.growing.writer
        old = [followed.growing.add(keys=f"o{number}") for number in range(6)]
        followed.growing.flush()
        followed.settle()
        start = start_of(followed, old[2])
        writer.overwrite(start, bytes(writer.log.end - start))
        writer.log.end, writer.written = start, writer.written[:3]
        shutil.rmtree(followed.growing.root / "index")
        writer.index.files.clear()
        writer.queues.clear()
        shutil.rmtree(followed.growing.root / "consumequeue")
        for number in range(8):
            writer.append("T", b"another length altogether", keys=f"n{number}", queue_offset=number + 3)
        followed.growing.flush()
        followed.settle()
        followed.check()
        assert followed.found("o5") == []
        assert followed.found("n7") != []
