"""What connections may cost together: bytes, requests that wait, and turns of the loop."""

import asyncio
import logging
from functools import partial

import pytest

from broker.limits import MIB, Limits
from broker.metrics.slow_queries import Visit
from broker.net._pending_requests import FIELD_COST, PendingRequest, PendingRequests
from broker.net.budget import COMPLAINTS, COMPLAINTS_SECONDS, PENDING_REQUEST_BYTES, ConnectionBudget
from broker.net.scheduler import SLICE_BYTES, SMALL_READ, Scheduler
from protocol.codes import RequestCode
from protocol.command import Command, Response
from storage.files.waiting import Unfinished, Wait

LIMITS = Limits(received_bytes=10 * MIB, unsent_bytes=10 * MIB, frame_seconds=60, reader_seconds=60)


class Peer:
    def __init__(self, unsent_bytes: int = 0) -> None:
        self.unsent_bytes = unsent_bytes
        self.owes_rest = True
        self.reasons: list[str] = []

    def drop(self, reason: str) -> None:
        self.reasons.append(reason)


def sizes(*peers):
    return {peer: partial(getattr, peer, "unsent_bytes") for peer in peers}


@pytest.fixture
def costs(clock) -> ConnectionBudget:
    return ConnectionBudget(LIMITS, clock)


def test_what_is_received_is_the_sum_of_what_connections_hold(costs: ConnectionBudget) -> None:
    first, second = Peer(), Peer()
    costs.holds(first, 100, is_new=True)
    costs.holds(second, 50, is_new=True)
    costs.holds(first, 300, is_new=False)
    assert costs.received == 350
    costs.holds(first, 20, is_new=True)
    costs.forget(second)
    assert costs.received == 20
    costs.holds(first, 0, is_new=False)
    costs.holds(second, 0, is_new=True)
    assert costs.received == 0


def test_whoever_is_longest_at_one_request_goes_when_too_much_is_held(costs: ConnectionBudget) -> None:
    oldest, busy, newest = Peer(), Peer(), Peer()
    costs.holds(oldest, MIB, is_new=True)
    costs.holds(busy, 4 * MIB, is_new=True)
    costs.holds(oldest, 2 * MIB, is_new=False)
    costs.holds(newest, 5 * MIB, is_new=True)
    assert "received_bytes" in oldest.reasons[0]
    assert costs.received == 9 * MIB
    # One that completes a request stands behind all others again.
    costs.holds(busy, 4 * MIB, is_new=True)
    costs.holds(Peer(), 2 * MIB, is_new=True)
    assert (len(newest.reasons), busy.reasons) == (1, [])


def test_a_request_has_to_be_complete_in_time(costs, clock) -> None:
    slow, quick, held = Peer(), Peer(), Peer()
    for peer in (slow, quick, held):
        costs.holds(peer, 10, is_new=True)
    held.owes_rest = False
    clock.seconds += 59
    costs.sweep(sizes(slow, quick, held))
    costs.holds(slow, 11, is_new=False)
    costs.holds(quick, 11, is_new=True)
    clock.seconds += 2
    costs.sweep(sizes(slow, quick, held))
    assert "frame_seconds" in slow.reasons[0]
    assert quick.reasons == held.reasons == []
    held.owes_rest = True
    clock.seconds += 61
    costs.sweep(sizes(quick, held))
    assert quick.reasons
    assert held.reasons


def test_a_client_that_is_not_read_has_to_read_in_time(costs, clock) -> None:
    slow, quick = Peer(), Peer()
    costs.reads_slowly(slow)
    costs.reads_slowly(quick)
    costs.reads_again(quick)
    clock.seconds += 61
    costs.sweep(sizes(slow, quick))
    assert "reader_seconds" in slow.reasons[0]
    assert quick.reasons == []


def test_too_much_that_nobody_reads_closes_the_slow_first_then_the_largest(costs: ConnectionBudget) -> None:
    slow, large, small = Peer(3 * MIB), Peer(6 * MIB), Peer(5 * MIB)
    costs.reads_slowly(slow)
    costs.sweep(sizes(slow, large, small))
    assert [len(peer.reasons) for peer in (slow, large, small)] == [1, 1, 0]
    assert costs.unsent == 5 * MIB


def test_complaints_about_clients_do_not_fill_the_log(costs, clock, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(COMPLAINTS + 30):
            costs.complain("client %d", number)
        assert len(caplog.records) == COMPLAINTS
        clock.seconds += COMPLAINTS_SECONDS
        costs.complain("client again")
    messages = [record.getMessage() for record in caplog.records[-2:]]
    assert messages == ["30 more such warnings were not logged", "client again"]


def pending_with(**limits: int) -> tuple[PendingRequests, ConnectionBudget]:
    budget = ConnectionBudget(Limits(**limits), lambda: 0.0)
    return PendingRequests(budget), budget


PULL = Command(code=RequestCode.PULL_MESSAGE)


def waiting():
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


class Client:
    def __init__(self, turns, work, had_turn) -> None:
        self.turns = turns
        self.work = work
        self.had_turn = had_turn

    def go_on(self) -> None:
        self.had_turn(self)
        self.work -= 1
        if self.work:
            self.turns.join(self)


async def test_one_of_the_line_has_its_turn_in_each_turn_of_the_loop_and_all_in_order() -> None:
    turns, had = Scheduler(asyncio.get_running_loop().call_soon), list[Client | None]()
    first, second = Client(turns, 3, had.append), Client(turns, 2, had.append)
    for client in (first, second, second):
        turns.join(client)
    for _ in range(6):
        await asyncio.sleep(0)
        had.append(None)
    assert had == [first, None, second, None, first, None, second, None, first, None, None]


async def test_who_waits_makes_the_others_answer_in_slices() -> None:
    turns = Scheduler(asyncio.get_running_loop().call_soon)
    assert (turns.is_crowded, turns.stop(10 * SMALL_READ)) == (False, 10 * SMALL_READ)
    turns.join(Client(turns, 1, lambda client: None))
    assert (turns.is_crowded, turns.stop(10 * SMALL_READ), turns.stop(100)) == (True, SLICE_BYTES, 100)
