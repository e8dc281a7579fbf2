"""Which of the bytes behind the end of a log are records, and when: half written, torn, cut off, or old."""

import os

import pytest

from growing_store import Followed
from oracles import BLANK_MAGIC, packed
from protocol.question import KeyKind
from storage.log import segment_end
from storage.log.commit_log import CommitLog
from storage.store import _log_follower
from storage.store._log_follower import DAMAGED_SECONDS, LogFollower
from storage.store.message_store import MessageStore
from store_files import LEDGER_HEAD
from store_writer import StoreWriter


@pytest.fixture(params=[False, True], ids=["plain", "ledger"])
def followed(tmp_path, hurried, request):
    return Followed(tmp_path / "store", is_ledger=request.param, segment_size=4096)


def start_of(followed, written):
    return written.physical_offset - (LEDGER_HEAD if followed.growing.log.is_ledger else 0)


class TestTornRecords:
    def test_half_a_record_is_no_record_and_the_rest_makes_it_one(self, followed, monkeypatch) -> None:
        monkeypatch.setattr(_log_follower, "DAMAGED_SECONDS", 1000.0)
        written = followed.growing.add_torn(0.1, body=b"x" * 200)
        followed.poll(4)
        assert followed.store.record_at(written.physical_offset) is None
        assert followed.store.commit_log.end == start_of(followed, written)
        followed.growing.mend()
        followed.growing.flush()
        followed.settle()
        assert followed.found(f"u{1}", KeyKind.UNIQUE) == [written.physical_offset]
        followed.check()

    def test_properties_that_are_not_there_yet_are_waited_for(self, followed, monkeypatch) -> None:
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
    def test_a_log_that_is_cut_before_its_end_is_opened_anew(self, followed: Followed) -> None:
        followed.growing.add()
        followed.growing.flush()
        followed.settle()
        last = followed.growing.writer.written[-1]
        os.truncate(followed.store.commit_log.segments[-1].file.path, last.physical_offset + 64)
        followed.settle()
        assert followed.store.commit_log.end == start_of(followed, last)
        assert followed.store.record_at(last.physical_offset) is None

    def test_a_log_that_is_gone_is_no_log(self, followed: Followed) -> None:
        os.truncate(followed.store.commit_log.segments[-1].file.path, 0)
        followed.settle()
        assert followed.store.commit_log.segments == ()
        assert any("is empty" in problem for problem in followed.store.problems)


class TestCutLogs:
    """A broker that crashed cuts its log and goes on; what lies behind the cut is old, whatever it looks like."""

    def cut(self, followed, kept):
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


@pytest.fixture
def ledger(tmp_path, hurried):
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


SEGMENT = 1024
MAGIC = BLANK_MAGIC.to_bytes(4, "big")


class Clock:
    """Time as the follower sees it, in seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Growing:
    def __init__(self, root, clock) -> None:
        self.clock, self.directory = clock, root / "followed"
        self.directory.mkdir(parents=True)
        for base in range(0, 3 * SEGMENT, SEGMENT):
            (self.directory / f"{base:020d}").write_bytes(bytes(SEGMENT))
        self.log = CommitLog.open([self.directory])
        self.follower = LogFollower([self.directory])

    def write(self, physical_offset: int, data: bytes) -> None:
        base = physical_offset // SEGMENT * SEGMENT
        descriptor = os.open(self.directory / f"{base:020d}", os.O_WRONLY)
        os.pwrite(descriptor, data, physical_offset - base)
        os.close(descriptor)

    def look(self, seconds=0.0):
        growths = []
        for wait in (0.0, seconds):
            self.clock.now += wait
            growth = self.follower.look(self.log, lambda *_: False)
            if growth is not None:
                self.log = growth.commit_log
                growths.append(growth)
        return growths[-1] if growths else None


@pytest.fixture
def growing(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(_log_follower, "time", clock)
    return Growing(tmp_path, clock)


def written_log(root):
    writer = StoreWriter(root, segment_size=SEGMENT)
    written = [writer.append("T", b"x" * (40 + number), keys=f"k{number}") for number in range(8)]
    writer.close()
    assert SEGMENT < writer.log.end < 2 * SEGMENT
    return writer, written


def test_no_beginning_of_anything_is_taken_for_damage_or_for_an_end(growing, tmp_path) -> None:
    writer, written = written_log(tmp_path / "written")
    closed = max(each.physical_offset + each.size for each in written if each.physical_offset < SEGMENT)
    pieces = [(each.physical_offset, each.record) for each in written]
    pieces.append((closed, packed(SEGMENT - closed, 4) + MAGIC))
    for start, data in sorted(pieces):
        for number, byte in enumerate(data):
            growing.write(start + number, bytes([byte]))
            # However long a writer stands still within the first eight bytes.
            growing.look(10 * DAMAGED_SECONDS if number < 8 else 0.0)
            assert (growing.log.torn_end, growing.log.damage) == (None, ())
            assert growing.log.end <= max(start, closed if start < SEGMENT else start) or number == len(data) - 1
        growing.look(0.05)
    assert growing.log.end == writer.log.end
    assert [growing.log.record_at(each.physical_offset) for each in written] == [each.record for each in written]


class TestWrongSize:
    def test_a_blank_of_a_wrong_size_is_damage_once_the_log_goes_on_in_the_next_segment(
        self, growing, tmp_path
    ) -> None:
        _, written = written_log(tmp_path / "written")
        behind = next(each for each in written if each.physical_offset == SEGMENT)
        growing.write(0, written[0].record)
        growing.look(0.05)
        end = growing.log.end
        growing.write(end, packed(8, 4) + MAGIC)
        growing.look(10 * DAMAGED_SECONDS)
        assert (growing.log.end, growing.log.torn_end) == (end, None)
        growing.write(SEGMENT, behind.record)
        for _ in range(3):
            growing.look(2 * DAMAGED_SECONDS)
        assert growing.log.record_at(SEGMENT) == behind.record
        assert growing.log.record_at(0) == written[0].record


def test_what_was_searched_in_vain_is_not_searched_again_and_what_comes_behind_is_found(
    growing, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(_log_follower, "LOOK_AHEAD_BYTES", 400)
    monkeypatch.setattr(segment_end, "CHUNK", 50)
    _, written = written_log(tmp_path / "written")
    growing.write(0, b"\xff" * 100)
    for _ in range(3):
        growing.look(2 * DAMAGED_SECONDS)
    assert growing.log.torn_end is not None
    growing.write(written[2].physical_offset, written[2].record)
    for _ in range(3):
        growing.look(2 * DAMAGED_SECONDS)
    assert growing.log.record_at(written[2].physical_offset) == written[2].record
