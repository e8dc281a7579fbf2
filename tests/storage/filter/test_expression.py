"""SQL92 subscriptions as filters, on recorded stores: with a broker's bitmaps and without."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from golden_store import G1, GOLDEN, unpack
from protocol.message import decode_message
from queue_stores import open_queues
from storage.consume_queue_ext import ConsumeQueueExtUnit
from storage.filter.base import MessageFilter
from storage.filter.bloom import BloomFilter, FilterBits
from storage.filter.expression import ExpressionFilter, bits_of_subscription
from storage.filter.property_block import PropertyBlock
from storage.filter.sql92 import parse
from storage.get_message import get_message
from storage.store_config import BloomFilterData, ConsumerFilter, StoreConfig

EXT = GOLDEN / "g2" / "g2-ext"
TOPIC = "ExtTopic"
GROUPS = ("CG_SQL_TAG", "CG_SQL_RANGE", "CG_SQL_REGION", "CG_SQL_NONE")
REGISTERED = ConsumerFilter(
    "CID_abc_efg", "TopicTest", "a > 5", "SQL92", 1000, 0, 0, BloomFilterData(112, [22, 53, 14])
)


class CountingFilter(ExpressionFilter):
    """Counts the messages whose properties were asked for."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.evaluated = 0

    def matches_commit_log(self, properties: Mapping[str, str]) -> bool:
        self.evaluated += 1
        return super().matches_commit_log(properties)


def pulled(root: Path, directories: list[Path], topic: str, chosen: MessageFilter | None) -> list[memoryview]:
    """Every message of a topic that a filter lets through, by pulls from each queue's start to its end."""
    queues, log = open_queues(root, directories)
    records: list[memoryview] = []
    for queue_id in queues.queue_ids(topic):
        offset, end = 0, -1
        while offset != end:
            result = get_message(queues, log, topic, queue_id, offset, 32, 1 << 30, chosen)
            records += result.records
            offset, end = result.next_begin_offset, result.max_offset
    return records


def unique_keys(records: list[memoryview]) -> list[str]:
    return sorted(str(decode_message(record).unique_key) for record in records)


@pytest.fixture(scope="module")
def ext_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    root = unpack("store", tmp_path_factory.mktemp("ext"), archives=EXT)
    return root, [root / "commitlog-a", root / "commitlog-b"]


@pytest.fixture(scope="module")
def g1(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("store", tmp_path_factory.mktemp("g1"))


@pytest.mark.parametrize("group", GROUPS)
def test_bitmaps_change_no_pull_and_spare_most_of_what_does_not_match(
    ext_store: tuple[Path, list[Path]], group: str
) -> None:
    registered = StoreConfig.load(ext_store[0]).filters[TOPIC][group]
    expression = parse(registered.expression or "")
    bits = bits_of_subscription(expression, registered)
    assert bits is not None
    with_bits, without = CountingFilter(expression, bits), CountingFilter(expression)
    found = pulled(*ext_store, TOPIC, with_bits)
    assert found == pulled(*ext_store, TOPIC, without)
    total = len(pulled(*ext_store, TOPIC, None))
    assert without.evaluated == total
    assert len(found) <= with_bits.evaluated < total
    assert with_bits.evaluated - len(found) <= (total - len(found)) / 2


@pytest.mark.parametrize("group", GROUPS)
def test_pulls_give_what_the_official_consumer_received(ext_store: tuple[Path, list[Path]], group: str) -> None:
    file = EXT / f"consumed-{group}.tsv"
    received = [line.split("\t")[0] for line in file.read_text().splitlines()] if file.exists() else []
    registered = StoreConfig.load(ext_store[0]).filters[TOPIC][group]
    expression = parse(registered.expression or "")
    chosen = ExpressionFilter(expression, bits_of_subscription(expression, registered))
    assert unique_keys(pulled(*ext_store, TOPIC, chosen)) == sorted(received)


@pytest.mark.parametrize(
    ("text", "file", "column"),
    [
        ("a > 10 AND a <= 30 AND region = 'hz'", "consumed-sql.tsv", 4),
        ("a BETWEEN 5 AND 9 OR region IN ('none')", "client-flows/sql.txt", 3),
    ],
)
def test_pulls_without_bitmaps_give_what_the_official_consumer_received(
    g1: Path, text: str, file: str, column: int
) -> None:
    lines = [line.split("\t") for line in (G1 / file).read_text().splitlines()]
    received = [line[column] for line in lines if line[0] == "MSG"]
    assert unique_keys(pulled(g1, [], "TopicTest", ExpressionFilter(parse(text)))) == sorted(received)


def test_only_true_matches() -> None:
    chosen = ExpressionFilter(parse("a > 5"))
    assert [chosen.matches_commit_log(properties) for properties in ({"a": "6"}, {"a": "5"}, {}, {"a": "x"})] == (
        [True, False, False, False]
    )
    assert chosen.matches_commit_log(PropertyBlock(b"b\x011\x02a\x016\x02"))
    assert not chosen.matches_commit_log(PropertyBlock(b"a\x01\xff\x02"))
    assert (chosen.matches_everything, chosen.needs_properties) == (False, True)


def test_without_bits_or_unit_every_message_may_match() -> None:
    unit = ConsumeQueueExtUnit(34, 5, 2000, bytes(14))
    bits = FilterBits(1, 112, 1000)
    expression = parse("a > 5")
    assert ExpressionFilter(expression).matches_consume_queue_entry(5, unit)
    assert ExpressionFilter(expression, bits).matches_consume_queue_entry(5, None)
    assert ExpressionFilter(expression, bits).matches_consume_queue_entry(None, None)
    assert not ExpressionFilter(expression, bits).matches_consume_queue_entry(5, unit)


def test_bits_of_another_expression_are_not_taken() -> None:
    assert bits_of_subscription(parse("a > 5"), REGISTERED) is not None
    assert bits_of_subscription(parse("a  > 5"), REGISTERED) is None
    assert bits_of_subscription(parse("a > 5"), None) is None
    as_tag = ConsumerFilter("CID_abc_efg", "TopicTest", "a > 5", "TAG", 0, 0, 0, REGISTERED.bloom_filter_data)
    assert bits_of_subscription(parse("a > 5"), as_tag) is None


def test_bits_hold_until_the_registry_was_written() -> None:
    unit = ConsumeQueueExtUnit(34, 5, 2000, BloomFilter.sized_for().bitmap([]))
    expression = parse("a > 5")
    for until, may_match in ((None, False), (2000, False), (1999, True)):
        chosen = ExpressionFilter(expression, bits_of_subscription(expression, REGISTERED, until))
        assert chosen.matches_consume_queue_entry(5, unit) is may_match
