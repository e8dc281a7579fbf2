"""The threads on which look-ups wait for the disk, shared fairly among connections.

Each connection has a queue of its own, the queues take turns, and if there are several threads no connection has all of
them: a client that asks for one message on disk does not wait for thousands of another client.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias, TypeVar

Result = TypeVar("Result")

Work: TypeAlias = "tuple[Callable[[], Any], asyncio.Future[Any]]"


class LookupPool:
    """A pool of threads, started when first needed. Its methods are called on the event loop's thread only."""

    def __init__(self, threads: int, name: str = "lookup") -> None:
        """Make a pool of at most `threads` threads named `name`; one owner may use all but one, and at least one."""
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = threads
        self._share = max(threads - 1, 1)
        self._lines: dict[object, deque[Work]] = {}
        self._running: dict[object, int] = {}
        self._waiting = 0
        self._closed = False

    def __len__(self) -> int:
        """The number of works that are being done or wait for a thread."""
        return self._waiting

    def count(self, owner: object) -> int:
        """Count the works of an owner that are being done or wait for a thread."""
        return len(self._lines.get(owner, ())) + self._running.get(owner, 0)

    def run(self, owner: object, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Have `work` done when it is its owner's turn; if the future is cancelled before that, it is not done."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.cancel()
            return future
        self._waiting += 1
        self._lines.setdefault(owner, deque()).append((work, future))
        self._begin()
        return future

    def close(self) -> None:
        """Begin no further work; what has begun ends by itself."""
        self._closed = True
        for line in self._lines.values():
            self._waiting -= len(line)
            for _, future in line:
                future.cancel()
        self._lines.clear()
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _begin(self) -> None:
        while self._free and (owner := self._next_owner()) is not _NOBODY:
            work, future = self._taken(owner)
            if future.cancelled():
                self._waiting -= 1
                continue
            self._free -= 1
            self._running[owner] = self._running.get(owner, 0) + 1
            done = asyncio.get_running_loop().run_in_executor(self._executor, work)
            done.add_done_callback(partial(self._finished, owner, future))

    def _next_owner(self) -> object:
        """The first owner in line that does not use its share of threads yet."""
        return next((owner for owner in self._lines if self._running.get(owner, 0) < self._share), _NOBODY)

    def _taken(self, owner: object) -> Work:
        """Take an owner's first work; its queue goes behind the others."""
        line = self._lines.pop(owner)
        work = line.popleft()
        if line:
            self._lines[owner] = line
        return work

    def _finished(self, owner: object, future: "asyncio.Future[Any]", done: "asyncio.Future[Any]") -> None:
        self._waiting -= 1
        self._free += 1
        left = self._running[owner] - 1
        if left:
            self._running[owner] = left
        else:
            del self._running[owner]
        if not future.done():
            error = None if done.cancelled() else done.exception()
            if done.cancelled():
                future.cancel()
            elif error is not None:
                future.set_exception(error)
            else:
                future.set_result(done.result())
        elif not done.cancelled():
            done.exception()
        if not self._closed:
            self._begin()


_NOBODY = object()
