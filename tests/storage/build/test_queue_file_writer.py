"""The files of a queue as one stream: bytes land where they belong, whenever memory is given back."""

import ctypes
import errno
import fcntl
import os
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.errors import StoreError
from queue_runs import files_under
from storage.build import queue_file_writer
from storage.build.queue_file_writer import (
    DIRECT_BYTES,
    FLUSH_BYTES,
    QueueFileWriter,
    fsync_file,
    fsync_tree,
    sync_file_system,
)


@pytest.fixture
def fsynced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: names.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    return names


@given(
    pieces=st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["", "", "flush"])), max_size=8),
    file_size=st.sampled_from([1, 7, 10, 100]),
    first=st.sampled_from([0, 3]),
)
def test_whatever_is_added_when_comes_out_as_one_stream(pieces, file_size, first, tmp_path_factory) -> None:
    directory = tmp_path_factory.mktemp("stream") / "queue"
    writer = QueueFileWriter(directory, file_size, first * file_size)
    stream = b""
    for number, (size, action) in enumerate(pieces):
        data = bytes([number + 1]) * size
        writer.append(memoryview(data))
        stream += data
        assert writer.position == first * file_size + len(stream)
        if action:
            writer.flush()
            assert writer.pending == 0
    count = writer.finish()
    files = files_under(directory)
    assert list(files) == [f"{(first + number) * file_size:020d}" for number in range(count)]
    assert b"".join(files.values()) == stream.ljust(count * file_size, b"\0")
    assert count == -(-len(stream) // file_size)


@pytest.mark.parametrize(("file_size", "is_refused"), [(999_999, True), (1 << 20, False)])
def test_long_pieces_past_the_page_cache_come_out_as_one_stream(file_size, is_refused, tmp_path, monkeypatch) -> None:
    write, direct = os.pwrite, 0

    def pwrite(descriptor: int, data: memoryview, position: int) -> int:
        nonlocal direct
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            direct += len(data)
            if is_refused:
                raise OSError(errno.EINVAL, "Invalid argument")
        return write(descriptor, data, position)

    monkeypatch.setattr(os, "pwrite", pwrite)
    random = Random(file_size)
    writer, stream = QueueFileWriter(tmp_path / "q", file_size), b""
    for size in (1, FLUSH_BYTES - 1, 4096, 5, 3 * FLUSH_BYTES + 7, DIRECT_BYTES, DIRECT_BYTES - 1, 2 * FLUSH_BYTES):
        data = random.randbytes(size)
        writer.append(data)
        stream += data
    count = writer.finish()
    assert b"".join(files_under(tmp_path / "q").values()) == stream.ljust(count * file_size, b"\0")
    assert direct > 0


def test_files_and_their_names_outlive_a_power_failure(tmp_path: Path, fsynced: list[str]) -> None:
    for name, size in (("topic/0", 25), ("topic/1", 5)):
        writer = QueueFileWriter(tmp_path / name, 10)
        writer.append(b"x" * size)
        writer.finish()
    assert QueueFileWriter(tmp_path / "none", 10).finish() == 0
    fsync_tree(tmp_path)
    everything = [tmp_path, *tmp_path.rglob("*")]
    assert sorted(fsynced) == sorted(map(str, everything))
    assert len(fsynced) == 1 + 3 + 3 + 1
    # Names come last: none outlives what it stands for.
    assert not any(Path(path).is_file() for path in fsynced[-4:])


def test_a_whole_file_system_is_synced_by_one_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sync_file_system(tmp_path)
    fsync_file(tmp_path)

    class Failing:
        def syncfs(self, _descriptor: int) -> int:
            ctypes.set_errno(5)
            return -1

    monkeypatch.setattr(queue_file_writer.ctypes, "CDLL", lambda *_, **__: Failing())
    with pytest.raises(StoreError, match="cannot be brought to the disk: Input/output error"):
        sync_file_system(tmp_path)
    synced: list[int] = []
    monkeypatch.setattr(queue_file_writer.ctypes, "CDLL", lambda *_, **__: object())
    monkeypatch.setattr(os, "sync", lambda *_: synced.append(1))
    sync_file_system(tmp_path)
    assert synced == [1]
