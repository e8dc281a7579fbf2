"""What waits of one connection is counted, with that of all others, until it is answered or given up."""

import pytest

from broker.limits import Limits
from broker.metrics.slow_queries import Visit
from broker.net._pending_requests import FIELD_COST, PendingRequest, PendingRequests
from broker.net.budget import PENDING_REQUEST_BYTES, ConnectionBudget
from broker.service.pending_reply import PendingReply
from protocol.codes import RequestCode
from protocol.command import Command, Response
from storage.files.waiting import Lookup, Unfinished, Wait


class Given(PendingReply):
    """A reply that says whether it was given up."""

    is_given_up = False

    def give_up(self) -> None:
        self.is_given_up = True


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


@pytest.mark.parametrize(
    ("fields", "size"),
    [({"topic": "T" * 100}, FIELD_COST + 105), ({"topic": "消" * 100}, FIELD_COST + 405), (b"[" * 500, 500)],
)
def test_fields_count_with_the_bytes_that_they_hold(fields: dict[str, str] | bytes, size: int) -> None:
    pending, budget = pending_with()
    request = look_up(Command(code=RequestCode.PULL_MESSAGE, ext_fields=fields, body=b"body"))
    pending.add(request)
    assert (len(pending), pending.cost) == (1, PENDING_REQUEST_BYTES + size + 4)
    pending.remove(request)
    assert (len(pending), pending.cost, budget.in_flight) == (0, 0, 0)


def test_what_was_given_up_is_not_counted_out_twice() -> None:
    """Its answer may have been on its way."""
    pending, budget = pending_with()
    reply = Given()
    pending.add_reply(Command(code=RequestCode.PULL_MESSAGE), reply)
    pending.give_up()
    pending.replied([reply])
    assert (len(pending), pending.cost, budget.in_flight) == (0, 0, 0)
