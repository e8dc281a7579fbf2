"""What a worker besides worker 0 knows of groups."""

from broker.workers.member import CopiedRegistry
from heartbeats import subscription
from protocol.bodies import SubscriptionData, decode_json, encode_json


def told(*subscriptions: dict[str, object]) -> bytes:
    return encode_json([decode_json(encode_json(one), SubscriptionData) for one in subscriptions])


def put(registry: CopiedRegistry, name: str, *subscriptions: dict[str, object]) -> None:
    registry.put(name, "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET", told(*subscriptions))


def test_whoever_remembers_what_a_group_chooses_by_can_tell_when_to_forget() -> None:
    """`changes` counts up with all that worker 0 tells, and with what a new one does not tell again."""
    registry = CopiedRegistry()
    put(registry, "G", subscription("T", "A"))
    put(registry, "H", subscription("T", "A"))
    before = registry.changes
    assert before > 0
    put(registry, "G", subscription("T", "B", 2))
    group = registry.consumer_group("G")
    assert group is not None
    assert group.subscriptions["T"].sub_string == "B"
    assert registry.changes > before
    before = registry.changes
    registry.doubt()
    assert registry.changes == before
    put(registry, "G", subscription("T", "B", 2))
    before = registry.changes
    registry.drop_doubtful()
    assert (registry.consumer_group("H"), registry.changes > before) == (None, True)
    before = registry.changes
    registry.drop("G")
    assert (registry.has_consumers, registry.changes > before) == (False, True)
