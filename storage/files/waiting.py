"""Look-ups that may have to wait, and how they say so.

The server answers from one thread, its event loop, which must never stand still for a page that is not in memory or for
a long walk. So a look-up that may meet such a thing is a generator: it yields a :class:`Wait` where it would have to
wait, which says for what, and goes on from there once it is resumed. The caller decides on which thread that happens.
The event loop takes one step (:func:`begin`); what is not answered by then is an :class:`Unfinished` look-up, which a
thread of a pool finishes. A thread that may wait calls :func:`finish` at once, or the plain method of the same name,
which :func:`plainly` makes.

A look-up asks whether pages are in memory before it reads them. A plain read does not ask.
"""

import time
from collections.abc import Callable, Generator, Iterable
from enum import Enum
from typing import Final, Generic, ParamSpec, TypeAlias, TypeVar

LONG_SCAN: Final = 1 << 20
"""Bytes of units that a look-up goes through before it asks for a thread that may wait: about 0.2 ms."""

Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


class WaitKind(Enum):
    """What a look-up would wait for."""

    PAGE = "a page that is not in memory"
    CHAIN = "a long chain of index entries"
    SCAN = "more to look through than the event loop may"
    PARSING = "more of what a client sent to read than the event loop may"


class Wait:
    """What a look-up would have to wait for before it can go on: the disk, or a thread that has the time.

    `reason` is a clause for people. :meth:`warm` reads what is missing, if anything is. `kind` is a page if something
    can be read, else a scan, unless it is given.
    """

    __slots__ = ("_warm", "kind", "reason")

    def __init__(self, reason: str, warm: Callable[[], None] | None = None, kind: WaitKind | None = None) -> None:
        self.reason = reason
        self._warm = warm
        self.kind = kind or (WaitKind.SCAN if warm is None else WaitKind.PAGE)

    def __str__(self) -> str:
        return self.reason

    def warm(self) -> None:
        """Read what was found missing into the page cache; blocks for the disk."""
        if self._warm is not None:
            self._warm()


Lookup: TypeAlias = Generator[Wait, None, Result]
"""A look-up in steps: it yields what it would wait for, goes on when resumed, and returns its result."""


class Unfinished(Generic[Result]):
    """A look-up that has to wait, and for what."""

    __slots__ = ("_lookup", "wait")

    def __init__(self, wait: Wait, lookup: Lookup[Result]) -> None:
        self.wait = wait
        self._lookup = lookup

    def finish(self) -> Result:
        """Wait for what is missing, and go on to the end, on a thread that may wait."""
        self.wait.warm()
        return self.resume()

    def resume(self) -> Result:
        """Go on to the end so, after :meth:`Wait.warm` was called."""
        return finish(self._lookup)

    def go_on(self) -> "Result | Unfinished[Result]":
        """Go on up to the next wait, after :meth:`Wait.warm` was called for this one."""
        return begin(self._lookup)


def begin(lookup: Lookup[Result]) -> Result | Unfinished[Result]:
    """Take a look-up as far as it comes without waiting: its result, or what is left to be done."""
    try:
        wait = next(lookup)
    except StopIteration as done:
        found: Result = done.value
        return found
    return Unfinished(wait, lookup)


def finish(lookup: Lookup[Result]) -> Result:
    """Take a look-up to its end, on a thread that may wait."""
    try:
        while True:
            next(lookup).warm()
    except StopIteration as done:
        found: Result = done.value
        return found


def all_of(lookups: Iterable[Lookup[Result]]) -> Lookup[list[Result]]:
    """The results of several look-ups, one after the other."""
    found: list[Result] = []
    for lookup in lookups:
        found += [(yield from lookup)]
    return found


def plainly(lookup: Callable[Parameters, Lookup[Result]]) -> Callable[Parameters, Result]:
    """The plain method for threads that may wait, of a method that makes a look-up; the arguments are the same."""

    def plain(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return finish(lookup(*args, **kwargs))

    plain.__doc__ = lookup.__doc__
    return plain


def current_tick() -> int:
    """What a look-up compares page heat with: seconds of the monotonic clock.

    Heat older than a second is asked for again; against 0 everything counts as hot.
    """
    return int(time.monotonic())


def long_scan(what: str) -> Wait:
    """What a look-up waits for that is about to go through more than the event loop may."""
    return Wait(f"a long scan: {what}")


class Allowance:
    """How much a look-up may go through before it asks for a thread that may wait; it asks once."""

    __slots__ = ("_left",)

    def __init__(self, most: int = LONG_SCAN) -> None:
        self._left: float = most

    def is_used_up_by(self, length: int) -> bool:
        """Count so much more; true the first time that it is more than allowed altogether."""
        self._left -= length
        if self._left >= 0:
            return False
        self._left = float("inf")
        return True
