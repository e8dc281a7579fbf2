"""The messages of brokers for a program without an event loop: what `rocketlens.connect` returns.

Nothing is asked here: each method is made of the one of :class:`AsyncRemoteStore` that has its name.
"""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from protocol.errors import RocketLensError
from protocol.question import OFFSET_ID, Answer, KeyKind, message_id_of
from rocketlens.remote import AsyncRemoteStore, connect_async
from rocketlens.searching import AsyncSearch, Search
from rocketlens.source import Source, documented

if TYPE_CHECKING:
    from rocketlens.remote_pending import AsyncPending
    from storage.life.pending import Pending
    from storage.search.lookup import LookupStep
    from storage.search.step import Step

MOST_OF_A_TEXT: Final = 1_000_000
"""Messages that one text of a look-up names."""

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _connecting(ask: Callable[Arguments, AsyncRemoteStore]) -> "Callable[Arguments, RemoteStore]":
    """Make a function that connects for a program without an event loop."""

    @wraps(ask)
    def connect(*arguments: Arguments.args, **options: Arguments.kwargs) -> RemoteStore:
        return RemoteStore(ask(*arguments, **options))

    return connect


def _named_like(ask: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a method that is made the name, signature and docstring of the one that it is made of."""

    def name(plain: Callable[..., Any]) -> Callable[..., Any]:
        wraps(ask)(plain).__qualname__ = f"RemoteStore.{ask.__name__}"
        return plain

    return name


def _awaited(
    ask: Callable[Concatenate[AsyncRemoteStore, Arguments], Coroutine[Any, Any, Result]],
) -> "Callable[Concatenate[RemoteStore, Arguments], Result]":
    """Make a method that waits for the answer of one to be awaited."""

    @_named_like(ask)
    def plain(self: "RemoteStore", /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
        return self._wait(ask(self._remote, *arguments, **options))

    return plain


def _iterated(
    ask: Callable[Concatenate[AsyncRemoteStore, Arguments], AsyncGenerator[Result]],
) -> "Callable[Concatenate[RemoteStore, Arguments], Iterator[Result]]":
    """Make a method that gives one after the other what another gives to ``async for``."""

    @_named_like(ask)
    def plain(self: "RemoteStore", /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Iterator[Result]:
        return self._pieces(ask(self._remote, *arguments, **options))

    return plain


def _searched(
    ask: Callable[Concatenate[AsyncRemoteStore, Arguments], AsyncSearch],
) -> "Callable[Concatenate[RemoteStore, Arguments], Search]":
    """Make a search that waits for each step of another one."""

    @_named_like(ask)
    def plain(self: "RemoteStore", /, *arguments: Arguments.args, **options: Arguments.kwargs) -> Search:
        found = ask(self._remote, *arguments, **options)

        def steps() -> "Iterator[Step]":
            while (step := self._wait(found.next_step())) is not None:
                yield step

        return Search(steps())

    return plain


def _listed(
    ask: Callable[[AsyncRemoteStore], Coroutine[Any, Any, "AsyncPending"]],
) -> "Callable[[RemoteStore], Pending]":
    """Make a method that waits for what is pending, and for the messages of each list of it."""

    @_named_like(ask)
    def plain(self: "RemoteStore", /) -> "Pending":
        return self._wait(ask(self._remote)).plain(self._wait)

    return plain


@documented
class RemoteStore(Source):
    """The messages of brokers, from `rocketlens.connect`.

    A Java broker finds less than a store that is opened, and says less about what it did not find.
    """

    def __init__(self, remote: AsyncRemoteStore) -> None:
        """Use `rocketlens.connect`."""
        self._remote = remote
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    view = _awaited(AsyncRemoteStore.view)
    query = _awaited(AsyncRemoteStore.query)
    find = _awaited(AsyncRemoteStore.find)
    pull = _awaited(AsyncRemoteStore.pull)

    def _looked_up(
        self, texts: list[str], topic: str | None, kind: str | None, should_stop: Callable[[], bool]
    ) -> "Iterator[LookupStep]":
        """The steps of a look-up, one a text; how far it is counts the bytes of texts."""
        from storage.search.lookup import LookupStep, Match
        from storage.search.progress import ProgressReport

        started, total = time.monotonic(), sum(map(len, texts))
        found = done = 0
        for text in texts:
            if should_stop():
                return
            named = Answer()
            if kind is None and message_id_of(text) is not None:
                named = self.find(text, topic=topic, maximum=MOST_OF_A_TEXT, kind=OFFSET_ID)
            if not named:
                named = self.find(text, topic=topic, maximum=MOST_OF_A_TEXT, kind=kind or KeyKind.ANY.words)
            matches = tuple(Match(text, by, message) for message, by in zip(named, named.kinds, strict=True))
            found, done = found + len(matches), done + len(text)
            yield LookupStep(matches, ProgressReport(done, total, found, time.monotonic() - started), named.notes)

    follow = _iterated(AsyncRemoteStore.follow)
    search = _searched(AsyncRemoteStore.search)
    life = _awaited(AsyncRemoteStore.life)
    pending = _listed(AsyncRemoteStore.pending)
    space = _awaited(AsyncRemoteStore.space)
    doctor = _awaited(AsyncRemoteStore.doctor)
    topics = _awaited(AsyncRemoteStore.topics)
    queues = _awaited(AsyncRemoteStore.queues)
    info = _awaited(AsyncRemoteStore.info)
    groups = _awaited(AsyncRemoteStore.groups)

    def close(self) -> None:
        """Close the connections; calls that wait in other threads raise an error."""
        with self._starting:
            loop, self._loop, self._is_closed = self._loop, None, True
        if loop is not None:
            asyncio.run_coroutine_threadsafe(_shut(self._remote), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    def __repr__(self) -> str:
        return repr(self._remote).replace("AsyncRemoteStore", "RemoteStore")

    def _wait(self, asking: Coroutine[Any, Any, Result]) -> Result:
        """Wait for an answer. The loop runs on a thread of its own: a notebook has one on the caller's already."""
        with self._starting:
            if self._is_closed:
                asking.close()
                raise RocketLensError(f"{self!r} is closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=_run, args=(self._loop,), name="rocketlens-remote", daemon=True).start()
            future = asyncio.run_coroutine_threadsafe(asking, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise RocketLensError(f"{self!r} is closed") from None
        except BaseException:  # Ctrl-C too
            future.cancel()
            raise

    def _pieces(self, given: AsyncGenerator[Result]) -> Iterator[Result]:
        lock = asyncio.Lock()
        asked: asyncio.Task[Any] | None = None

        async def piece() -> Result:
            nonlocal asked
            async with lock:
                asked = asyncio.current_task()
                return await anext(given)

        async def end() -> None:
            # Ctrl-C may have come when a piece was asked for, and nobody waited for it yet.
            if asked is not None:
                asked.cancel()
            async with lock:  # a piece that is not waited for any more is being given up
                await given.aclose()

        try:
            while True:
                yield self._wait(piece())
        finally:
            self._end(end())

    def _end(self, ending: Coroutine[Any, Any, None]) -> None:
        """End what is awaited for an iterator that nobody asks any more."""
        with self._starting:
            loop = self._loop
        if loop is None:
            ending.close()
        else:
            asyncio.run_coroutine_threadsafe(ending, loop).result()


connect = _connecting(connect_async)


async def _shut(remote: AsyncRemoteStore) -> None:
    """Close the connections, and end what still waits for one."""
    await remote.close()
    waiting = asyncio.all_tasks() - {asyncio.current_task()}
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


def _run(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()
