"""Work over many pieces by several threads, whose results come in the order of the pieces."""

import itertools
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

AHEAD: Final = 2
"""Pieces a thread that are worked on, or wait for it, before their results are asked for."""

_POOLS: Final = itertools.count()
"""Numbers of the pools of this process, in the names of their threads."""

Piece = TypeVar("Piece")
Result = TypeVar("Result")


def in_ordered_threads(
    name: str, function: Callable[[Piece], Result], pieces: Iterable[Piece], threads: int
) -> Generator[Result, None, None]:
    """What a function makes of each piece, in order, a few pieces ahead of what is asked for.

    One thread: in the caller's own. ``name`` is in the names of the threads. Raises what the function raises, and
    then, as after ``close()``, no further piece begins.
    """
    if threads == 1:
        yield from map(function, pieces)
        return
    pool_name = f"{name}-{next(_POOLS)}"
    pool = ThreadPoolExecutor(threads, pool_name)
    waiting: deque[Future[Result]] = deque()
    try:
        for piece in pieces:
            waiting.append(pool.submit(function, piece))
            if len(waiting) > threads * AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        # What nobody closed ends where it is collected, which may be on one of its own threads: none waits for itself.
        is_own_thread = threading.current_thread().name.startswith(f"{pool_name}_")
        pool.shutdown(wait=not is_own_thread, cancel_futures=True)
