"""A file behind a URL, read by ranges: in large pieces, ahead of a reader that goes on, with bounded retries.

Stores of objects answer 503, cut connections, and send less than was asked for. Each range is held against the size of
the file and asked for again, a few times with growing pauses; then the reading ends with one sentence. When it is over,
size and state of the file must still be what they were at first: otherwise the bytes are of two files.
"""

import contextlib
import random
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, Final, Self, TypeVar

import msgspec

from protocol.errors import StoreError
from spark_jobs.places.file_systems import file_system, is_url, said, state_of
from storage.log.log_window import ByteSource, LocalFile

Value = TypeVar("Value")

PIECE_BYTES: Final = 8 * 1024 * 1024
"""Asked for at once, by who reads on from where it was."""
PIECES_AHEAD: Final = 2
FETCHED_AT_ONCE: Final = 8
TRIES: Final = 6
FIRST_PAUSE_SECONDS: Final = 0.25
"""Before the second try; twice as long before each further one, less up to a half of it by chance."""

DIRECTORY: Final = -1

_FINAL: Final = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, ValueError, TypeError)


class RemoteReadError(StoreError):
    """A file behind a URL could not be read, or is no longer what it was: nothing is known of what it holds."""


class RemoteObject(msgspec.Struct, frozen=True, array_like=True):
    """A file as a listing had it. `state` changes with its content, "" where the file system says nothing of it.

    `size` is `DIRECTORY` of a directory that has the place of a file.
    """

    url: str
    size: int
    state: str = ""
    storage: str = ""


def persist(call: Callable[[], Value]) -> Value:
    """Call until that succeeds, a few times; raises the last error, or one that no further try would mend, at once."""
    for number in range(1, TRIES):
        try:
            return call()
        except Exception as error:  # each file system has errors of its own
            if isinstance(error, _FINAL) or "Credentials" in type(error).__name__:
                raise
        time.sleep(FIRST_PAUSE_SECONDS * 2 ** (number - 1) * random.uniform(0.5, 1))  # many tasks wait for one store
    return call()


def open_source(path: str | Path, known: RemoteObject | None = None, storage: str = "") -> ByteSource:
    """The bytes of a file of this machine or behind a URL; raises StoreError. `known`: how it was listed."""
    text = str(path)
    return RemoteFile(text, storage, known) if is_url(text) else LocalFile(Path(path))


