"""A log that is written byte by byte: what has only begun is waited for, be it a record or the BLANK of a segment."""

import os
from pathlib import Path

import pytest

from oracles import BLANK_MAGIC, packed
from storage.log import segment_end
from storage.log.commit_log import CommitLog
from storage.store import _log_follower
from storage.store._log_follower import DAMAGED_SECONDS, LogFollower
from storage.store._log_growth import LogGrowth
from store_writer import StoreWriter, Written

SEGMENT = 1024
MAGIC = BLANK_MAGIC.to_bytes(4, "big")


class Clock:
    """Time as the follower sees it, in seconds."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


class Growing:
    """A log of three segments that are there in advance, of which nothing is written yet, and who follows it."""

    def __init__(self, root: Path, clock: Clock) -> None:
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

    def look(self, seconds: float = 0.0) -> LogGrowth | None:
        """Look twice, some time apart."""
        growths = []
        for wait in (0.0, seconds):
            self.clock.now += wait
            growth = self.follower.look(self.log, lambda *_: False)
            if growth is not None:
                self.log = growth.commit_log
                growths.append(growth)
        return growths[-1] if growths else None


@pytest.fixture
def growing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Growing:
    clock = Clock()
    monkeypatch.setattr(_log_follower, "time", clock)
    return Growing(tmp_path, clock)


def written_log(root: Path) -> tuple[StoreWriter, list[Written]]:
    """Records in two segments, the first closed by its BLANK."""
    writer = StoreWriter(root, segment_size=SEGMENT)
    written = [writer.append("T", b"x" * (40 + number), keys=f"k{number}") for number in range(8)]
    writer.close()
    assert SEGMENT < writer.log.end < 2 * SEGMENT
    return writer, written


def test_no_beginning_of_anything_is_taken_for_damage_or_for_an_end(growing: Growing, tmp_path: Path) -> None:
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


@pytest.mark.parametrize("size", [8, -1])
class TestWrongSize:
    """A BLANK at the tail whose size does not lead to the segment's end."""

    def test_it_is_waited_for_as_long_as_nothing_follows(self, growing: Growing, size: int) -> None:
        growing.write(0, packed(size, 4) + MAGIC)
        for _ in range(3):
            assert growing.look(10 * DAMAGED_SECONDS) is None
        growing.write(0, packed(SEGMENT, 4))
        growing.look()
        assert (growing.log.end, growing.log.torn_end, growing.log.damage) == (SEGMENT, None, ())

    def test_it_is_damage_once_the_log_goes_on_in_the_next_segment(
        self, growing: Growing, tmp_path: Path, size: int
    ) -> None:
        _, written = written_log(tmp_path / "written")
        behind = next(each for each in written if each.physical_offset == SEGMENT)
        growing.write(0, written[0].record)
        growing.look(0.05)
        end = growing.log.end
        growing.write(end, packed(size, 4) + MAGIC)
        growing.look(10 * DAMAGED_SECONDS)
        assert (growing.log.end, growing.log.torn_end) == (end, None)
        growing.write(SEGMENT, behind.record)
        for _ in range(3):
            growing.look(2 * DAMAGED_SECONDS)
        assert growing.log.record_at(SEGMENT) == behind.record
        assert growing.log.record_at(0) == written[0].record


def test_what_was_searched_in_vain_is_not_searched_again_and_what_comes_behind_is_found(
    growing: Growing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
