"""What a scan's memory says when it is asked for what it cannot give, and how it reads properties of any bytes."""

import itertools
import threading
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import oracles
from dispatch_oracle import dispatch, is_dispatched
from dispatching import BATCH_TOPIC, DELAYS, named_blocks, numbers, scan_bytes, segment
from examples import examples
from kernel_memory import Bytes, record_at
from storage.kernels.dispatching import LIMIT, DispatchMemory
from storage.kernels.records import entry_hashes
from store_files import property_bytes
from strategies import property_blocks

BASE = 1 << 32


def make_memory(**options: Any) -> DispatchMemory:
    """Memory for ten records with all that there is, but for what `options` say."""
    defaults: dict[str, Any] = {
        "tags": True, "checksums": True, "delays": DELAYS, "lmq": True, "batch_topics": [BATCH_TOPIC], "units": True,
        "entries": True, "timestamps": True, "records": 10,
    }  # fmt: skip
    return DispatchMemory(**{**defaults, **options})


class TestTheDoor:
    def test_a_run_that_does_not_go_forward_is_refused_until_what_is_behind_it_is_taken(self) -> None:
        data, positions = segment([{"keys": "a"}, {"keys": "b"}], BASE)
        held, memory = Bytes(data), make_memory()
        arguments = held.region, 0, len(data), BASE, BASE + len(data), positions[1]
        assert memory.run(*arguments).reason == LIMIT
        with pytest.raises(ValueError, match="does not go forward"):
            memory.run(*arguments)
        first = memory.take()
        assert memory.run(*arguments).reason == LIMIT
        assert memory.take().hashes == first.hashes

    def test_what_a_scan_was_given_may_change_behind_it(self) -> None:
        topics, delays = [bytearray(b"Batches")], [1, 2]
        memory = make_memory(batch_topics=topics, delays=delays)
        topics[0][:] = b"Nothing"
        delays.clear()
        data, _ = segment([{"topic_bytes": b"Batches", "queue_offset": 3}], BASE)
        memory.run(Bytes(data).region, 0, len(data), BASE, BASE + len(data), len(data))
        assert len(memory.take().units) == 46


def names_of_one_hash(pairs: int) -> list[bytes]:
    """Topics that share a hash which multiplies word by word and adds the upper half of the product to the lower.

    The highest bit of a word changes one bit of a product with an odd number, and then one more: two bits of the next
    word undo both, whatever the factor and the beginning are.
    """
    words = [(b"firstone", b"theother"), (b"firston\xe5", b"the\xefthe\xf2")]
    assert [int.from_bytes(a, "little") ^ int.from_bytes(b, "little") for a, b in zip(*words, strict=True)] == [
        1 << 63, 1 << 63 | 1 << 31,
    ]  # fmt: skip
    return [b"".join(b"".join(words[number >> bit & 1]) for bit in range(pairs)) for number in range(1 << pairs)]


class TestQueues:
    def test_names_that_were_made_to_share_a_hash_do_not(self) -> None:
        topics = names_of_one_hash(11)
        data, _ = segment([{"topic_bytes": topic} for topic in topics], BASE)
        memory = make_memory(records=8 * len(topics))
        memory.run(Bytes(data).region, 0, len(data), BASE, BASE + len(data), len(data))
        assert len(memory.take().queues) == len(set(topics)) == 2048
        assert memory.collisions < 200, "by chance some 20 of two million pairs"


def test_a_memory_that_another_thread_is_using_is_refused() -> None:
    data, _ = segment([{"body": bytes(1 << 26)}], BASE)
    held, memory, begins = Bytes(data), make_memory(), threading.Event()

    def run() -> None:
        begins.set()
        memory.run(held.region, 0, len(data), BASE, BASE + len(data), len(data))

    refused = 0
    for _ in range(20):
        begins.clear()
        thread = threading.Thread(target=run)
        thread.start()
        begins.wait()
        while thread.is_alive():
            try:
                memory.take()
            except RuntimeError:
                refused += 1
        if refused:
            break
        memory.take()
    assert refused


names = st.one_of(
    st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "A", "KEY", "TAGSS", "UNIQ_KEZ"]), st.text("KEYSTAG", max_size=5)
)
any_blocks = st.one_of(
    property_blocks,
    named_blocks,
    st.lists(
        st.tuples(names.map(str.encode), st.binary(max_size=70)).map(lambda pair: b"%b\x01%b\x02" % pair), max_size=6
    ).map(b"".join),
    st.lists(
        st.sampled_from([b"\0", b"\1", b"\2", b"\3", b"TAGS", b"KEYS\1", b"\x81", b"\x82", b"x" * 61]), max_size=20
    ).map(b"".join),
)


class TestProperties:
    @settings(max_examples=examples(100))
    @given(any_blocks)
    def test_a_record_looked_at_alone_has_the_entries_of_a_scan_each_once(self, block: bytes) -> None:
        held = Bytes(record_at(BASE, properties_bytes=block))
        entries = dispatch(oracles.scan_segment(bytes(held), BASE)).entries
        assert entry_hashes(held.region, 0, held.length) == list(dict.fromkeys(hashed for hashed, _, _ in entries))

    def test_a_separator_is_found_at_every_place(self) -> None:
        text = b"KEYS\x01" + b"\x83\x7f\x80\xff\x03a" * 24
        for byte, place in itertools.product((0, 1, 2), range(5, len(text))):
            block = text[:place] + bytes([byte]) + text[place + 1 :]
            data, _ = segment([{"properties_bytes": block}], BASE)
            assert scan_bytes(data, BASE).made == dispatch(oracles.scan_segment(data, BASE)), place

    @settings(max_examples=examples(100))
    @given(numbers | st.text("+-0123456789", max_size=22), numbers | st.text("+-0123456789", max_size=22))
    @example("32767", "-9223372036854775808")
    @example("-32768", "9223372036854775807")
    @example("1", "9223372036854775808")
    def test_numbers_are_parsed_as_java_parses_them(self, size: str, first: str) -> None:
        block = property_bytes({"INNER_NUM": size, "INNER_BASE": first})
        data, _ = segment([{"topic_bytes": BATCH_TOPIC, "properties_bytes": block}], BASE)
        valid = filter(is_dispatched, oracles.scan_segment(data, BASE))
        assert scan_bytes(data, BASE, batch_topics=[BATCH_TOPIC]).made == dispatch(valid, batch_topics=[BATCH_TOPIC])
