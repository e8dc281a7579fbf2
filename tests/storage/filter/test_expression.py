"""Who gets a message, and why: by tags, expressions, a broker's bitmaps and retry filters."""

import json

import pytest

from filter_vectors import vectors
from golden_store import CASES, GOLDEN, unpack
from oracles import java_hash
from protocol.errors import ConfigError, FilterSyntaxError
from protocol.message import decode_message
from protocol.properties import encode_properties
from queue_stores import open_queues
from storage.filter.bloom import BloomFilter, murmur3_128, registered_bits
from storage.filter.consumption import SubscriptionCheck
from storage.filter.explanation import LONGEST_VALUE, MOST_CONDITIONS, explain_expression, explain_tag, is_tagged_so
from storage.filter.expression import ExpressionFilter, bits_of_subscription
from storage.filter.retry import RetryFilter, group_of_retry_filter
from storage.filter.sql92 import parse
from storage.filter.tag import TagFilter, parse_tag_expression
from storage.layout.store_config import BloomFilterData, ConsumerFilter, StoreConfig
from storage.patterns.mask import mask_of
from storage.query.get_message import get_message
from storage.queue.consume_queue_ext import ConsumeQueueExtUnit
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

EXT, FILTERS = GOLDEN / "g2" / "g2-ext", GOLDEN / "g2" / "g2-filters"
GROUPS = ("CG_SQL_TAG", "CG_SQL_RANGE", "CG_SQL_REGION", "CG_SQL_NONE")
BITS = BloomFilterData(112, [22, 53, 14])
REGISTERED = ConsumerFilter("CID_abc_efg", "TopicTest", "a > 5", "SQL92", 1000, 0, 0, BITS)


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
        assert sorted(numbers) == [number for number in range(1000) if expression(number % 100)]


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
    fields = {"consumer_group": "CID_abc_efg", "topic": "TopicTest", "expression": "a > 5", "expression_type": "SQL92",
              "born_time": 1000, "bloom_filter_data": BloomFilterData(112, [22, 53, 14])}  # fmt: skip
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
        None, BloomFilterData(112, []), BloomFilterData(112, [22, 53, 15]), BloomFilterData(104, [22, 53, 14]),
        BloomFilterData(0, [22, 53, 14]), BloomFilterData(-8, [22, 53, 14]), BloomFilterData(113, [22, 53, 14]),
        BloomFilterData(112, [-1, 1 << 31, 14]), BloomFilterData(112, [0] * 1_000_000),
        BloomFilterData((1 << 31) - 8, list(BloomFilter(3, (1 << 31) - 8).positions(KEY))),
    ]:  # fmt: skip
        assert registered_bits(registered(bloom_filter_data=data)) is None


BATCH_AT = 3472
"""Where a broker stored a batch without a tag, of three messages with TagC (ids.txt)."""


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    root = unpack("store", tmp_path_factory.mktemp("batches"), archives=CASES / "B2-B3-batches")
    return MessageStore.open(root).commit_log


def verdicts(record, tag=None, where=None):
    judge = SubscriptionCheck(tag, where)
    return [judge.verdict(each) for each in record.inner_messages()]


def batch_of(log):
    record = log.record_at(BATCH_AT)
    return decode_message(record)


def test_tags_in_a_batch_whose_record_has_none_reach_no_consumer_of_them(log) -> None:
    batch = batch_of(log)
    assert [each.tags for each in batch.inner_messages()] == ["TagC"] * 3
    why = "its batch is not sent, for of the record of it: the message has no tag, wanted: 'TagC'"
    assert verdicts(batch, "TagC") == [(False, why)] * 3
    assert [got for got, _ in verdicts(batch, "*")] == [True] * 3


