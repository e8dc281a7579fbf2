"""What dispatch makes of records, against the oracle that decodes and parses them one by one."""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import oracles
from dispatch_oracle import dispatch, is_dispatched, light_units
from dispatching import (
    BATCH_TOPIC,
    DELAYS,
    light_names,
    light_offsets,
    make_scan,
    named_blocks,
    numbers,
    record_changes,
    scan_bytes,
    segment,
)
from examples import examples
from kernel_memory import Bytes, record_at
from storage.build.dispatch_scan import DispatchBlock, Reason
from storage.kernels.dispatching import DispatchMemory
from storage.kernels.records import BAD_MAGIC, BAD_OFFSET, BAD_SIZE, entry_hashes
from storage.queue import consume_queue
from store_files import property_bytes
from strategies import property_blocks

BASE = 1 << 32


class TestAgainstTheOracle:
    @settings(max_examples=examples(12))
    @given(st.lists(record_changes(), max_size=6), st.booleans(), st.booleans())
    def test_entries_and_units_are_those_of_the_oracle(
        self, changes: list[dict[str, Any]], tags: bool, lmq: bool
    ) -> None:
        data, _ = segment(changes, BASE)
        scanned = scan_bytes(data, BASE, tags=tags, lmq=lmq, batch_topics=[BATCH_TOPIC])
        records = list(oracles.scan_segment(data, BASE))
        valid = [record for record in records if is_dispatched(record)]
        assert scanned.step == (len(data), Reason.LIMIT, 0)
        assert scanned.passed_over == [record.physical_offset for record in records if not is_dispatched(record)]
        profile = "5.5" if tags else "5.3"
        assert scanned.made == dispatch(valid, profile=profile, lmq=lmq, batch_topics=[BATCH_TOPIC])
        assert sum(block.records for block in scanned.blocks) == len(valid)
        last = valid[-1] if valid else None
        block = scanned.blocks[0]
        assert block.last_record == (last.physical_offset if last else -1)
        assert block.last_timestamp == (last.store_timestamp if last else 0)

    @settings(max_examples=examples(12))
    @given(st.lists(record_changes(), min_size=1, max_size=6), st.integers(1, 400), st.integers(1, 3))
    def test_it_does_not_matter_how_a_segment_is_read_and_taken(
        self, changes: list[dict[str, Any]], window: int, records: int
    ) -> None:
        data, _ = segment(changes, BASE)
        whole = scan_bytes(data, BASE, batch_topics=[BATCH_TOPIC])
        cut = scan_bytes(data, BASE, batch_topics=[BATCH_TOPIC], window=window, records=records)
        assert cut.made == whole.made
        assert cut.passed_over == whole.passed_over
        assert all(block.records <= records for block in cut.blocks)

    @settings(max_examples=examples(12))
    @given(st.lists(record_changes(), min_size=1, max_size=4), st.data())
    def test_damage_ends_a_scan_where_the_oracle_ends(self, changes: list[dict[str, Any]], data: st.DataObject) -> None:
        whole, _ = segment(changes, BASE)
        place = data.draw(st.integers(0, len(whole) - 1))
        damaged = whole[:place] + data.draw(st.binary(min_size=1, max_size=9)) + whole[place + 9 :]
        scanned = scan_bytes(damaged, BASE, checksums=True, batch_topics=[BATCH_TOPIC])
        records = list(oracles.scan_segment(damaged, BASE))
        intact = [record for record in records if oracles.property_crc_holds(_bytes_of(damaged, record))]
        if len(intact) < len(records):
            return  # a property that looks like a checksum: see below
        assert scanned.step.position == sum(record.total_size for record in records)
        assert scanned.made == dispatch(filter(is_dispatched, records), lmq=True, batch_topics=[BATCH_TOPIC])


def _bytes_of(data: bytes, record: oracles.Record) -> bytes:
    return data[record.physical_offset - BASE :][: record.total_size]


