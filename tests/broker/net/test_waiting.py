"""What waits of one connection is counted, with that of all others, until it is answered or given up."""

import asyncio

import pytest

from broker.limits import Limits
from broker.net.budget import WAITING_COST, Costs
from broker.net.waiting import FIELD_COST, Waiting
from broker.service.dispatcher import Answer
from broker.service.pending_reply import DEFERRED_COST, Deferred, Outcome
from protocol.command import Command, Response

pytestmark = pytest.mark.asyncio


class Given(Deferred):
    """A deferred answer that says whether it was given up."""

    is_given_up = False

    def give_up(self) -> None:
        self.is_given_up = True


class FakeConnection:
    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting

    def answer_deferred(self, deferred: list[Deferred], _outcome: Outcome) -> None:
        self._waiting.answered(deferred)


def waiting_with(**limits: int) -> tuple[Waiting, Costs]:
    costs = Costs(Limits(**limits), lambda: 0.0)
    return Waiting(costs), costs


def future() -> "asyncio.Future[Answer]":
    return asyncio.get_running_loop().create_future()


async def test_a_request_is_counted_until_its_future_is_done() -> None:
    waiting, costs = waiting_with()
    command, found = Command(code=11, body=b"body"), future()
    waiting.add(command, found)
    assert (len(waiting), waiting.cost, costs.in_flight) == (1, WAITING_COST + 4, WAITING_COST + 4)
    assert waiting.done(found) is command
    assert (len(waiting), waiting.cost, costs.in_flight) == (0, 0, 0)


@pytest.mark.parametrize(
    ("fields", "size"),
    [({"topic": "T" * 100}, FIELD_COST + 105), ({"topic": "消" * 100}, FIELD_COST + 405), (b"[" * 500, 500)],
)
async def test_fields_count_with_the_bytes_that_they_hold(fields: dict[str, str] | bytes, size: int) -> None:
    waiting, _ = waiting_with()
    waiting.add(Command(code=11, ext_fields=fields), future())
    assert waiting.cost == WAITING_COST + size


async def test_a_deferred_request_is_counted_until_it_is_answered() -> None:
    waiting, costs = waiting_with()
    deferred = [Given() for _ in range(3)]
    for each in deferred:
        waiting.defer(Command(code=11), each, FakeConnection(waiting))
    assert (len(waiting), costs.in_flight) == (3, 3 * DEFERRED_COST)
    deferred[0].answer(Response())
    assert (len(waiting), costs.in_flight) == (2, 2 * DEFERRED_COST)


async def test_one_that_was_answered_before_it_was_counted_is_counted_out_at_once() -> None:
    waiting, costs = waiting_with()
    early = Given()
    early.answer(Response())
    waiting.defer(Command(code=11), early, FakeConnection(waiting))
    assert (len(waiting), costs.in_flight) == (0, 0)


async def test_given_up_is_all_but_look_ups_that_end_by_themselves() -> None:
    waiting, _ = waiting_with()
    look_up, other, deferred = future(), future(), Given()
    waiting.add(Command(code=11), look_up, is_look_up=True)
    waiting.add(Command(code=11), other)
    waiting.defer(Command(code=11), deferred, FakeConnection(waiting))
    waiting.give_up(but_look_ups=True)
    assert (look_up.cancelled(), other.cancelled(), deferred.is_given_up) == (False, True, True)
    waiting.give_up()
    assert look_up.cancelled()


async def test_what_was_given_up_is_not_counted_out_twice() -> None:
    """Its answer may have been on its way."""
    waiting, costs = waiting_with()
    deferred = Given()
    waiting.defer(Command(code=11), deferred, FakeConnection(waiting))
    waiting.give_up()
    waiting.answered([deferred])
    assert (len(waiting), waiting.cost, costs.in_flight) == (0, 0, 0)


async def test_one_connection_may_have_so_much_waiting() -> None:
    waiting, _ = waiting_with(lookups_per_connection=1)
    waiting.add(Command(code=11), future())
    assert not waiting.is_much()
    waiting.add(Command(code=11), future(), is_look_up=True)
    assert waiting.is_much()
    waiting, _ = waiting_with(requests_per_connection=2)
    waiting.add(Command(code=11), future())
    assert not waiting.is_much()
    waiting.defer(Command(code=11), Given(), FakeConnection(waiting))
    assert waiting.is_much()
    waiting, _ = waiting_with(in_flight_bytes_per_connection=65_536)
    waiting.add(Command(code=11, body=bytes(63_000)), future())
    assert not waiting.is_much()
    waiting.defer(Command(code=11), Given(), FakeConnection(waiting))
    assert waiting.is_much()
