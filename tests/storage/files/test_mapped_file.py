"""One file mapped read-only: bounds, holes, heat, identity; and which names in a directory are files of a stream."""

import gc
import mmap
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import StoreError, TruncatedFile
from storage.files.mapped_file import (
    FileIdentity,
    MappedFile,
    list_segment_files,
    read_head,
    read_piece,
)
from storage.kernels.store_view import PROBE_BYTES
from store_files import write_file
from store_queries import at_once, wait_of


def file_of(path: Path, content: bytes) -> MappedFile:
    path.write_bytes(content)
    return MappedFile.open(path)


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> MappedFile:
    """A file of ten bytes."""
    return file_of(tmp_path_factory.mktemp("files") / "ten", b"0123456789")


class TestChangedFiles:
    def test_a_file_that_became_shorter_is_cut(self, tmp_path: Path) -> None:
        file = file_of(tmp_path / "file", b"0123456789")
        assert not file.is_cut()
        os.truncate(file.path, 20)
        assert not file.is_cut()
        os.truncate(file.path, 9)
        assert file.is_cut()

    def test_what_was_cut_off_is_read_as_nothing(self, tmp_path: Path) -> None:
        file = file_of(tmp_path / "file", bytes(mmap.PAGESIZE) + b"0123456789")
        assert file.peek(mmap.PAGESIZE + 8, 8) == b"89"
        os.truncate(file.path, mmap.PAGESIZE + 3)
        assert file.peek(mmap.PAGESIZE, 8) == b"012"
        os.truncate(file.path, 0)
        assert file.peek(mmap.PAGESIZE, 8) == b""
        assert file.peek(-1, 8) == b""

    def test_a_path_leads_to_a_file_as_long_as_it_is_that_one_of_that_size(self, tmp_path: Path) -> None:
        file, other = file_of(tmp_path / "file", b"0123456789"), tmp_path / "other"
        assert file.is_at(file.path)
        other.write_bytes(b"0123456789")
        assert not file.is_at(other)
        os.link(file.path, tmp_path / "link")
        assert file.is_at(tmp_path / "link")
        assert MappedFile.of(file.path, file) is file
        os.replace(other, file.path)
        assert not file.is_at(file.path)
        assert MappedFile.of(file.path, file) is not file
        file.path.unlink()
        assert not file.is_at(file.path)
        os.truncate(tmp_path / "link", 9)
        assert not file.is_at(tmp_path / "link")


class TestOpening:
    def test_what_is_no_regular_file_is_refused_without_waiting_for_a_writer(self, tmp_path: Path) -> None:
        (tmp_path / "directory").mkdir()
        os.mkfifo(tmp_path / "pipe")
        for name in ("directory", "pipe"):
            with pytest.raises(StoreError, match=rf"{name}.*(regular file|cannot be opened)"):
                MappedFile.open(tmp_path / name)
        with pytest.raises(StoreError, match="regular file"):
            MappedFile.open(Path("/dev/null"))

    def test_a_file_nobody_holds_is_let_go(self, tmp_path: Path) -> None:
        def is_mapped() -> bool:
            return str(tmp_path / "file") in Path("/proc/self/maps").read_text()

        file = file_of(tmp_path / "file", b"abc")
        assert is_mapped()
        held = file.read(0, 3)
        del file
        gc.collect()
        assert bytes(held) == b"abc"
        assert is_mapped()
        del held
        gc.collect()
        assert not is_mapped()


class TestReading:
    @given(position=st.integers(-3, 14), length=st.integers(-3, 14))
    def test_a_range_is_read_exactly_or_refused(self, ten: MappedFile, position: int, length: int) -> None:
        if position >= 0 and length >= 0 and position + length <= 10:
            assert bytes(ten.read(position, length)) == b"0123456789"[position : position + length]
        else:
            with pytest.raises(TruncatedFile):
                ten.read(position, length)

    def test_a_range_outside_says_what_was_asked_and_what_is_there(self, ten: MappedFile) -> None:
        with pytest.raises(TruncatedFile, match=r"ten.*a file of 10 bytes.*expected 4 bytes at position 8"):
            ten.read(8, 4)


