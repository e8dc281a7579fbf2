"""Whether the calling thread may wait for the disk, and how storage says that it would have to.

The server answers from one thread, its event loop, which must never stand still for a cold page or a long walk. That
thread declares itself with :func:`forbid_waiting`; from then on storage raises :class:`Cold` there instead of
waiting, and the dispatcher runs the same lookup again in a thread pool, where waiting is allowed. Every other thread
simply waits.
"""

import threading
import time
from collections.abc import Callable
from enum import Enum
from typing import Final

LONG_SCAN: Final = 1 << 20
"""Bytes of units that a thread which may not wait goes through at a time: about 0.2 ms."""


class ColdKind(Enum):
    """Why a lookup may not be made on a thread that must not wait."""

    PAGE = "a page that is not in memory"
    CHAIN = "a long chain of index entries"
    SCAN = "more to look through than such a thread may"
    PARSING = "more of what a client sent to read than such a thread may"


class Cold(Exception):
    """This lookup would wait for the disk or run long: do it again on a thread that may wait.

    ``warm`` (when given) brings in what was missing; call it on the other thread first. ``kind`` says what it would
    wait for; unless told, a page if that can be brought in, else a scan.
    """

    def __init__(self, reason: str, warm: Callable[[], None] | None = None, kind: ColdKind | None = None) -> None:
        super().__init__(reason)
        self._warm = warm
        self.kind = kind or (ColdKind.SCAN if warm is None else ColdKind.PAGE)

    @property
    def origin(self) -> "Cold":
        """Itself; whoever watches over one says so too."""
        return self

    def without_frames(self) -> "Cold":
        """Itself, to be handed on: the frames it came through would keep their snapshot until a collection."""
        self.__traceback__ = self.__context__ = None
        return self

    def warm(self) -> None:
        """Read what was found missing into the page cache; blocks for the disk."""
        if self._warm is not None:
            self._warm()


class _Patience(threading.local):
    may_wait = True


_patience = _Patience()


def forbid_waiting() -> None:
    """Declare that the calling thread must never wait for the disk (the server's event loop)."""
    _patience.may_wait = False


def allow_waiting() -> None:
    """Undo :func:`forbid_waiting` for the calling thread."""
    _patience.may_wait = True


def may_wait() -> bool:
    """Whether the calling thread may wait for the disk; true unless it said otherwise."""
    return _patience.may_wait


def current_tick() -> int:
    """What a lookup of this thread compares page heat with: seconds of the monotonic clock, or 0 where it may wait.

    Heat older than a second is asked for again; against 0 everything counts as hot.
    """
    return 0 if _patience.may_wait else int(time.monotonic())


def refuse_long_scan(length: int, what: str, limit: int = LONG_SCAN) -> None:
    """Raise Cold when a scan of more than `limit` would hold up a thread that may not wait."""
    if length > limit and not may_wait():
        raise Cold(f"a long scan: {what}")
