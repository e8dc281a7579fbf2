"""The requests of one connection that wait: for a thread of the pool, for a message to arrive, for another worker."""

import asyncio
from typing import TYPE_CHECKING

from broker.net.budget import WAITING_COST, Costs
from broker.service.pending_reply import DEFERRED_COST, Asker, Deferred
from protocol.command import Command

if TYPE_CHECKING:
    from broker.service.dispatcher import Answer


FIELD_COST = 200
"""Bytes that a field of a request holds besides those of its texts."""

WIDEST = 4
"""Bytes that a character may take in memory where a text is not ASCII alone."""


def text_bytes(command: Command) -> int:
    """Bytes that the texts of a request's fields hold, or its fields as they came."""
    fields = command.ext_fields
    if isinstance(fields, bytes):
        return len(fields)
    return sum(len(text) if text.isascii() else WIDEST * len(text) for text in (*fields, *fields.values()))


class Waiting:
    """What waits, and what that holds in bytes (`cost`), which is counted with all connections' too."""

    __slots__ = ("_costs", "_deferred", "_futures", "_long", "_look_ups", "cost")

    def __init__(self, costs: Costs) -> None:
        self._costs = costs
        self._futures: dict[asyncio.Future[Answer], tuple[Command, int]] = {}
        self._look_ups: set[asyncio.Future[Answer]] = set()
        self._deferred: set[Deferred] = set()
        self._long: dict[Deferred, int] = {}
        self.cost = 0

    def __len__(self) -> int:
        return len(self._futures) + len(self._deferred)

    def is_much(self) -> bool:
        """Whether it is as much as one connection may have waiting."""
        limits = self._costs.limits
        return (
            len(self._look_ups) >= limits.lookups_per_connection
            or len(self) >= limits.requests_per_connection
            or self.cost > limits.in_flight_bytes_per_connection
        )

    def add(self, command: Command, future: "asyncio.Future[Answer]", *, is_look_up: bool = False) -> None:
        """Count in a request whose answer is a future's result."""
        fields = len(command.ext_fields) if isinstance(command.ext_fields, dict) else 0
        cost = WAITING_COST + FIELD_COST * fields + text_bytes(command) + len(command.body)
        self._futures[future] = command, cost
        if is_look_up:
            self._look_ups.add(future)
        self._count(cost)

    def done(self, future: "asyncio.Future[Answer]") -> Command:
        """Count out the request of a future, and return it."""
        command, cost = self._futures.pop(future)
        self._look_ups.discard(future)
        self._count(-cost)
        return command

    def defer(self, command: Command, deferred: Deferred, asker: Asker) -> None:
        """Count in a request that is answered with others; `asker` is told, perhaps at once."""
        self._deferred.add(deferred)
        size = text_bytes(command)
        if size > DEFERRED_COST:
            # Its texts are kept as long as it waits.
            self._long[deferred] = size
            self._count(size)
        self._count(DEFERRED_COST)
        deferred.deliver_to(asker, command)

    def answered(self, deferred: list[Deferred]) -> None:
        """Count out requests that are answered, as far as they were not given up."""
        before = len(self._deferred)
        self._deferred.difference_update(deferred)
        self._count(DEFERRED_COST * (len(self._deferred) - before))
        if self._long:
            self._count(-sum(self._long.pop(each, 0) for each in deferred))

    def give_up(self, *, but_look_ups: bool = False) -> None:
        """Wait for nothing any more: nobody is there to be answered. Look-ups end soon by themselves."""
        for future in self._futures.keys() - (self._look_ups if but_look_ups else ()):
            future.cancel()
        given_up = list(self._deferred)
        self.answered(given_up)
        for deferred in given_up:
            deferred.give_up()

    def _count(self, cost: int) -> None:
        self.cost += cost
        self._costs.in_flight += cost
