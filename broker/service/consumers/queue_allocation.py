"""How the members of a consumer group share the queues of a topic, where the server does it for them.

There are the two strategies that a broker has, under the names by which clients ask for them. Each member gets its
share from the sorted lists of queues and of client ids, so that all shares together are all queues. Source: RocketMQ's
AllocateMessageQueueAveragely and AllocateMessageQueueAveragelyByCircle.

This is a module of its own because it is arithmetic alone, and needs neither requests nor the service.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

Strategy: TypeAlias = Callable[[int, int, int], range]
"""Returns the numbers of one member's queues for the number of queues, of members, and its place among them."""


def averagely(queues: int, members: int, place: int) -> range:
    """Give each member neighbouring queues; the first members get one more each where the number does not divide."""
    share, rest = divmod(queues, members)
    begin = place * share + min(place, rest)
    return range(begin, begin + share + (place < rest))


def by_circle(queues: int, members: int, place: int) -> range:
    """Give one queue to each member in turn, round after round."""
    return range(place, queues, members)


STRATEGIES: Final[Mapping[str, Strategy]] = MappingProxyType({"AVG": averagely, "AVG_BY_CIRCLE": by_circle})
