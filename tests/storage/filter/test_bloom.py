"""The Bloom filter beside the broker's own: sizes, hashes, positions, bitmaps, and what a bitmap may exclude."""

import json
from typing import Any

import pytest

from filter_vectors import vectors
from golden_store import GOLDEN
from protocol.errors import ConfigError
from storage.filter.bloom import BloomFilter, murmur3_128, registered_bits
from storage.layout.store_config import BloomFilterData, ConsumerFilter
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit

RECORDED: dict[str, Any] = json.loads((GOLDEN / "filter" / "tag-bloom-vectors.json").read_text())
BROKER = BloomFilter.sized_for()
KEY = "CID_abc_efg#TopicTest"


def registered(**changed: Any) -> ConsumerFilter:
    """A registry entry as a broker writes it."""
    fields: dict[str, Any] = {
        "consumer_group": "CID_abc_efg",
        "topic": "TopicTest",
        "expression": "a > 5",
        "expression_type": "SQL92",
        "born_time": 1000,
        "bloom_filter_data": BloomFilterData(112, [22, 53, 14]),
    }
    return ConsumerFilter(**fields | changed)


def unit(bitmap: bytes | None, store_timestamp: int = 2000) -> ConsumeQueueExtUnit:
    return ConsumeQueueExtUnit(20 + len(bitmap or b""), 0, store_timestamp, bitmap)


def test_a_filter_has_the_recorded_size() -> None:
    for vector in RECORDED["bloom_params"]:
        if "error" in vector:
            with pytest.raises(ConfigError, match="a Bloom filter"):
                BloomFilter.sized_for(vector["f"], vector["n"])
        else:
            assert BloomFilter.sized_for(vector["f"], vector["n"]) == BloomFilter(vector["k"], vector["m"])


def test_a_filter_of_any_error_rate_has_the_size_of_the_official_one() -> None:
    for error_percent, expected_keys, hash_count, bit_count in vectors("bloom"):
        assert BloomFilter.sized_for(error_percent, expected_keys) == BloomFilter(hash_count, bit_count)
    assert {each[0] for each in vectors("bloom")} == set(range(1, 100))


def test_a_key_has_the_recorded_hash_positions_and_bitmap() -> None:
    for vector in RECORDED["bloom"]:
        key = vector["key"]
        halves = murmur3_128(key.encode())
        assert b"".join(half.to_bytes(8, "little") for half in halves).hex() == vector["murmur3_128_hex"]
        assert (halves[0] - vector["h1_signed"]) % 2**64 == 0
        assert list(BROKER.positions(key)) == vector["positions_f20_n32_m112_k3"]
        assert list(BloomFilter.sized_for(20, 64).positions(key)) == vector["positions_f20_n64_m216_k3"]
        assert list(BloomFilter.sized_for(1, 300).positions(key)) == vector["positions_f1_n300_m2880_k7"]
        assert BROKER.bitmap([key]).hex() == vector["bitmap_f20_n32_hex"]


def test_keys_of_every_length_have_the_official_hash_and_positions() -> None:
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
