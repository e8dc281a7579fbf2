"""Answers that come later, to many requests at once: what waits is some hundred bytes, no future and no Task.

A handler that makes a request wait returns a `PendingReply` to its connection. Any number of them are answered with one
`answer_all`: each connection encodes the answer once and writes it in one piece for all its requests.
"""

import asyncio
from collections.abc import Generator, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

from protocol.command import Command, Response
from protocol.kernels.responses import ResponseTemplate

Outcome: TypeAlias = Response | BaseException
"""What a request is answered with; an error becomes the answer that the dispatcher makes of it."""

PENDING_REPLY_BYTES = 512
"""Bytes that a request waiting for such a reply is counted with."""


class ReplyReceiver(Protocol):
    """A connection, as far as it is answered."""

    def send_replies(self, replies: "list[PendingReply]", outcome: Outcome) -> None:
        """Answer some of the requests that wait for a reply to it. The event loop's alone."""


class PendingReply:
    """One request that waits. It may also be awaited, where no connection takes the answer."""

    __slots__ = ("opaque", "outcome", "receiver", "serialize_type")
    code = 0
    """The request code, for the log."""
    receiver: ReplyReceiver | None
    opaque: int
    outcome: Outcome | None
    serialize_type: int

    def __init__(self) -> None:
        self.receiver = self.outcome = None
        self.opaque = self.serialize_type = 0

    def deliver_to(self, receiver: ReplyReceiver, command: Command) -> None:
        """Have the answer to a request sent to its connection; at once, if it came before this."""
        self.receiver, self.opaque, self.serialize_type = receiver, command.opaque, command.serialize_type
        if self.outcome is not None:
            receiver.send_replies([self], self.outcome)

    def keep(self, outcome: Outcome) -> None:
        """Keep an answer that came before it was known where to send it."""
        self.outcome = outcome

    def answer(self, outcome: Outcome) -> None:
        """Answer this request alone."""
        answer_all([self], outcome)

    def give_up(self) -> None:
        """Wait no longer: nobody is there to be answered."""

    def __await__(self) -> Generator[Any, None, Response]:
        waiter = _Waiter()
        self.deliver_to(waiter, Command(code=0))
        return waiter.future.__await__()


class _Waiter:
    """Stands in for a connection where a reply is awaited."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def send_replies(self, replies: list[PendingReply], outcome: Outcome) -> None:
        if self.future.done():
            return
        if isinstance(outcome, Response):
            self.future.set_result(outcome)
        else:
            self.future.set_exception(outcome)


def by_receiver(replies: Iterable[PendingReply], outcome: Outcome) -> list[tuple[ReplyReceiver, list[PendingReply]]]:
    """Sort requests by the connection that gets the answer; those that were not yet delivered to one keep it."""
    found: dict[ReplyReceiver, list[PendingReply]] = {}
    for each in replies:
        if each.receiver is not None:
            found.setdefault(each.receiver, []).append(each)
        else:
            each.keep(outcome)
    return list(found.items())


def answer_all(replies: Iterable[PendingReply], outcome: Outcome) -> None:
    """Answer requests alike."""
    for receiver, some in by_receiver(replies, outcome):
        receiver.send_replies(some, outcome)


class QueuedReplies:
    """One answer on its way to some requests of a connection, rendered piece by piece as its client reads."""

    __slots__ = ("_left", "_templates")

    def __init__(self, replies: list[PendingReply], response: Response) -> None:
        """Encode an answer. Raises `BadCommand` for what the form of one of the requests cannot hold."""
        self._left: Iterator[PendingReply] = iter(replies)
        self._templates = {
            serialize_type: ResponseTemplate(serialize_type, response)
            for serialize_type in {each.serialize_type for each in replies}
        }

    def piece(self, limit: int) -> tuple[list[bytes | memoryview], int, bool]:
        """Buffers of about ``limit`` bytes, how many bytes they hold, and whether that was all."""
        output: list[bytes | memoryview] = []
        size = 0
        for each in self._left:
            template = self._templates[each.serialize_type]
            output.append(template.head(each.opaque))
            if template.body:
                output.append(template.body)
            size += template.size
            if size >= limit:
                return output, size, False
        return output, size, True
