"""What waits of one connection is counted, with that of all others, until it is answered or given up."""

from collections.abc import Callable, Coroutine, Iterator

import pytest

from broker.limits import Limits
from broker.metrics.slow_queries import Visit
from broker.net._pending_requests import FIELD_COST, PendingRequest, PendingRequests
from broker.net.budget import PENDING_REQUEST_BYTES, ConnectionBudget
from broker.service.pending_reply import PENDING_REPLY_BYTES, PendingReply
from protocol.codes import RequestCode
from protocol.command import Command, Response
from storage.files.waiting import Lookup, Unfinished, Wait


class Given(PendingReply):
    """A reply that says whether it was given up."""

    is_given_up = False

    def give_up(self) -> None:
        self.is_given_up = True


class Work:
    """What is done for a request."""

    is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


async def _answer() -> Response:
    return Response()


def pending_with(**limits: int) -> tuple[PendingRequests, ConnectionBudget]:
    budget = ConnectionBudget(Limits(**limits), lambda: 0.0)
    return PendingRequests(budget), budget


PULL = Command(code=RequestCode.PULL_MESSAGE)


def waiting() -> Lookup[Response]:
    yield Wait("a page")
    return Response()


def look_up(command: Command = PULL) -> PendingRequest:
    wait = Wait("a page")
    return PendingRequest(command, Visit(wait), Unfinished(wait, waiting()))


@pytest.fixture
def other() -> Iterator[Callable[..., PendingRequest]]:
    """Makes requests that wait for something else than a thread."""
    coroutines: list[Coroutine[None, None, Response]] = []

    def make(command: Command = PULL) -> PendingRequest:
        coroutines.append(_answer())
        return PendingRequest(command, Visit(), coroutines[-1])

    yield make
    for each in coroutines:
        each.close()


def test_a_request_is_counted_until_it_is_answered() -> None:
    pending, budget = pending_with()
    request = look_up(Command(code=RequestCode.PULL_MESSAGE, body=b"body"))
    pending.add(request)
    assert (len(pending), pending.cost, budget.in_flight) == (1, PENDING_REQUEST_BYTES + 4, PENDING_REQUEST_BYTES + 4)
    pending.remove(request)
    assert (len(pending), pending.cost, budget.in_flight) == (0, 0, 0)


@pytest.mark.parametrize(
    ("fields", "size"),
    [({"topic": "T" * 100}, FIELD_COST + 105), ({"topic": "消" * 100}, FIELD_COST + 405), (b"[" * 500, 500)],
)
def test_fields_count_with_the_bytes_that_they_hold(fields: dict[str, str] | bytes, size: int) -> None:
    pending, _ = pending_with()
    pending.add(look_up(Command(code=RequestCode.PULL_MESSAGE, ext_fields=fields)))
    assert pending.cost == PENDING_REQUEST_BYTES + size


def test_a_request_that_waits_for_a_reply_is_counted_until_that_is_sent() -> None:
    pending, budget = pending_with()
    replies = [Given() for _ in range(3)]
    for each in replies:
        pending.add_reply(Command(code=RequestCode.PULL_MESSAGE), each)
    assert (len(pending), budget.in_flight) == (3, 3 * PENDING_REPLY_BYTES)
    pending.replied([replies[0]])
    assert (len(pending), budget.in_flight) == (2, 2 * PENDING_REPLY_BYTES)


def test_replies_that_may_never_come_are_given_up_alone_and_all_together(other: Callable[..., PendingRequest]) -> None:
    pending, _ = pending_with()
    requests = {Work(): look_up(), Work(): other()}
    for work, request in requests.items():
        pending.add(request)
        request.begin(work)
    reply = Given()
    pending.add_reply(Command(code=RequestCode.PULL_MESSAGE), reply)
    pending.give_up_replies()
    assert [work.is_cancelled for work in requests] == [False, False]
    assert reply.is_given_up
    pending.give_up()
    assert [work.is_cancelled for work in requests] == [True, True]


def test_what_is_begun_for_a_request_that_was_given_up_ends_at_once(other: Callable[..., PendingRequest]) -> None:
    request, work = other(), Work()
    request.give_up()
    request.begin(work)
    assert work.is_cancelled


def test_what_was_given_up_is_not_counted_out_twice() -> None:
    """Its answer may have been on its way."""
    pending, budget = pending_with()
    reply = Given()
    pending.add_reply(Command(code=RequestCode.PULL_MESSAGE), reply)
    pending.give_up()
    pending.replied([reply])
    assert (len(pending), pending.cost, budget.in_flight) == (0, 0, 0)


def test_one_connection_may_have_so_much_waiting(other: Callable[..., PendingRequest]) -> None:
    pending, _ = pending_with(lookups_per_connection=1)
    pending.add(other())
    assert not pending.is_much()
    pending.add(look_up())
    assert pending.is_much()
    pending, _ = pending_with(requests_per_connection=2)
    pending.add(other())
    assert not pending.is_much()
    pending.add_reply(Command(code=RequestCode.PULL_MESSAGE), Given())
    assert pending.is_much()
    pending, _ = pending_with(in_flight_bytes_per_connection=65_536)
    pending.add(other(Command(code=RequestCode.PULL_MESSAGE, body=bytes(63_000))))
    assert not pending.is_much()
    pending.add_reply(Command(code=RequestCode.PULL_MESSAGE), Given())
    assert pending.is_much()
