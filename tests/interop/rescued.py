"""What a consumer must get of a store that was damaged, and made whole."""

from interop.recovery_oracle import Consumed
from trial_stores import GoodStore, Message


def compare(good: GoodStore, readable: list[Message], consumed: dict[tuple[str, int], Consumed], trace: object) -> None:
    """Every readable message arrives in each of its queues, in order, and what arrives is a message of the queue."""
    for queue in good.queues:
        found = consumed.get(queue)
        expected = [each.physical_offset for each in readable if queue in each.places]
        arrived = [] if found is None else list(found.places)
        assert set(expected) <= set(arrived), (trace, queue, sorted(set(expected) - set(arrived)))
        known = {each.physical_offset for each in good.of_queue(queue)}
        assert set(arrived) <= known, (trace, queue, sorted(set(arrived) - known))
        assert sorted(set(arrived)) == list(dict.fromkeys(arrived)), (trace, queue)
