"""Numbers of queues and their units sorted, against dictionaries."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from dispatch_oracle import dispatch
from dispatching import scan_bytes, segment
from examples import examples

BASE = 1 << 20
topics = st.one_of(
    st.binary(min_size=0, max_size=12),
    st.sampled_from(
        [b"Aa", b"BB", b"AaAa", b"BBBB", b"TopicTest", b"TopicTest1", b"TopicTest12345678", b"TopicTest1234567"]
    ),
)


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(topics, st.integers(-2, 2), st.integers(0, 4)), max_size=30), st.integers(1, 30))
def test_units_are_grouped_by_queue_and_cut_where_offsets_jump(
    messages: list[tuple[bytes, int, int]], records: int
) -> None:
    changes = [
        {"topic_bytes": topic, "queue_id": queue_id, "queue_offset": offset} for topic, queue_id, offset in messages
    ]
    data, _ = segment(changes, BASE)
    scanned = scan_bytes(data, BASE, records=records)
    expected = dispatch(oracles.scan_segment(data, BASE))
    assert scanned.made == expected
    for block in scanned.blocks:
        mine = [
            (record.topic_bytes, record.queue_id, record.queue_offset)
            for record in oracles.scan_segment(data, BASE)
            if block.first_offset <= record.physical_offset < block.end_offset
        ]
        assert block.queues == list(dict.fromkeys(message[:2] for message in mine))
        jumps = 0
        for queue in block.queues:
            offsets = [message[2] for message in mine if message[:2] == queue]
            jumps += 1 + sum(right != left + 1 for left, right in itertools.pairwise(offsets))
        assert len(block.runs) == jumps
