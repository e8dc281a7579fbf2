"""Follow a store that changes under a server: what a broker appends, and files that come, go or are replaced.

A broker appends through maps, which no file event tells of, so the word behind the log's end is looked at fifty times
a second: eight bytes, read and not mapped, for a file may be cut at any time. What stands there is taken in a moment
later, when it has been written whole, and then a few times more, since queue and index follow the log. Directories are
compared once a second.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from storage.kernels.record import MAGIC_BLANK

if TYPE_CHECKING:
    from storage.commit_log import CommitLog
    from storage.message_store import MessageStore

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.02
SETTLE_SECONDS: Final = (0.02, 0.06, 0.15, 0.5, 2.0)
"""After a message was seen the store is read anew at these times: the record may be half written, its queue unit and
index entries come later."""

WATCH_SECONDS: Final = 1.0
WORD: Final = 8
WATCHED: Final = ("commitlog", "index", "consumequeue", "batchconsumequeue", "consumequeue_ext", "config", "abort")

Stamp = tuple[tuple[int, int, int, int], ...]


class StoreFollower:
    """A thread that has the store read anew whenever something has changed; see the module's docstring."""

    def __init__(self, store: "MessageStore", refresh: Callable[[], object]) -> None:
        """Nothing is watched yet; `refresh` reads `store` anew, on the calling thread."""
        self._store, self._refresh = store, refresh
        self._over = threading.Event()
        self._seen = b""
        self._due: list[float] = []
        self._stamp = self._look_at_directories()
        self._next_watch = 0.0

    def run(self) -> None:
        """Follow until `stop`."""
        self._seen = self._end_of_log()
        while not self._over.wait(POLL_SECONDS):
            try:
                self._poll(time.monotonic())
            except Exception:
                logger.exception("the store could not be followed; what was read before is served on")
                self._over.wait(WATCH_SECONDS)

    def stop(self) -> None:
        """End the thread, soon."""
        self._over.set()

    def _poll(self, now: float) -> None:
        seen = self._end_of_log()
        if seen != self._seen and any(seen):
            self._due = [now + seconds for seconds in SETTLE_SECONDS]
        self._seen = seen
        if now >= self._next_watch:
            self._next_watch = now + WATCH_SECONDS
            stamp = self._look_at_directories()
            if stamp != self._stamp:
                self._stamp = stamp
                self._due = [now, *(due for due in self._due if due > now)]
        if self._due and now >= self._due[0]:
            self._due = [due for due in self._due if due > now]
            self._refresh()
            self._seen = self._end_of_log() if not self._due else b""

    def _end_of_log(self) -> bytes:
        """The word behind the last record; where the segment is full, the first word of the next one."""
        commit_log = self._store.snapshot.commit_log
        if not commit_log.segments:
            return b""
        last = commit_log.segments[-1]
        word = last.file.peek(last.valid_length, WORD)
        if len(word) == WORD and int.from_bytes(word[4:], "big", signed=True) != MAGIC_BLANK:
            return word
        return _first_word(commit_log, last.base_offset + last.file.size)

    def _look_at_directories(self) -> Stamp:
        layout = self._store.snapshot.layout
        paths = [layout.root / name for name in WATCHED]
        paths += layout.commit_log_directories
        segments = self._store.snapshot.commit_log.segments
        if segments:
            paths.append(segments[-1].file.path)
        return tuple(map(_stamp, paths))


def _first_word(commit_log: "CommitLog", base_offset: int) -> bytes:
    for directory in {segment.file.path.parent for segment in commit_log.segments}:
        try:
            with open(directory / f"{base_offset:020d}", "rb", buffering=0) as file:
                return file.read(WORD)
        except OSError:
            continue
    return b""


def _stamp(path: Path) -> tuple[int, int, int, int]:
    """What changes when a file is written or replaced, or names come and go in a directory."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0, 0, 0
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