class TestWhatEndsARun:
    def test_what_is_no_record_says_what_it_is(self) -> None:
        for tail, reason, code in [
            ((40).to_bytes(4, "big") + (0xCBD43194).to_bytes(4, "big") + bytes(32), Reason.BLANK, 0),
            (bytes(8), Reason.ZERO, 0),
            (bytes(300), Reason.ZERO, 0),
            (bytes(7), Reason.NEED_MORE, 0),
            (bytes(3) + b"\1" + bytes(96), Reason.DAMAGE, BAD_MAGIC),
            (b"garbage" * 20, Reason.DAMAGE, BAD_MAGIC),
            ((90).to_bytes(4, "big") + record_at(0)[4:], Reason.DAMAGE, BAD_SIZE),
            ((-5).to_bytes(4, "big", signed=True) + record_at(0)[4:], Reason.DAMAGE, BAD_SIZE),
            (record_at(BASE), Reason.DAMAGE, BAD_OFFSET),
        ]:
            data, _ = segment([{"keys": "a"}], BASE)
            scanned = scan_bytes(data + tail, BASE)
            assert scanned.step == (len(data), reason, code)
            assert scanned.blocks[0].records == 1


class TestBlocks:
    def test_a_block_is_full_when_there_may_be_no_room_for_the_keys_of_one_record_more(self) -> None:
        many = property_bytes({"KEYS": " ".join(["k"] * 16_000)})
        data, _ = segment([{"properties_bytes": many}] * 4, BASE)
        scanned = scan_bytes(data, BASE, records=4)
        assert len(scanned.blocks) > 1
        assert max(block.record_entries.max() for block in scanned.blocks) == 16_000
        assert scanned.made == dispatch(oracles.scan_segment(data, BASE))

    def test_offsets_that_32_bits_cannot_tell_from_each_other_are_in_different_blocks(self) -> None:
        blocks = scan_two_far_records(BASE + (1 << 32))
        assert [block.record_offsets.tolist() for block in blocks] == [[0], [0]]
        assert [block.first_offset for block in blocks] == [BASE, BASE + (1 << 32)]
        assert [block.record_offsets.tolist() for block in scan_two_far_records(BASE + 0xFFFFFFFF)] == [[0, 0xFFFFFFFF]]


def scan_two_far_records(far: int) -> list[DispatchBlock]:
    """Blocks of a scan of two records, the second one far behind the first."""
    scan, blocks = make_scan(), []
    for base in (BASE, far):
        held = Bytes(record_at(base, keys="a"))
        step = scan.run(held.region, 0, held.length, base, base + held.length, held.length)
        if step.reason == Reason.FULL:
            blocks.append(scan.take())
            step = scan.run(held.region, 0, held.length, base, base + held.length, held.length)
        assert step.reason == Reason.LIMIT
    return [*blocks, scan.take()]


def make_memory(**options: Any) -> DispatchMemory:
    """Memory for ten records with all that there is, but for what `options` say."""
    defaults: dict[str, Any] = {
        "tags": True, "checksums": True, "delays": DELAYS, "lmq": True, "batch_topics": [BATCH_TOPIC], "units": True,
        "entries": True, "timestamps": True, "records": 10,
    }  # fmt: skip
    return DispatchMemory(**{**defaults, **options})


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


class TestScannedProperties:
    @settings(max_examples=examples(100))
    @given(any_blocks)
    def test_a_record_looked_at_alone_has_the_entries_of_a_scan_each_once(self, block: bytes) -> None:
        held = Bytes(record_at(BASE, properties_bytes=block))
        entries = dispatch(oracles.scan_segment(bytes(held), BASE)).entries
        assert entry_hashes(held.region, 0, held.length) == list(dict.fromkeys(hashed for hashed, _, _ in entries))

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


@pytest.mark.parametrize("topic", [b"%RETRY%g", b"rmq_sys_wheel_timer", b"SCHEDULE_TOPIC_XXXX"])
def test_messages_of_retry_and_system_topics_are_in_no_light_queue(topic: bytes) -> None:
    assert units("%LMQ%a", "7", topic) == []


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