def test_of_a_batch_that_is_sent_clients_keep_what_has_the_tag(tmp_path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        tags = [{"TAGS": "Aa"}, {"TAGS": "BB"}, {}]
        written = writer.append_inner_batch("T", [(b"x", properties) for properties in tags], tags="BB")
    record = MessageStore.open(writer.root).commit_log.record_at(written.physical_offset)
    assert [got for got, _ in verdicts(decode_message(record), "Aa")] == [True, False, False]  # of one hash with BB


def test_a_subscription_is_one_that_can_be_parsed() -> None:
    # A subscription is one and can be parsed.
    for tag, where in ((None, None), ("A", "a = 1")):
        with pytest.raises(ConfigError):
            SubscriptionCheck(tag, where)
    for tag, where in (("||", None), (None, "a >")):
        with pytest.raises(FilterSyntaxError):
            SubscriptionCheck(tag, where)
    # Separators alone are refused with the place.
    with pytest.raises(FilterSyntaxError, match=r"no tag between the separators\n    \|\|\|\|\n    \^\^\^\^"):
        parse_tag_expression("||||")


def test_a_mask_hides_what_it_hides_of_the_record_of_a_batch_too(tmp_path) -> None:
    with StoreWriter(tmp_path / "store") as writer:
        batch = {"INNER_NUM": "1", "INNER_BASE": "0"}
        batch |= {"phone": "13912345678", "region": "hz"}
        written = writer.append_inner_batch("T", [(b"x", {})], properties=batch)
    record = MessageStore.open(writer.root).commit_log.record_at(written.physical_offset)
    (inner,) = decode_message(record).inner_messages()
    for rule in ("properties.phone", "properties:/[0-9]{11}/"):
        shown = mask_of((rule,)).message(inner)
        assert SubscriptionCheck(None, "phone IS NOT NULL").verdict(shown) == (
            True,
            "of the record of its batch: phone IS NOT NULL is true (phone is '***')",
        )
        assert SubscriptionCheck(None, "region = 'hz'").verdict(shown)[0]


def test_a_subscription_is_parsed_and_matches_as_recorded() -> None:
    for vector in [each for each in RECORDED["subscription_parse"] if each["type"] in (None, "", "TAG")]:
        if "error" in vector:
            with pytest.raises(FilterSyntaxError):
                parse_tag_expression(vector["subString"], vector["type"])
            continue
        expression = parse_tag_expression(vector["subString"], vector["type"])
        assert (expression.text, sorted(expression.tags)) == (vector["out_subString"], sorted(vector["tagsSet"]))
        assert sorted(expression.codes) == sorted(vector["codeSet"])
        chosen = TagFilter(expression)
        for tag, (at_broker, _) in vector["broker_then_client"].items():
            assert chosen.matches_consume_queue_entry(java_hash(tag), None) == at_broker, tag


def test_a_tag_is_held_against_those_wanted() -> None:
    for text, tag, delivered, words in [
        ("*", None, True, "to all messages"), ("A || B", "B", True, "the tag 'B' is one of 'A', 'B'"),
        ("A || B", "C", False, "the tag 'C' is none of 'A', 'B'"), ("A", None, False, "has no tag, wanted: 'A'"),
        ("A", "", False, "has no tag"), (" ", "A", False, "names no tag"),
    ]:  # fmt: skip
        expression = parse_tag_expression(text)
        assert is_tagged_so(expression, tag) is delivered
        assert words in explain_tag(expression, tag)


def test_each_condition_is_told_with_what_it_came_to_and_long_ones_are_cut() -> None:
    # Each condition is told with what it came to.
    for text, properties, words in [
        ("a = 'x'", {"a": "x"}, "a = 'x' is true (a is 'x')"), ("a = 'x'", {}, "a = 'x' is unknown (a is missing)"),
        ("a > b", {"a": "1"}, "b is missing"), ("TRUE", {}, "TRUE is true"),
        ("a = 1 OR b = 2", {"a": "1", "b": "3"}, "the expression is true: a = 1 is true (a is '1'); b = 2 is false"),
        ("a BETWEEN 1 AND 3", {"a": "2"}, "is true (a is '2')"),
    ]:  # fmt: skip
        assert words in explain_expression(parse(text), properties)
    # Long values and long expressions are cut.
    told = explain_expression(parse("a = 'x'"), {"a": "y" * 5000})
    assert len(told) < 2 * LONGEST_VALUE + 100
    many = " OR ".join(f"a = {number}" for number in range(MOST_CONDITIONS + 7))
    assert explain_expression(parse(many), {"a": "1"}).endswith("and 7 more conditions")


def test_a_message_is_chosen_as_in_the_topic_it_came_from() -> None:
    for properties, is_delivered in [
        ({"RETRY_TOPIC": "A", "a": "6"}, True), ({"RETRY_TOPIC": "A", "a": "5"}, False), ({"RETRY_TOPIC": "A"}, False),
        ({"RETRY_TOPIC": "A", "a": "none"}, False), ({"RETRY_TOPIC": "B", "b": "x", "a": "1"}, True),
        ({"RETRY_TOPIC": "B", "a": "6"}, False), ({"RETRY_TOPIC": "C", "a": "1"}, True), ({"a": "1"}, True), ({}, True),
    ]:  # fmt: skip
        chosen = RetryFilter({"A": ExpressionFilter(parse("a > 5")), "B": ExpressionFilter(parse("b = 'x'"))}.get)
        assert chosen.matches_commit_log(encode_properties(properties)) is is_delivered


@pytest.mark.parametrize(("topic", "group"), [
    ("%RETRY%CG", "CG"), ("%RETRY%CG_Topic", "CG_Topic"), ("%RETRY%CG+Topic", "CG"),
    ("%RETRY%CG+Topic+More", "CG+Topic+More"), ("%RETRY%", ""), ("%DLQ%CG", None), ("Topic", None),
])  # fmt: skip
def test_a_retry_topic_is_filtered_for_the_group_that_a_broker_reads_in_its_name(topic: str, group: str | None) -> None:
    """As RocketMQ's KeyBuilder takes it apart."""
    assert group_of_retry_filter(topic) == group
