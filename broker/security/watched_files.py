"""Something made of files that is made anew when they change: certificates, accounts.

What cannot be read anew leaves the last good state in force; the error is logged once for each state of the files.
"""

import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from protocol.errors import RocketLensError

logger = logging.getLogger(__name__)

Made = TypeVar("Made")

WATCH_SECONDS = 1.0
"""How often the files are looked at."""


class Watched(Generic[Made]):
    """What `load` made of the files last; raises what `load` raises when it fails at first."""

    def __init__(self, what: str, paths: Sequence[Path], load: Callable[[], Made]) -> None:
        self._what, self._paths, self._load = what, paths, load
        self._stamp = self._look()
        self.current: Made = load()

    def refresh(self) -> None:
        """Make it anew if a file has changed. Reads files; not for the event loop."""
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self.current = self._load()
        except RocketLensError as error:
            logger.error("%s not read anew, what was read before stays in force: %s", self._what, error)
        else:
            logger.info("%s read anew", self._what)

    def _look(self) -> tuple[tuple[int, int, int, int] | None, ...]:
        return tuple(map(_stamp_of, self._paths))


def _stamp_of(path: Path) -> tuple[int, int, int, int] | None:
    """What changes with a file's content; links are followed, as secrets are often mounted behind some."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
