"""A window that moves over a segment, whatever its bytes come from."""

import ctypes
from pathlib import Path

import numpy as np
import pytest

from protocol.errors import StoreError
from storage.segments.log_window import LocalFile, LogWindow


class InPieces:
    """Hands out few bytes at once, and fails from a position on."""

    path = "store/0"

    def __init__(self, data: bytes, fails_at: int | None = None) -> None:
        self.data, self.size, self.fails_at, self.is_closed = data, len(data), fails_at, False

    def read_into(self, view: memoryview, position: int) -> int:
        if self.fails_at is not None and position >= self.fails_at:
            raise OSError("the line is dead")
        piece = self.data[position : position + min(len(view), 7)]
        view[: len(piece)] = piece
        return len(piece)

    def first_data(self, position: int) -> int:
        return position

    def close(self) -> None:
        self.is_closed = True


def bytes_of(window: LogWindow, position: int, size: int) -> bytes:
    assert window.show(position, size)
    return ctypes.string_at(window.region.address + position - window.start, size)


def test_what_is_shown_is_what_is_there() -> None:
    data = bytes(np.arange(20_000, dtype=np.uint16).astype(">u2").tobytes())
    source = InPieces(data)
    with LogWindow(source, 0, 4096) as window:
        for position, size in ((0, 10), (4000, 300), (39_000, 1000), (100, 20_000), (0, 40_000)):
            assert bytes_of(window, position, size) == data[position : position + size]
        assert not window.show(39_999, 2)
        assert not window.show(-1, 1)
        assert window.i32(8) == int.from_bytes(data[8:12], "big")
    assert source.is_closed


def test_a_failing_read_names_file_and_offset() -> None:
    expected = "0 at physical offset 1073741880: cannot be read: the line is dead"
    window = LogWindow(InPieces(bytes(9000), fails_at=50), 1 << 30, 4096)
    with window, pytest.raises(StoreError, match=expected):
        window.move(0)


def test_holes_are_stepped_over(tmp_path: Path) -> None:
    path = tmp_path / "0"
    with path.open("wb") as file:
        file.truncate(1 << 26)
    with LogWindow(LocalFile(path), 0) as window:
        window.move(0)
        assert window.find_candidate(1) == -1
        assert window.bytes_read < 1 << 23
