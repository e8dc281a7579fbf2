"""Objects that are made of files, such as certificates and accounts, and made anew when these change.

If the files cannot be read anew the last good object stays in use; the error is logged once for each state of the
files. Where half a file could be taken for a whole one, as with accounts, a file counts only once nothing has written
to it for a while, and only if it did not change while it was read.
"""

import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from protocol.errors import ConfigError, RocketLensError

logger = logging.getLogger(__name__)

Made = TypeVar("Made")

WATCH_SECONDS = 1.0
"""How often the files are looked at."""

PATIENCE_SECONDS = 10.0
"""How long a start waits at most for files to be left alone."""

LOOK_AGAIN_SECONDS = 0.05

Stamp = tuple[tuple[int, int, int, int] | None, ...]
"""For each file its device, inode, size and time of modification (ns), None for a file that is not there."""


class Watched(Generic[Made]):
    """Holds the object that `load` made of the files last; the first load raises what `load` raises.

    Files that were written to less than `settle_seconds` ago are not read: at the start that is waited for, for
    `PATIENCE_SECONDS` at most, and a `ConfigError` raised then; later the next look reads them.
    """

    def __init__(
        self,
        what: str,
        paths: Sequence[Path],
        load: Callable[[], Made],
        settle_seconds: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._what, self._paths, self._load = what, paths, load
        self._settle_seconds = settle_seconds
        self._seen = self._look()
        self._seen_seconds = time.monotonic()
        self._wait_until_settled(sleep)
        self._stamp, self.current = self._seen, load()
        if settle_seconds and self._look() != self._stamp:
            raise ConfigError(f"{what}: changed while they were read; try again")

    def refresh(self) -> None:
        """Make it anew if a file has changed and settled. Reads files; not for the event loop."""
        if not self._is_settled() or self._seen == self._stamp:
            return
        stamp = self._seen
        try:
            made = self._load()
        except RocketLensError as error:
            self._stamp = stamp
            logger.error("%s cannot be reloaded, the earlier version stays in use: %s", self._what, error)
            return
        if self._settle_seconds and self._look() != stamp:
            return  # written to while it was read: the next look decides
        self._stamp, self.current = stamp, made
        logger.info("%s reloaded", self._what)

    def _wait_until_settled(self, sleep: Callable[[float], None]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._is_settled():
            if time.monotonic() >= deadline:
                raise ConfigError(
                    f"{self._what}: being written to for {PATIENCE_SECONDS:g} s already, so it may be incomplete"
                )
            sleep(LOOK_AGAIN_SECONDS)

    def _is_settled(self) -> bool:
        """Look at the files; whether nothing has written to them for `settle_seconds`.

        The time of a file counts, or that it looked the same for so long: a file may bear a time in the future.
        """
        stamp, now = self._look(), time.monotonic()
        if stamp != self._seen:
            self._seen, self._seen_seconds = stamp, now
        if now - self._seen_seconds >= self._settle_seconds:
            return True
        newest = max((each[3] for each in stamp if each is not None), default=0)
        return time.time_ns() - newest >= self._settle_seconds * 1e9

    def _look(self) -> Stamp:
        return tuple(map(_stamp_of, self._paths))


def _stamp_of(path: Path) -> tuple[int, int, int, int] | None:
    """The numbers that change with a file's content; links are followed, as secrets are often mounted behind some."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
