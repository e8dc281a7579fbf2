"""The requests of one session that wait: for a thread of the pool, for a message to arrive, for another worker."""

from collections.abc import Awaitable
from typing import Protocol

from broker.metrics.slow_queries import Visit
from broker.net.budget import PENDING_REQUEST_BYTES, ConnectionBudget
from broker.service.dispatcher import Answer
from broker.service.pending_reply import PENDING_REPLY_BYTES, PendingReply
from protocol.command import Command, Response, sent_fields_of
from storage.files.waiting import Unfinished
from storage.kernels.file_map import count_cuts

FIELD_COST = 200
"""Bytes that a field of a request holds besides those of its texts."""

WIDEST = 4
"""Bytes that a character may take in memory where a text is not ASCII alone."""


def text_bytes(command: Command) -> int:
    """Bytes that the texts of a request's fields hold, or its fields as they came."""
    fields = sent_fields_of(command)
    if isinstance(fields, bytes):
        return len(fields)
    return sum(len(text) if text.isascii() else WIDEST * len(text) for text in (*fields, *fields.values()))


class Cancellable(Protocol):
    """A future or a task that works for a request."""

    def cancel(self) -> object:
        """Stop the work."""


class PendingRequest:
    """One request that waits for an answer of its own.

    `work` becomes its answer: an awaitable, or a look-up that is to go on on a thread. `visit` watches over it.
    `cuts` is how often files had been cut under their maps before.
    """

    __slots__ = ("_is_given_up", "_running", "command", "cost", "cuts", "visit", "work")

    def __init__(self, command: Command, visit: Visit, work: Awaitable[Response] | Unfinished[Answer]) -> None:
        self.command, self.visit, self.work = command, visit, work
        self.cuts = count_cuts()
        fields = sent_fields_of(command)
        count = 0 if isinstance(fields, bytes) else len(fields)
        self.cost = PENDING_REQUEST_BYTES + FIELD_COST * count + text_bytes(command) + len(command.body)
        """What it holds, in bytes."""
        self._running: Cancellable | None = None
        self._is_given_up = False

    @property
    def is_look_up(self) -> bool:
        """Whether it waits for a thread, which ends soon by itself."""
        return isinstance(self.work, Unfinished)

    def begin(self, work: Cancellable) -> None:
        """Note the work that is under way for it; work for a request that was given up before ends at once."""
        self._running = work
        if self._is_given_up:
            work.cancel()

    def give_up(self) -> None:
        """Stop waiting: the client is gone."""
        self._is_given_up = True
        if self._running is not None:
            self._running.cancel()


class PendingRequests:
    """What waits, and the bytes that it holds (`cost`), which is counted with all connections' too."""

    __slots__ = ("_budget", "_long", "_look_ups", "_replies", "_requests", "cost")

    def __init__(self, budget: ConnectionBudget) -> None:
        self._budget = budget
        self._requests: set[PendingRequest] = set()
        self._look_ups = 0
        self._replies: set[PendingReply] = set()
        self._long: dict[PendingReply, int] = {}
        self.cost = 0

    def __len__(self) -> int:
        return len(self._requests) + len(self._replies)

    def is_much(self) -> bool:
        """Whether the waiting requests reach the limit of one connection."""
        limits = self._budget.limits
        return (
            self._look_ups >= limits.lookups_per_connection
            or len(self) >= limits.requests_per_connection
            or self.cost > limits.in_flight_bytes_per_connection
        )

    def add(self, request: PendingRequest) -> None:
        """Count in a request that gets an answer of its own."""
        self._requests.add(request)
        self._look_ups += request.is_look_up
        self._count(request.cost)

    def remove(self, request: PendingRequest) -> None:
        """Count out one that has its answer, or was given up."""
        self._requests.remove(request)
        self._look_ups -= request.is_look_up
        self._count(-request.cost)

    def add_reply(self, command: Command, reply: PendingReply) -> None:
        """Count in a request that is answered with others."""
        self._replies.add(reply)
        size = text_bytes(command)
        if size > PENDING_REPLY_BYTES:
            # Its texts are kept as long as it waits.
            self._long[reply] = size
            self._count(size)
        self._count(PENDING_REPLY_BYTES)

    def replied(self, replies: list[PendingReply]) -> None:
        """Count out requests that are answered, as far as they were not given up."""
        before = len(self._replies)
        self._replies.difference_update(replies)
        self._count(PENDING_REPLY_BYTES * (len(self._replies) - before))
        if self._long:
            self._count(-sum(self._long.pop(each, 0) for each in replies))

    def give_up(self) -> None:
        """Give up all requests, because the client is gone; each is counted until what is done for it has ended."""
        for request in list(self._requests):
            request.give_up()
        self.give_up_replies()

    def give_up_replies(self) -> None:
        """Give up the requests that wait for an event which may never come; the others end by themselves."""
        given_up = list(self._replies)
        self.replied(given_up)
        for reply in given_up:
            reply.give_up()

    def _count(self, cost: int) -> None:
        self.cost += cost
        self._budget.count_waiting(cost)
