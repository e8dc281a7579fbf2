"""A window that moves over a segment, whatever its bytes come from."""

import errno
import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from examples import examples
from kernel_memory import headers_in_one_another, record_at
from protocol.errors import StoreError, TruncatedFile
from storage.kernels.records import SUM_PATIENCE, SUM_STEP
from storage.kernels.texts import bytes_at
from storage.log.log_window import LocalFile, LogWindow


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
    return bytes(window.region)[position - window.start :][:size]


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


class AtOnce(InPieces):
    def read_into(self, view: memoryview, position: int) -> int:
        piece = self.data[position : position + len(view)]
        view[: len(piece)] = piece
        return len(piece)


@pytest.mark.parametrize("is_mapped", [True, False])
def test_headers_in_one_another_are_not_summed_up_again_and_again(tmp_path, is_mapped) -> None:
    """Each is that of a record which goes to the end, but for its checksum; sound ones stand among them."""
    base, step, count = 1 << 32, 150, 8_000
    size = step * count + 200
    log = headers_in_one_another(base, step, count)
    sound = {step * number: record_at(base + step * number, body=b"", topic_bytes=b"T") for number in (5, 4000, 7999)}
    for position, record in sound.items():
        assert len(record) < step
        log[position : position + step] = record.ljust(step, bytes(1))
    path = tmp_path / "0"
    path.write_bytes(log)
    with LogWindow(LocalFile(path) if is_mapped else AtOnce(bytes(log)), base, 4096) as window:
        position, intact = -1, {}
        while (position := window.find_candidate(position + 1)) >= 0:
            if found := window.intact_size(position):
                intact[position] = found
                window.move(position + found)
        assert intact == {position: len(record) for position, record in sound.items()}
        # One by one it would be some 5 GB.
        assert window._summed_for_nothing <= SUM_PATIENCE + size
        assert window._sums.summed <= 2 * size + 2 * count * SUM_STEP


def test_a_failing_read_names_file_and_offset() -> None:
    expected = "0 at physical offset 1073741880: cannot be read: the line is dead"
    window = LogWindow(InPieces(bytes(9000), fails_at=50), 1 << 30, 4096)
    with window, pytest.raises(StoreError, match=expected):
        window.move(0)


@pytest.fixture(params=["mapped", "copied"])
def held_as(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "copied":
        monkeypatch.setattr(LocalFile, "map", kernel_is_too_old)
    return str(request.param)


def kernel_is_too_old(file):
    raise OSError(errno.EINVAL, "pages cannot be read")


def written(path, size):
    data = np.random.default_rng(7).integers(0, 256, size, np.uint8).tobytes()
    path.write_bytes(data)
    return data


def test_holes_are_stepped_over(disk_path, held_as) -> None:
    path = disk_path / "0"
    with path.open("wb") as file:
        file.truncate(1 << 26)
    with LogWindow(LocalFile(path), 0) as window:
        window.move(0)
        assert window.find_candidate(1) == -1
        assert window.bytes_read < 1 << 23


@given(moves=st.lists(st.tuples(st.integers(0, 3 << 20), st.integers(0, 1 << 20), st.booleans()), max_size=12))
@settings(max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_is_shown_wherever_the_window_goes(tmp_path_factory, held_as, moves) -> None:
    path = tmp_path_factory.mktemp("file") / "0"
    data = written(path, (3 << 20) + 77)
    with LogWindow(LocalFile(path), 0, 3 * 65536 + 5) as window:
        for position, size, goes_on in moves:
            at = min(window.start + position % (window.filled + 1), len(data)) if goes_on else position
            window.move(at)
            assert window.start == at
            assert bytes_of_region(window) == data[at : at + window.filled]
            assert window.show(at, size) == (at + size <= len(data))
            assert bytes_of_region(window) == data[window.start : window.start + window.filled]
            assert window.filled >= size or at + size > len(data)


def bytes_of_region(window: LogWindow) -> bytes:
    return bytes_at(window.region, 0, window.filled)


@pytest.mark.parametrize("kept", [0, (1 << 22) + 1])
def test_a_file_that_is_cut_while_it_is_read_is_named(tmp_path, held_as, kept) -> None:
    path, size = tmp_path / "00000000000000000000", 1 << 23
    written(path, size)
    with LogWindow(LocalFile(path), 0, 1 << 20) as window:
        window.move(0)
        os.truncate(path, kept)
        found = kept if held_as == "mapped" else max(kept, window.filled)  # a copy stays
        with pytest.raises(TruncatedFile, match=f"{path}: needs {size} bytes, but only {found} are there"):
            read_on(window)


def read_on(window: LogWindow) -> None:
    while not window.is_at_end:
        window.move(window.start + window.filled)


def look_while_it_is_cut(path, kept) -> None:
    with LogWindow(LocalFile(path), 0) as window:
        window.move(0)
        os.truncate(path, kept)
        assert bytes_of_region(window)[kept:] == bytes(window.filled - kept)


def test_what_was_made_of_a_file_that_was_cut_meanwhile_does_not_count(tmp_path) -> None:
    path, size = tmp_path / "0", 1 << 21
    written(path, size)
    with pytest.raises(TruncatedFile, match=f"needs {size} bytes, but only 4096 are there"):
        look_while_it_is_cut(path, 4096)