class TestIdentity:
    def test_every_change_of_a_file_gives_it_another_identity(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        seen = set()
        path.write_bytes(b"abc")
        os.utime(path, ns=(1, 1))
        seen.add(FileIdentity.of(path.stat()))
        os.utime(path, ns=(1, 2))
        seen.add(FileIdentity.of(path.stat()))
        path.write_bytes(b"abcd")
        os.utime(path, ns=(1, 2))
        seen.add(FileIdentity.of(path.stat()))
        (tmp_path / "other").write_bytes(b"abcd")
        os.utime(tmp_path / "other", ns=(1, 2))
        seen.add(FileIdentity.of((tmp_path / "other").stat()))
        assert len(seen) == 4


class TestPieces:
    @pytest.mark.parametrize(
        ("position", "size", "read"), [(0, 4, b"0123"), (8, 4, b"89"), (10, 4, b""), (1 << 62, 1, b""), (3, 0, b"")]
    )
    def test_a_piece_ends_where_its_file_does(self, tmp_path: Path, position: int, size: int, read: bytes) -> None:
        (tmp_path / "file").write_bytes(b"0123456789")
        assert read_piece(tmp_path / "file", position, size) == read

    def test_a_head_is_whole_or_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"0123456789")
        assert read_head(tmp_path / "file", 10) == b"0123456789"
        with pytest.raises(TruncatedFile, match="needs 11 bytes, but only 10 are there"):
            read_head(tmp_path / "file", 11)

    def test_what_cannot_be_read_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "file").write_bytes(b"0123456789")
        descriptors: list[int] = []

        def cannot(descriptor: int, *_: object) -> bytes:
            descriptors.append(descriptor)
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "pread", cannot)
        with pytest.raises(StoreError, match="file: cannot be read: Input/output error"):
            read_piece(tmp_path / "file", 0, 4)
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptors[0])


class TestHoles:
    def test_data_and_holes_alternate_over_the_whole_file(self, tmp_path: Path) -> None:
        mebibyte = 1 << 20
        path = tmp_path / "sparse"
        write_file(path, 8 * mebibyte, {2 * mebibyte: b"x" * 10, 6 * mebibyte: b"y" * 10})
        if path.stat().st_blocks * 512 >= 8 * mebibyte:
            pytest.skip("this file system keeps no holes")
        file = MappedFile.open(path)
        first = file.first_data(0)
        hole = file.first_hole(first)
        second = file.first_data(hole)
        assert first <= 2 * mebibyte < hole <= second <= 6 * mebibyte < file.first_hole(second)
        assert file.first_data(file.first_hole(second)) == file.size
        assert file.first_data(file.size) == file.size

    def test_a_file_system_that_knows_no_holes_has_only_data(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = file_of(tmp_path / "file", bytes(100))

        def cannot(*_: object) -> int:
            raise OSError(22, "Invalid argument")

        monkeypatch.setattr(os, "lseek", cannot)
        assert file.first_data(7) == 7
        assert file.first_hole(7) == 100
        assert file.first_data(100) == 100


class TestHeat:
    def test_cold_bytes_are_not_waited_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = file_of(tmp_path / "file", bytes(3 * PROBE_BYTES))
        monkeypatch.setattr(MappedFile, "is_hot", lambda *_: False)
        assert str(wait_of(file.read_lookup(70_000, 5))) == "file is cold at 70000"
        assert len(file.read(70_000, 5)) == 5

    @pytest.mark.parametrize(("position", "length"), [(65_535, 2), (100_000, 100_000), (0, 0)])
    def test_warming_reads_the_units_around_and_stays_inside(self, tmp_path: Path, position: int, length: int) -> None:
        file = file_of(tmp_path / "file", bytes(200_000))
        file.warm(position, length)
        assert file.is_hot(position, max(length, 1), 1000)

    def test_cold_bytes_can_be_brought_in_by_who_may_wait(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file = file_of(tmp_path / "file", bytes(200_000))
        with monkeypatch.context() as patched:
            patched.setattr(MappedFile, "is_hot", lambda *_: False)
            wait = wait_of(file.read_lookup(150_000, 10))
        wait.warm()
        assert len(at_once(file.read_lookup(150_000, 10))) == 10


class TestListing:
    def test_files_come_in_the_order_of_their_offsets_and_the_rest_is_foreign(self, tmp_path: Path) -> None:
        offsets = [0, 1024, 10**18, 2**63 - 1]
        for offset in offsets[::-1]:
            (tmp_path / f"{offset:020d}").touch()
        foreign = ["1024", "abc", f"{0:021d}", f"{0:019d}", f"-{1:019d}", f"+{1:019d}", "9" * 20, f"{5:019d}\u00b2"]
        for name in foreign:
            (tmp_path / name).touch()
        (tmp_path / f"{2048:020d}").mkdir()
        files, others = list_segment_files(tmp_path)
        assert files == [(offset, tmp_path / f"{offset:020d}") for offset in offsets]
        assert sorted(path.name for path in others) == sorted([*foreign, f"{2048:020d}"])
