"""SQL92 subscriptions as filters, on recorded stores: with a broker's bitmaps and without; Bloom filters."""

import json

import pytest

from filter_vectors import vectors
from golden_store import GOLDEN, unpack
from protocol.errors import ConfigError
from protocol.message import decode_message
from queue_stores import open_queues
from storage.filter.bloom import BloomFilter, murmur3_128, registered_bits
from storage.filter.expression import ExpressionFilter, bits_of_subscription
from storage.filter.sql92 import parse
from storage.layout.store_config import BloomFilterData, ConsumerFilter, StoreConfig
from storage.query.get_message import get_message
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit

EXT, FILTERS = GOLDEN / "g2" / "g2-ext", GOLDEN / "g2" / "g2-filters"
GROUPS = ("CG_SQL_TAG", "CG_SQL_RANGE", "CG_SQL_REGION", "CG_SQL_NONE")
MESSAGES = 1000
REGISTERED = ConsumerFilter(
    "CID_abc_efg", "TopicTest", "a > 5", "SQL92", 1000, 0, 0, BloomFilterData(112, [22, 53, 14])
)


def pulled(root, directories, topic, chosen):
    queues, _ = open_queues(root, directories)
    records: list[memoryview] = []
    for queue_id in queues.queue_ids(topic):
        offset, end = 0, -1
        while offset != end:
            result = get_message(queues, topic, queue_id, offset, 32, 1 << 30, chosen)
            records += result.records
            offset, end = result.next_begin_offset, result.max_offset
    return records


def unique_keys(records: list[memoryview]) -> list[str]:
    return sorted(str(decode_message(record).unique_key) for record in records)


def filters_of(root, topic, group):
    registered = StoreConfig.load(root).filters[topic][group]
    expression = parse(registered.expression or "")
    bits = bits_of_subscription(expression, registered)
    assert bits is not None
    return ExpressionFilter(expression, bits), ExpressionFilter(expression)


@pytest.fixture(scope="module")
def ext_store(tmp_path_factory):
    root = unpack("store", tmp_path_factory.mktemp("ext"), archives=EXT)
    return root, [root / "commitlog-a", root / "commitlog-b"]


@pytest.fixture(scope="module")
def filters_store(tmp_path_factory):
    return unpack("store", tmp_path_factory.mktemp("filters"), archives=FILTERS)


@pytest.mark.parametrize("group", GROUPS[:2])
def test_bitmaps_change_no_pull_and_spare_most_of_what_does_not_match(ext_store, group) -> None:
    with_bits, without = filters_of(ext_store[0], "ExtTopic", group)
    found = pulled(*ext_store, "ExtTopic", with_bits)
    assert found == pulled(*ext_store, "ExtTopic", without)
    total = len(pulled(*ext_store, "ExtTopic", None))
    assert (without.evaluations.done, without.evaluations.skipped) == (total, 0)
    assert with_bits.evaluations.done + with_bits.evaluations.skipped == total
    assert len(found) <= with_bits.evaluations.done < total
    assert with_bits.evaluations.done - len(found) <= (total - len(found)) / 2


def test_messages_older_than_a_filter_are_never_ruled_out_by_their_bitmaps(filters_store) -> None:
    """The bits of CG_CHANGES stood for another expression then, and those of CG_LATE for none."""
    for group, expression in (("CG_CHANGES", lambda a: a >= 95), ("CG_LATE", lambda a: a in (3, 4))):
        with_bits, _ = filters_of(filters_store, "FilterTopic", group)
        numbers = [
            int(bytes(decode_message(record).body).removeprefix(b"message "))
            for record in pulled(filters_store, [], "FilterTopic", with_bits)
        ]
        assert sorted(numbers) == [number for number in range(MESSAGES) if expression(number % 100)]


@pytest.mark.parametrize("group", GROUPS)
def test_pulls_give_what_the_official_consumer_received(ext_store, group) -> None:
    file = EXT / f"consumed-{group}.tsv"
    received = [line.split("\t")[0] for line in file.read_text().splitlines()] if file.exists() else []
    with_bits, _ = filters_of(ext_store[0], "ExtTopic", group)
    assert unique_keys(pulled(*ext_store, "ExtTopic", with_bits)) == sorted(received)