class RemoteFile:
    """An object of an object store, or whatever else is behind a URL; a :class:`ByteSource`."""

    def __init__(self, url: str, storage: str, known: RemoteObject | None = None) -> None:
        """Look at it, unless it is `known`; raises StoreError."""
        self.path = url
        self._system, self._inner = file_system(url, known.storage if known is not None else storage)
        if known is None:
            try:
                known = persist(self._look)
            except Exception as error:  # each file system has errors of its own
                raise RemoteReadError(url, what=f"cannot be opened: {said(error)}") from error
        self._known = known
        self.size = known.size
        self._following = -1
        self._piece, self._piece_start = memoryview(b""), 0
        self._ahead: deque[tuple[int, Future[bytes]]] = deque()
        self._helper: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_into(self, view: memoryview, position: int) -> int:
        """As :class:`ByteSource` says; fewer bytes than asked for come at ends of pieces. Raises RemoteReadError."""
        stop = min(position + len(view), self.size)
        if stop <= position:
            return 0
        if not self._shows(position):
            goes_on = position == self._following
            self._following = stop
            if not goes_on:
                self._forget()
                data = self._fetch(position, stop)
                view[: len(data)] = data
                return len(data)
            self._take(position)
        inside = position - self._piece_start
        count = min(stop - position, len(self._piece) - inside)
        view[:count] = self._piece[inside : inside + count]
        self._following = position + count
        return count

    def first_data(self, position: int) -> int:
        """Holes are not known."""
        return position

    def copy_to(self, path: Path) -> None:
        """Write all of it into a new file of this machine."""
        with path.open("wb") as file:
            self.copy_range(file, 0, self.size)

    def copy_range(self, file: BinaryIO, start: int, stop: int) -> None:
        """Write bytes [start, stop) of it to the same positions of a file of this machine."""
        buffer = memoryview(bytearray(min(max(stop - start, 0), PIECE_BYTES)))
        file.seek(start)
        while start < stop:
            count = self.read_into(buffer[: stop - start], start)
            file.write(buffer[:count])
            start += count
        file.flush()

    def copy_pieces(self, file: BinaryIO, pieces: Iterable[tuple[int, int]]) -> None:
        """Write small pieces [start, stop) of it, which are fetched several at a time, as `copy_range` does."""
        with ThreadPoolExecutor(FETCHED_AT_ONCE, "fetching pieces") as pool:
            self._following = max(self._following, 0)
            waiting: deque[tuple[int, Future[bytes]]] = deque()
            for start, stop in pieces:
                waiting.append((start, pool.submit(self._fetch, start, stop)))
                if len(waiting) > FETCHED_AT_ONCE:
                    _write(file, *waiting.popleft())
            while waiting:
                _write(file, *waiting.popleft())
        file.flush()

    def close(self) -> None:
        """Give up what was asked for ahead. Raises RemoteReadError if the file has changed since it was listed."""
        self.release()
        if self._following >= 0:
            self._require_unchanged()

    def release(self) -> None:
        """Give up what was asked for ahead; for who looks by itself whether the file has changed."""
        self._forget()
        if self._helper is not None:
            self._helper.shutdown()
            self._helper = None

    def _shows(self, position: int) -> bool:
        return self._piece_start <= position < self._piece_start + len(self._piece)

    def _take(self, position: int) -> None:
        """Hold the piece at a position, the first of those ahead, and have the next ones fetched meanwhile."""
        if self._helper is None:
            self._helper = ThreadPoolExecutor(PIECES_AHEAD + 1, "reading ahead")
        if not self._ahead or self._ahead[0][0] != position:
            self._forget()
        start = self._ahead[-1][0] + PIECE_BYTES if self._ahead else position
        while len(self._ahead) <= PIECES_AHEAD and start < self.size:
            stop = min(start + PIECE_BYTES, self.size)
            self._ahead.append((start, self._helper.submit(self._fetch, start, stop)))
            start = stop
        self._piece = memoryview(b"")
        _, piece = self._ahead.popleft()
        self._piece, self._piece_start = memoryview(piece.result()), position

    def _forget(self) -> None:
        for _, piece in self._ahead:
            piece.cancel()
        self._ahead.clear()
        self._piece = memoryview(b"")

    def _fetch(self, start: int, stop: int) -> bytes:
        """Bytes [start, stop) of the file, all of them."""

        def fetch() -> bytes:
            data: bytes = self._system.cat_file(self._inner, start=start, end=stop)
            if len(data) != stop - start:
                raise OSError(f"{len(data)} bytes came of {stop - start}")
            return data

        try:
            return persist(fetch)
        except Exception as error:  # each file system has errors of its own
            with contextlib.suppress(OSError):
                self._require_unchanged(once=True)
            what = f"cannot be read at position {start}: {said(error)}"
            raise RemoteReadError(self.path, what=what) from error

    def _look(self) -> RemoteObject:
        self._system.invalidate_cache()
        info = self._system.info(self._inner)
        if info["type"] != "file" or info["size"] is None:
            raise FileNotFoundError("it is no file")
        return RemoteObject(self.path, int(info["size"]), state_of(info))

    def _require_unchanged(self, *, once: bool = False) -> None:
        """Raise RemoteReadError if the file is another one now, or gone."""
        try:
            found = self._look() if once else persist(self._look)
        except FileNotFoundError as error:
            raise RemoteReadError(self.path, what="was removed since it was listed") from error
        except Exception as error:  # each file system has errors of its own
            if once:
                return
            what = f"cannot be looked at once more after it was read: {said(error)}"
            raise RemoteReadError(self.path, what=what) from error
        if (found.size, found.state) != (self._known.size, self._known.state):
            states = [f"{each.size} bytes ({each.state or 'of unknown state'})" for each in (self._known, found)]
            raise RemoteReadError(self.path, what=f"has changed since it was listed: {states[0]}, and {states[1]} now")


def _write(file: BinaryIO, position: int, piece: "Future[bytes]") -> None:
    file.seek(position)
    file.write(piece.result())
