"""What a consumer must get of a store that was damaged, and made whole."""

from pathlib import Path

from interop.recovery_oracle import Consumed, Sizes
from trial_stores import GoodStore, Message

DEFAULT_FILE = 6_000_000


def sizes_of_mended(good: GoodStore, root: Path) -> Sizes:
    """What a broker is to be configured with once a damaged store is made whole.

    Where no file of plain queues is left, those that are made have a broker's default size, which is said.
    """
    has_size = any(path.stat().st_size for path in (root / "consumequeue").glob("*/*/" + "[0-9]" * 20))
    return Sizes(good.segment_size, good.queue_file_size if has_size else DEFAULT_FILE, slots=good.index_slots)


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
