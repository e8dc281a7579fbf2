"""Shares of a topic's queues: all shares together are all queues, each as RocketMQ's own formulas have it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.service.consumers.queue_allocation import STRATEGIES, averagely, by_circle

NUMBERS = st.integers(1, 40)


def averagely_by_formula(queues: int, members: int, place: int) -> list[int]:
    """As AllocateMessageQueueAveragely computes it."""
    rest = queues % members
    is_larger = rest > 0 and place < rest
    share = 1 if queues <= members else queues // members + is_larger
    begin = place * share if is_larger else place * share + rest
    return [(begin + number) % queues for number in range(min(share, queues - begin))]


def by_circle_by_formula(queues: int, members: int, place: int) -> list[int]:
    """As AllocateMessageQueueAveragelyByCircle computes it."""
    return [number for number in range(place, queues) if number % members == place]


@given(NUMBERS, NUMBERS, st.data())
def test_a_share_is_what_a_broker_assigns(queues: int, members: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, members - 1))
    assert list(averagely(queues, members, place)) == averagely_by_formula(queues, members, place)
    assert list(by_circle(queues, members, place)) == by_circle_by_formula(queues, members, place)


@pytest.mark.parametrize("name", ["AVG", "AVG_BY_CIRCLE"])
@given(queues=NUMBERS, members=NUMBERS)
def test_every_queue_is_one_members(name: str, queues: int, members: int) -> None:
    shares = [STRATEGIES[name](queues, members, place) for place in range(members)]
    assert sorted(queue for share in shares for queue in share) == [*range(queues)]
    lengths = [len(share) for share in shares]
    assert max(lengths) - min(lengths) <= 1
