"""The messages that wait in the store of a server, over the network: what `AsyncRemoteStore.pending` returns."""

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self, TypeAlias

from protocol.message import Message
from storage.life.pending import EVERYTHING, Pending, PendingMessage, PendingTopic, PendingWindow

Asking: TypeAlias = Coroutine[Any, Any, list[Message | None]]
"""Asks for the messages at physical offsets; None where there is none."""


class AsyncPending:
    """As :class:`storage.life.pending.Pending`: an async context manager; a list's messages are asked for as it goes.

    `as_of` says up to when deliveries are known, `incomplete` what may be missing.
    """

    def __init__(self, known: Pending, messages_at: Callable[[Sequence[int]], Asking]) -> None:
        """Use :meth:`AsyncRemoteStore.pending`."""
        self._known, self._messages_at = known, messages_at
        self.as_of, self.incomplete = known.as_of, known.incomplete

    def topics(self, window: PendingWindow = EVERYTHING) -> list[PendingTopic]:
        """What waits by real topic, those with the most messages first."""
        return self._known.topics(window)

    async def messages(self, window: PendingWindow = EVERYTHING, limit: int = -1) -> AsyncIterator[PendingMessage]:
        """The messages, the next one that is due first; at most `limit` of them unless that is negative."""
        for rows in self._known.listed(window, limit):
            for message in self._known.joined(rows, await self._messages_at([row[1] for row in rows])):
                yield message

    def plain(self, wait: Callable[[Asking], list[Message | None]]) -> Pending:
        """Return the list for a program without an event loop; `wait` waits for messages."""
        return self._known.asking(lambda places: wait(self._messages_at(places)))

    def close(self) -> None:
        """Delete the temporary database."""
        self._known.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