def test_bits_hold_for_their_expression_until_the_registry_was_written() -> None:
    # Bits of another expression are not taken.
    assert bits_of_subscription(parse("a > 5"), REGISTERED) is not None
    assert bits_of_subscription(parse("a  > 5"), REGISTERED) is None
    assert bits_of_subscription(parse("a > 5"), None) is None
    as_tag = ConsumerFilter("CID_abc_efg", "TopicTest", "a > 5", "TAG", 0, 0, 0, REGISTERED.bloom_filter_data)
    assert bits_of_subscription(parse("a > 5"), as_tag) is None
    # Bits hold until the registry was written.
    unit = ConsumeQueueExtUnit(34, 5, 2000, BloomFilter.sized_for().bitmap([]))
    expression = parse("a > 5")
    for until, may_match in ((None, False), (2000, False), (1999, True)):
        chosen = ExpressionFilter(expression, bits_of_subscription(expression, REGISTERED, until))
        assert chosen.matches_consume_queue_entry(5, unit) is may_match


RECORDED = json.loads((GOLDEN / "filter" / "tag-bloom-vectors.json").read_text())
BROKER = BloomFilter.sized_for()
KEY = "CID_abc_efg#TopicTest"


def registered(**changed):
    fields = {
        "consumer_group": "CID_abc_efg", "topic": "TopicTest", "expression": "a > 5", "expression_type": "SQL92",
        "born_time": 1000, "bloom_filter_data": BloomFilterData(112, [22, 53, 14]),
    }  # fmt: skip
    return ConsumerFilter(**fields | changed)


def unit(bitmap: bytes | None, store_timestamp: int = 2000) -> ConsumeQueueExtUnit:
    return ConsumeQueueExtUnit(20 + len(bitmap or b""), 0, store_timestamp, bitmap)


def test_sizes_hashes_positions_and_bitmaps_are_the_official_ones() -> None:
    # A filter has the recorded size.
    for vector in RECORDED["bloom_params"]:
        if "error" in vector:
            with pytest.raises(ConfigError, match="a Bloom filter"):
                BloomFilter.sized_for(vector["f"], vector["n"])
        else:
            assert BloomFilter.sized_for(vector["f"], vector["n"]) == BloomFilter(vector["k"], vector["m"])
    # A key has the recorded hash positions and bitmap.
    for vector in RECORDED["bloom"]:
        key = vector["key"]
        halves = murmur3_128(key.encode())
        assert b"".join(half.to_bytes(8, "little") for half in halves).hex() == vector["murmur3_128_hex"]
        assert (halves[0] - vector["h1_signed"]) % 2**64 == 0
        assert list(BROKER.positions(key)) == vector["positions_f20_n32_m112_k3"]
        assert list(BloomFilter.sized_for(20, 64).positions(key)) == vector["positions_f20_n64_m216_k3"]
        assert list(BloomFilter.sized_for(1, 300).positions(key)) == vector["positions_f1_n300_m2880_k7"]
        assert BROKER.bitmap([key]).hex() == vector["bitmap_f20_n32_hex"]
    # Keys of every length have the official hash and positions.
    for error_percent, expected_keys, key, hashed, positions in vectors("positions"):
        assert (murmur3_128(key.encode("utf-8", "replace"))[0] - hashed) % 2**64 == 0, key
        assert list(BloomFilter.sized_for(error_percent, expected_keys).positions(key)) == positions, key


def test_a_bitmap_excludes_only_what_it_surely_knows() -> None:
    """filters §3.3: store time before, equal, no map, wrong length → match; after + zero map → no match."""
    bits = registered_bits(registered())
    assert bits is not None
    none, hit = bytes(14), BROKER.bitmap([KEY])
    assert bits.exclude(unit(none))
    assert not bits.exclude(unit(hit))
    assert not bits.exclude(unit(bytes(15)))
    assert not bits.exclude(unit(b""))
    assert not bits.exclude(unit(None))
    assert [bits.exclude(unit(none, stamp)) for stamp in (999, 1000, 1001)] == [False, False, True]


def test_an_entry_with_other_bits_than_its_key_has_is_not_believed() -> None:
    for data in [
        None,
        BloomFilterData(112, []),
        BloomFilterData(112, [22, 53, 15]),
        BloomFilterData(104, [22, 53, 14]),
        BloomFilterData(0, [22, 53, 14]),
        BloomFilterData(-8, [22, 53, 14]),
        BloomFilterData(113, [22, 53, 14]),
        BloomFilterData(112, [-1, 1 << 31, 14]),
        BloomFilterData(112, [0] * 1_000_000),
        BloomFilterData((1 << 31) - 8, list(BloomFilter(3, (1 << 31) - 8).positions(KEY))),
    ]:
        assert registered_bits(registered(bloom_filter_data=data)) is None
