"""Lists of light queues and of their offsets, against the oracle that splits them as Java does."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from dispatch_oracle import light_units
from dispatching import light_names, light_offsets, scan_bytes
from examples import examples
from kernel_memory import record_at
from store_files import property_bytes

lists = st.one_of(st.text("a%LMQ/, 1", max_size=12), light_names.map(",".join), light_offsets.map(",".join))


def units(names: str, offsets: str, topic: bytes = b"TopicTest") -> list[tuple[bytes, int, int]]:
    """Light queues that a message in queue 1 is in."""
    block = property_bytes({"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets})
    data = record_at(0, topic_bytes=topic, properties_bytes=block)
    made = scan_bytes(data).made
    found = [(*key[:2], offset) for key, queue in made.queues.items() if key[2] for offset in queue.offsets]
    records = list(oracles.scan_segment(data, 0))
    assert sorted(found) == sorted(light_units(records[0]))
    return found


@settings(max_examples=examples(60))
@given(lists, lists)
def test_any_lists_lead_to_the_units_of_the_oracle(names: str, offsets: str) -> None:
    units(names, offsets)


def test_lists_are_read_as_a_broker_reads_them() -> None:
    for names, offsets, expected in [
        ("%LMQ%a,%LMQ%b", "7,0", [(b"%LMQ%a", 0, 7), (b"%LMQ%b", 0, 0)]),
        ("%LMQ%a,other", "7,8", [(b"%LMQ%a", 0, 7), (b"other", 1, 8)]),
        ("other,%LMQ%a", ",8", [(b"%LMQ%a", 0, 8)]),
        ("%LMQ%a,other", "7,", []),  # Java drops the empty item at the end: the lists differ in length
        ("%LMQ%a,,", "7", [(b"%LMQ%a", 0, 7)]),
        ("%LMQ%a,%LMQ%b", "7", []),
        ("%LMQ%a/b,%LMQ%c", "1,2", [(b"%LMQ%c", 0, 2)]),
        ("%LMQ%a", "9223372036854775808", []),
        (",", "1", []),
        (" ", "1", []),
    ]:
        assert units(names, offsets) == expected


@pytest.mark.parametrize("topic", [b"%RETRY%g", b"rmq_sys_wheel_timer", b"SCHEDULE_TOPIC_XXXX"])
def test_messages_of_retry_and_system_topics_are_in_no_light_queue(topic: bytes) -> None:
    assert units("%LMQ%a", "7", topic) == []
