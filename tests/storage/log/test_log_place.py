"""Where the next record will start, and that nothing is looked at there through a map before it was read."""

import os
from pathlib import Path

import pytest

from storage.files.mapped_file import MappedFile
from storage.log.commit_log import CommitLog
from storage.log.log_place import RecordPlace, place_behind, start_behind
from store_files import write_file
from store_writer import StoreWriter

SEGMENT = 1024


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    writer = StoreWriter(tmp_path / "store", segment_size=SEGMENT)
    writer.append("T", b"x" * 100)
    return writer


def log_of(writer: StoreWriter) -> CommitLog:
    writer.flush()
    return CommitLog.open(writer.log.directories)


def behind(writer: StoreWriter) -> RecordPlace | None:
    return place_behind(log_of(writer), writer.log.directories)


class TestStartBehind:
    def place(self, directory: Path, name: str = f"{0:020d}") -> RecordPlace:
        write_file(directory / name, SEGMENT, {})
        return RecordPlace(0, MappedFile.open(directory / name), SEGMENT)

    def test_the_next_file_may_lie_in_any_directory(self, tmp_path: Path) -> None:
        place = self.place(tmp_path / "a")
        write_file(tmp_path / "b" / f"{SEGMENT:020d}", SEGMENT, {})
        found = start_behind(place, [tmp_path / "a", tmp_path / "b"])
        assert found is not None
        assert found.file.path.parent.name == "b"

    @pytest.mark.parametrize("size", [0, 1, SEGMENT - 1, SEGMENT + 1])
    def test_a_file_of_another_size_is_not_there_yet(self, tmp_path: Path, size: int) -> None:
        place = self.place(tmp_path)
        write_file(tmp_path / f"{SEGMENT:020d}", size, {})
        assert start_behind(place, [tmp_path]) is None

    def test_names_in_other_digits_are_found_too(self, tmp_path: Path) -> None:
        digits = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
        place = self.place(tmp_path, f"{0:020d}".translate(digits))
        write_file(tmp_path / f"{SEGMENT:020d}".translate(digits), SEGMENT, {})
        found = start_behind(place, [tmp_path])
        assert found is not None
        assert found.base_offset == SEGMENT


def test_a_place_in_a_file_that_was_cut_is_looked_at_without_harm(writer: StoreWriter) -> None:
    place = behind(writer)
    assert place is not None
    os.truncate(place.file.path, 10)
    assert (place.peek(8), place.has_nothing()) == (b"", False)
