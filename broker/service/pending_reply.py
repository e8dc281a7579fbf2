"""Answers that come later, to many requests at once: what waits is some hundred bytes, no future and no Task.

Whoever makes a request wait gives its connection a `Deferred`, and answers any number of them with one `answer_all`:
each connection encodes the answer once and writes it in one piece for all its requests.
"""

import asyncio
from collections.abc import Generator, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

from protocol.command import Command, Response
from protocol.kernels.responses import ResponseTemplate

Outcome: TypeAlias = Response | BaseException
"""What a request is answered with; an error becomes the answer that the dispatcher makes of it."""

DEFERRED_COST = 512
"""Bytes that a deferred request is counted with."""


class Asker(Protocol):
    """A connection, as far as it is answered."""

    def answer_deferred(self, deferred: "list[Deferred]", outcome: Outcome) -> None:
        """Answer some of the requests that were deferred for it. The event loop's alone."""


class Deferred:
    """One request that waits. It may also be awaited, in place of a connection that is told."""

    __slots__ = ("asker", "command", "opaque", "outcome", "serialize_type")
    code = 0
    """The request code, for the log."""
    asker: Asker | None
    command: Command | None
    """The request, where its answer is checked before it leaves; None elsewhere, to hold no more than must be."""
    opaque: int
    outcome: Outcome | None
    serialize_type: int

    def __init__(self) -> None:
        self.asker = self.command = self.outcome = None
        self.opaque = self.serialize_type = 0

    def deliver_to(self, asker: Asker, command: Command) -> None:
        """Have the answer to a request sent to its connection; at once, if it came before this."""
        self.asker, self.opaque, self.serialize_type = asker, command.opaque, command.serialize_type
        if self.outcome is not None:
            asker.answer_deferred([self], self.outcome)

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
    """Stands in for a connection where a deferred answer is awaited."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def answer_deferred(self, deferred: list[Deferred], outcome: Outcome) -> None:
        if self.future.done():
            return
        if isinstance(outcome, Response):
            self.future.set_result(outcome)
        else:
            self.future.set_exception(outcome)


def by_asker(deferred: Iterable[Deferred], outcome: Outcome) -> list[tuple[Asker, list[Deferred]]]:
    """Requests sorted by who is to be told; those of whom that is not known yet are given their answer themselves."""
    found: dict[Asker, list[Deferred]] = {}
    for each in deferred:
        if each.asker is not None:
            found.setdefault(each.asker, []).append(each)
        else:
            each.outcome = outcome
    return list(found.items())


def answer_all(deferred: Iterable[Deferred], outcome: Outcome) -> None:
    """Answer requests alike."""
    for asker, some in by_asker(deferred, outcome):
        asker.answer_deferred(some, outcome)


class DueAnswers:
    """One answer on its way to some requests of a connection, rendered piece by piece as its client reads."""

    __slots__ = ("_left", "_templates")

    def __init__(self, deferred: list[Deferred], response: Response) -> None:
        """Encode an answer. Raises `BadCommand` for what the form of one of the requests cannot hold."""
        self._left: Iterator[Deferred] = iter(deferred)
        self._templates = {
            serialize_type: ResponseTemplate(serialize_type, response)
            for serialize_type in {each.serialize_type for each in deferred}
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
