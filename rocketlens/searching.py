"""A search by content as it runs: messages one after the other, and how far it is."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from protocol.message import Message
from storage.search.progress import ProgressReport

if TYPE_CHECKING:
    from rocketlens.hidden_whole import Hiding
    from storage.search.step import Step


Found = TypeVar("Found")


class FoundByPieces(Iterator[Found]):
    """Results that are found while they are asked for, one after the other or piece by piece."""

    _rest: Iterator[Found] = iter(())
    """What is left of the last piece."""

    def __next__(self) -> Found:
        while True:
            found = next(self._rest, None)
            if found is not None:
                return found
            self._rest = iter(next(self.pieces()))

    @abstractmethod
    def pieces(self) -> Iterator[Sequence[Found]]:
        """Yield the results piece by piece, some pieces empty: `progress` changes with each."""


class Search(FoundByPieces[Message]):
    """Messages in the order of the log, found while they are asked for; what is not asked for is not searched.

    >>> search = store.search(topic="TopicTest", contains="hot", limit=2)
    >>> [message.body for message in search]
    [b'hot 0', b'hot 1']
    >>> search.cursor is not None  # where another search for the same goes on
    True
    """

    def __init__(self, steps: "Iterable[Step]", hiding: "Hiding | None" = None) -> None:
        """Use :meth:`Store.search`."""
        self._steps, self._hiding = iter(steps), hiding
        self.progress = ProgressReport(0, 0, 0, 0.0)
        """How much of the log is searched so far, and how much there is to search."""
        self.cursor: str | None = None
        """Where another search for the same goes on behind what was found; None at the end of the log."""
        self.notes: tuple[str, ...] = ()
        """At the end: how it was searched, and what could not be."""
        self.store = ""
        """The directory of the store of the message, or piece, that came last, where several stores are searched."""

    def pieces(self) -> Iterator[tuple[Message, ...]]:
        """The pieces, some without any message."""
        for step in self._steps:
            self.progress, self.cursor, self.notes = step.progress, step.cursor, step.notes
            self.store = step.store
            yield tuple(message.detached() for message in step.messages)
        if self._hiding is not None:
            self._hiding.warn()


class AsyncSearch(AsyncIterator[Message]):
    """As :class:`Search`, over the network: the messages of a topic."""

    def __init__(self, steps: "AsyncIterator[Step]") -> None:
        """Use :meth:`AsyncRemoteStore.search`."""
        self._steps = steps
        self._messages: Iterator[Message] = iter(())
        self.progress = ProgressReport(0, 0, 0, 0.0)
        """How much of the topic's queues is searched; how much there is to search is an estimate."""
        self.cursor: str | None = None
        """Where another search for the same goes on behind what was found; None at the end of the queues."""
        self.notes: tuple[str, ...] = ()
        """What could not be searched."""

    async def __anext__(self) -> Message:
        while True:
            message = next(self._messages, None)
            if message is not None:
                return message
            step = await self.next_step()
            if step is None:
                raise StopAsyncIteration
            self._messages = iter(step.messages)

    async def next_step(self) -> "Step | None":
        """What the next pull brings, None at the end."""
        step = await anext(self._steps, None)
        if step is not None:
            self.progress, self.cursor, self.notes = step.progress, step.cursor, step.notes
        return step
