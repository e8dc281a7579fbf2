"""The messages of brokers that run, for a program without an event loop: what `rocketlens.connect` returns."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from broker.cluster.client import TOOLS_GROUP
from protocol.errors import RocketLensError
from protocol.message import Message
from rocketlens.answers import FoundMessages, Group, Info, Messages, PulledMessages, Topic
from rocketlens.arguments import MOST_FOUND, MOST_PULLED, QueryOptions, SearchOptions, Time, subscription
from rocketlens.remote import AsyncRemoteStore, connect_async

if TYPE_CHECKING:
    import ssl

    from rocketlens.searching import Search
    from storage.search.step import Step
    from storage.store.extents import QueueExtent

Answer = TypeVar("Answer")


def connect(
    address: str | None = None,
    *,
    access_key: str | None = None,
    secret_key: str | None = None,
    tls: "bool | ssl.SSLContext" = False,
    group: str = TOOLS_GROUP,
    timeout_seconds: float = 15.0,
    connect_timeout_seconds: float = 3.0,
) -> "RemoteStore":
    """Ask a broker at ``HOST:PORT``, any RocketMQ broker or a RocketLens server, or those that a name server names.

    Connections are made when something is first asked. `access_key` and `secret_key` sign every request, where the
    broker asks for that. `tls` is True for TLS with the authorities that this machine trusts, or an `ssl.SSLContext`.
    `group` is the consumer group of pulls, by default that of RocketMQ's tools, which every broker has; name another
    where accounts have rights by group, one that exists, since some brokers make those that do not.
    Each answer is waited for `timeout_seconds` at most. Without an address :meth:`RemoteStore.view` alone is possible,
    which then dials the address in an offset message id.

    Raises :class:`ConfigError` for an address that is none; every failure to get an answer is a :class:`ClientError`.
    """
    return RemoteStore(
        connect_async(
            address,
            access_key=access_key,
            secret_key=secret_key,
            tls=tls,
            group=group,
            timeout_seconds=timeout_seconds,
            connect_timeout_seconds=connect_timeout_seconds,
        )
    )


class RemoteStore:
    """The messages of a broker, from `rocketlens.connect`; a context manager that may be used from several threads.

    Answers are those of :class:`Store`, as far as a broker gives them: a Java broker finds less, and says less about
    what it did not find. Raises :class:`ResponseError` where a broker refuses, :class:`ClientError` where none answers,
    or answers what is no answer.
    """

    def __init__(self, remote: AsyncRemoteStore) -> None:
        """Use `rocketlens.connect`."""
        self._remote = remote
        self._starting = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def view(self, id: int | str, *, topic: str | None = None) -> Messages:
        """The message that an id names: an offset message id, a physical offset, or a unique key.

        Without `topic` a unique key is looked up in every topic that the server knows.

        >>> remote.view("7F00000100002A9F00000000000019B5")[0].body
        b'hot 0'
        """
        return self._wait(self._remote.view(id, topic=topic))

    def query(
        self,
        topic: str,
        **options: Unpack[QueryOptions],
    ) -> Messages:
        """As :meth:`Store.query`, from every broker of the topic; a Java broker ignores `cursor` and `copies`.

        >>> len(remote.query("TopicTest", key="hotkey"))
        40
        """
        return self._wait(self._remote.query(topic, **options))

    def find(
        self,
        text: str,
        *,
        topic: str | None = None,
        begin: Time | None = None,
        end: Time | None = None,
        maximum: int = MOST_FOUND,
    ) -> FoundMessages:
        """As :meth:`Store.find`; each topic is asked about, which takes a broker with many topics some time.

        >>> [message.keys for message in remote.find("BB")]
        [['BB'], ['tagcollide2']]
        """
        return self._wait(self._remote.find(text, topic=topic, begin=begin, end=end, maximum=maximum))

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        maximum: int = MOST_PULLED,
        tag: str | None = None,
        sql: str | None = None,
    ) -> PulledMessages:
        """As :meth:`Store.pull`; nothing is committed, and no consumer group is made.

        >>> [message.queue_offset for message in remote.pull("TopicTest", 0, 0, maximum=3)]
        [0, 1, 2]
        """
        return self._wait(self._remote.pull(topic, queue_id, offset, maximum=maximum, tag=tag, sql=sql))

    def follow(
        self, topic: str, offsets: Mapping[int, int], *, tag: str | None = None, sql: str | None = None
    ) -> Iterator[list[Message]]:
        """As :meth:`Store.follow`: a pull of each queue waits at the broker, and none of them commits anything.

        >>> next(remote.follow("TopicTest", {0: 11, 1: 15, 2: 13, 3: 12}))[0].body
        b'hot 38'
        """
        subscription(tag, sql)
        following = self._remote.follow(topic, offsets, tag=tag, sql=sql)

        lock = asyncio.Lock()

        async def piece() -> list[Message]:
            async with lock:
                return await anext(following)

        async def end() -> None:
            async with lock:  # a piece that is not waited for any more is being given up
                await following.aclose()

        def pieces() -> Iterator[list[Message]]:
            try:
                while True:
                    yield self._wait(piece())
            finally:
                self._end(end())

        return pieces()

    def _end(self, ending: Coroutine[Any, Any, None]) -> None:
        """End what is awaited for an iterator that nobody asks any more."""
        with self._starting:
            loop = self._loop
        if loop is None:
            ending.close()
        else:
            asyncio.run_coroutine_threadsafe(ending, loop).result()

    def search(
        self,
        *,
        topic: str,
        **options: Unpack[SearchOptions],
    ) -> "Search":
        """As :meth:`Store.search`, of one topic: its queues are pulled to their end, one after the other.

        All messages of the topic come over the network, those stored before `begin` excepted.

        >>> [message.body for message in remote.search(topic="TopicTest", contains="hot 3", limit=2)]
        [b'hot 30', b'hot 34']
        """
        from rocketlens.searching import Search

        found = self._remote.search(topic=topic, **options)

        def steps() -> "Iterator[Step]":
            while (step := self._wait(found.next_step())) is not None:
                yield step

        return Search(steps())

    def topics(self) -> list[Topic]:
        """All topics by name; a name server says no numbers of queues."""
        return self._wait(self._remote.topics())

    def queues(self, topic: str) -> "list[QueueExtent]":
        """As :meth:`Store.queues`; a broker does not say when the first message of a queue was stored.

        >>> [(queue.queue_id, queue.min_offset, queue.max_offset) for queue in remote.queues("TopicBatch")]
        [(0, 0, 0), (1, 0, 10), (2, 0, 0), (3, 0, 0)]
        """
        return self._wait(self._remote.queues(topic))

    def info(self) -> Info:
        """As :meth:`Store.info`, as far as a broker says it.

        >>> remote.info().end_offset
        156014
        """
        return self._wait(self._remote.info())

    def groups(self) -> list[Group]:
        """All consumer groups of a broker by name, with the offsets that they have committed."""
        return self._wait(self._remote.groups())

    def close(self) -> None:
        """Close the connections."""
        with self._starting:
            loop, self._loop, self._is_closed = self._loop, None, True
        if loop is not None:
            asyncio.run_coroutine_threadsafe(_shut(self._remote), loop).result()
            loop.call_soon_threadsafe(loop.stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._remote).replace("AsyncRemoteStore", "RemoteStore")

    def _wait(self, asking: Coroutine[Any, Any, Answer]) -> Answer:
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
