"""Past the end of a log that was cut, old records are distinguished from new ones by the bytes seen there before."""

from pathlib import Path

import pytest

from storage.files.mapped_file import MappedFile
from storage.log.log_place import RecordPlace
from storage.store import _old_bytes
from storage.store._old_bytes import OldBytes
from store_files import write_file

SIZE = 4096


class Segment:
    """A file of old bytes, each position's its own, in which a broker goes on writing."""

    def __init__(self, path: Path, *, base_offset: int = 0, content: bytes | None = None) -> None:
        old = b"".join(number.to_bytes(4, "big") for number in range(1, SIZE // 4 + 1))
        write_file(path, SIZE, {0: old if content is None else content})
        self.path = path
        self.base_offset, self.file = base_offset, MappedFile.open(path)

    def at(self, position: int) -> RecordPlace:
        return RecordPlace(self.base_offset, self.file, position)

    def write(self, position: int, data: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(position)
            file.write(data)


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment(tmp_path / "segment")


def behind(place: RecordPlace, known: OldBytes | None = None) -> OldBytes:
    old = OldBytes.behind(place, known)
    assert old is not None
    return old


def test_what_was_seen_is_known_while_the_end_moves_on(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the part that is remembered: a new record that was written meanwhile is not taken for old."""
    monkeypatch.setattr(_old_bytes, "MOST_BYTES", 400)
    monkeypatch.setattr(_old_bytes, "LEAST_BYTES", 200)
    old = behind(segment.at(0))
    for end in range(0, SIZE - 200, 100):
        old = behind(segment.at(end), old)
        segment.write(end + 100, b"new" + end.to_bytes(4, "big"))
        assert not old.lay_at(segment.at(end + 100), end + 200), "written when it was ahead already"
        assert old.lay_at(segment.at(end + 150), end + 200) or end + 200 > SIZE


def test_what_lies_beyond_what_was_seen_counts_as_old(segment: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_old_bytes, "MOST_BYTES", 100)
    old = behind(segment.at(0))
    segment.write(90, b"new and longer")
    assert old.lay_at(segment.at(90), 104)
    assert not old.lay_at(segment.at(90), 100)


def test_another_segment_has_nothing_old(tmp_path: Path, segment: Segment) -> None:
    """A broker that cuts its log removes the segments behind."""
    old, following = behind(segment.at(0)), Segment(tmp_path / "next", base_offset=SIZE)
    assert not old.lay_at(following.at(0), 100)
    assert OldBytes.behind(following.at(0), old) is None
