"""Hashing of UTF-8 bytes against the oracle that decodes as Java does and hashes UTF-16 units."""

from hypothesis import example, given
from hypothesis import strategies as st

import oracles
from dispatching import scan_bytes
from kernel_memory import Bytes, record_at
from storage.kernels.records import entry_hashes
from storage.queue import consume_queue

PIECES = [
    *(b"a", b"\x7f", b"\xc2\xa9", b"\xe4\xbb\xb7", b"\xf0\x9f\x98\x80"),
    *(b"\xc0", b"\xe0\x80\x80", b"\xf0\x80", b"\xf4\x90\x80\x80", b"\xf5", b"\xf8", b"\xff", b"\x80"),
    *(b"\xed\xa0\x80", b"\xed\xa0", b"\xe1\x80", b"\xf0\x9f\x98"),
]
"""Whole sequences; ones that no encoder writes; encoded surrogates and sequences cut short."""

any_bytes = st.one_of(st.binary(min_size=1, max_size=40), st.lists(st.sampled_from(PIECES), min_size=1).map(b"".join))
values = any_bytes.map(lambda data: data.replace(b"\1", b"?").replace(b"\2", b"?"))
"""What can be the value of a property: it contains no separator."""


def tags_code(tags: bytes) -> int:
    """The hash of a text, as a queue's unit has it for tags."""
    (queue,) = scan_bytes(record_at(0, properties_bytes=b"TAGS\x01" + tags + b"\x02")).made.queues.values()
    (unit,) = queue.units
    return consume_queue.UNIT.unpack(unit)[2]


@given(values)
@example(b"\xed\xa0A")
@example(b"\xf0\x9f")
def test_any_bytes_hash_as_java_decodes_and_hashes_them(data: bytes) -> None:
    assert tags_code(data) % 2**32 == oracles.java_hash(oracles.decode_java(data)) % 2**32


@given(values, values)
def test_a_topic_and_a_key_fold_to_the_hash_that_an_index_keeps(topic: bytes, key: bytes) -> None:
    held = Bytes(record_at(0, topic_bytes=topic, properties_bytes=b"UNIQ_KEY\x01" + key + b"\x02"))
    # The topic's hash is gone on with: an encoded character that is cut at its end is no part of the key's first.
    text = f"{oracles.decode_java(topic)}#{oracles.decode_java(key)}"
    assert entry_hashes(held.region, 0, held.length) == [oracles.index_hash(text)]
