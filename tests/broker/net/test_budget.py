"""Who is closed first when all connections together cost too much."""

import logging
from collections.abc import Callable
from functools import partial

import pytest

from broker.limits import MIB, Limits
from broker.net.budget import COMPLAINTS, COMPLAINTS_SECONDS, ConnectionBudget
from still_clock import StillClock

LIMITS = Limits(received_bytes=10 * MIB, unsent_bytes=10 * MIB, frame_seconds=60, reader_seconds=60)


class Peer:
    """A connection that only notes why it was dropped."""

    def __init__(self, unsent_bytes: int = 0) -> None:
        self.unsent_bytes = unsent_bytes
        self.owes_rest = True
        self.reasons: list[str] = []

    def drop(self, reason: str) -> None:
        self.reasons.append(reason)


def sizes(*peers: Peer) -> dict[Peer, Callable[[], int]]:
    """What each has not read, as connections tell it."""
    return {peer: partial(getattr, peer, "unsent_bytes") for peer in peers}


@pytest.fixture
def costs(clock: StillClock) -> ConnectionBudget:
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


def test_a_request_has_to_be_complete_in_time(costs: ConnectionBudget, clock: StillClock) -> None:
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


def test_a_client_that_is_not_read_has_to_read_in_time(costs: ConnectionBudget, clock: StillClock) -> None:
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


def test_complaints_about_clients_do_not_fill_the_log(
    costs: ConnectionBudget, clock: StillClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(COMPLAINTS + 30):
            costs.complain("client %d", number)
        assert len(caplog.records) == COMPLAINTS
        clock.seconds += COMPLAINTS_SECONDS
        costs.complain("client again")
    assert [record.getMessage() for record in caplog.records[-2:]] == [
        "30 more such warnings were not logged",
        "client again",
    ]
