"""One big file out of page-aligned memory: whole or an error, however it is filled and wherever it lies."""

import contextlib
import errno
import fcntl
import os
import threading
import zlib
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.files import direct_writer
from storage.files.direct_writer import PAGE, GrowingFile, aligned_memory

CHUNK = 4 * PAGE


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_writer, "CHUNK", CHUNK)


def noise(size: int) -> bytes:
    return bytes((number * 131 + number // 251) % 255 + 1 for number in range(size))


@given(used=st.integers(1, 9 * CHUNK), hole=st.sampled_from([0, 1, PAGE, 3 * CHUNK]), first=st.integers(0, 3 * CHUNK),
       steps=st.lists(st.integers(0, 3 * CHUNK), max_size=8), forget=st.booleans())  # fmt: skip
def test_a_file_is_what_the_memory_was_at_the_end(used, hole, first, steps, forget, tmp_path_factory) -> None:
    """Behind `first` bytes are there when they are settled, before it only at the end; the checksum follows that."""
    path = tmp_path_factory.mktemp("file") / "file"
    memory, wanted = aligned_memory(used + hole), noise(used)
    first = min(first, used)
    with GrowingFile(path, memory, first, forget=forget) as file:
        memory[:first] = b"\xff" * first
        at = first
        for step in steps:
            stop = min(at + step, used)
            memory[at:stop] = wanted[at:stop]
            at = stop
            file.settle(at)
        memory[at:used] = wanted[at:]
        memory[:first] = wanted[:first]
        file.finish(used, used + hole)
    assert path.read_bytes() == wanted + bytes(hole)
    assert file.checksum == zlib.crc32(wanted[: file.first], zlib.crc32(wanted[file.first :]))
    assert memory[:used] == (bytes(used) if forget else wanted)


def test_whoever_fills_the_memory_waits_for_a_slow_disk_and_so_memory_is_bounded(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(direct_writer, "MOST_WAITING", 2 * CHUNK)
    allowed = threading.Semaphore(0)
    pwrite = os.pwrite

    def slow(descriptor: int, data: memoryview, position: int) -> int:
        allowed.acquire()
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", slow)
    memory = aligned_memory(8 * CHUNK)
    with GrowingFile(tmp_path / "file", memory, forget=True) as file:
        file.settle(2 * CHUNK)  # waits for nothing
        filler = threading.Thread(target=file.settle, args=(4 * CHUNK,))
        filler.start()
        for held in (3, 2):
            assert filler.is_alive()
            allowed.release()
            while file._settled - file._written > held * CHUNK:
                threading.Event().wait(0.001)
        filler.join()
        allowed.release(100)
        file.finish(8 * CHUNK, 8 * CHUNK)
    assert (tmp_path / "file").stat().st_size == 8 * CHUNK


def write_whole(path, memory, used, size) -> None:
    with GrowingFile(path, memory) as file:
        file.finish(used, size)


def test_where_pages_cannot_be_written_directly_they_go_through_the_cache(tmp_path, monkeypatch) -> None:
    """Some file systems take the flag and refuse the write."""
    written: list[bool] = []
    pwrite = os.pwrite

    def refusing(descriptor: int, data: memoryview, position: int) -> int:
        is_direct = bool(fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT)
        written.append(is_direct)
        if is_direct:
            raise OSError(errno.EINVAL, "Invalid argument")
        return pwrite(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", refusing)
    memory, wanted = aligned_memory(3 * CHUNK), noise(3 * CHUNK)
    memory[:] = wanted
    write_whole(tmp_path / "file", memory, len(wanted), len(wanted))
    assert (tmp_path / "file").read_bytes() == wanted
    assert written == [True, False, False, False]


def test_an_error_of_the_disk_is_raised_where_the_file_is_waited_for(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(os, "pwrite", Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(OSError, match="No space left on device"):
        write_whole(tmp_path / "file", aligned_memory(3 * CHUNK), 3 * CHUNK, 3 * CHUNK)


def test_whoever_fails_to_fill_the_memory_is_not_kept_waiting(tmp_path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    file = GrowingFile(tmp_path / "file", aligned_memory(3 * CHUNK))
    with contextlib.suppress(ZeroDivisionError), file:
        file.settle(PAGE)
        raise ZeroDivisionError
    assert not file._thread.is_alive()
    assert set(os.listdir("/proc/self/fd")) == before
