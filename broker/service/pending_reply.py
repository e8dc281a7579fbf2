"""Answers that come later, to many requests at once: a waiting request takes some hundred bytes, no future, no Task.

A handler that makes a request wait returns a `PendingReply` to its connection. One call of `answer_all` answers any
number of them: each connection encodes the answer once and writes it in one piece for all its requests.
"""

import asyncio
from collections.abc import Generator, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

from protocol.command import Command, Response
from protocol.kernels.responses import ResponseTemplate

Outcome: TypeAlias = Response | BaseException
"""The answer to a request, or an error, from which the dispatcher makes the answer."""

PENDING_REPLY_BYTES = 512
"""Bytes that a request waiting for such a reply is counted with."""


class ReplyReceiver(Protocol):
    """A connection, as far as it sends replies."""

    def send_replies(self, replies: "list[PendingReply]", outcome: Outcome) -> None:
        """Answer some of the connection's waiting requests. Called on the event loop only."""


class PendingReply:
    """One request that waits for its answer. It may also be awaited, if no connection takes the answer."""

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
        """Have the answer to a request sent to its connection; at once, if there is one already."""
        self.receiver, self.opaque, self.serialize_type = receiver, command.opaque, command.serialize_type
        if self.outcome is not None:
            receiver.send_replies([self], self.outcome)

    def keep(self, outcome: Outcome) -> None:
        """Keep an answer that came before `deliver_to` was called."""
        self.outcome = outcome

    def answer(self, outcome: Outcome) -> None:
        """Answer this request alone."""
        answer_all([self], outcome)

    def give_up(self) -> None:
        """Stop waiting, because the connection is gone."""

    def __await__(self) -> Generator[Any, None, Response]:
        waiter = _Waiter()
        self.deliver_to(waiter, Command(code=0))
        return waiter.future.__await__()


class _Waiter:
    """Takes the place of a connection where a reply is awaited."""

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
    """Group requests by the connection that gets the answer; those without a connection yet keep the answer."""
    found: dict[ReplyReceiver, list[PendingReply]] = {}
    for each in replies:
        if each.receiver is not None:
            found.setdefault(each.receiver, []).append(each)
        else:
            each.keep(outcome)
    return list(found.items())


def answer_all(replies: Iterable[PendingReply], outcome: Outcome) -> None:
    """Give several requests the same answer."""
    for receiver, some in by_receiver(replies, outcome):
        receiver.send_replies(some, outcome)


class QueuedReplies:
    """One answer to several requests of a connection, encoded piece by piece as the client reads."""

    __slots__ = ("_left", "_templates")

    def __init__(self, replies: list[PendingReply], response: Response) -> None:
        """Encode an answer. Raises `BadCommand` if the serialization of one of the requests cannot represent it."""
        self._left: Iterator[PendingReply] = iter(replies)
        self._templates = {
            serialize_type: ResponseTemplate(serialize_type, response)
            for serialize_type in {each.serialize_type for each in replies}
        }

    def piece(self, limit: int) -> tuple[list[bytes | memoryview], int, bool]:
        """Return buffers of about `limit` bytes, their number of bytes, and whether they are the last ones."""
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
