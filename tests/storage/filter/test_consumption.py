"""Who gets a message, and why: by tags, expressions and retry filters; of a batch the broker judges the record."""

import json

import pytest

from golden_store import CASES, GOLDEN, unpack
from oracles import java_hash
from protocol.errors import ConfigError, FilterSyntaxError
from protocol.message import decode_message
from protocol.properties import encode_properties
from storage.filter.consumption import SubscriptionCheck
from storage.filter.explanation import LONGEST_VALUE, MOST_CONDITIONS, explain_expression, explain_tag, is_tagged_so
from storage.filter.expression import ExpressionFilter
from storage.filter.retry import RetryFilter, group_of_retry_filter
from storage.filter.sql92 import parse
from storage.filter.tag import TagFilter, parse_tag_expression
from storage.patterns.mask import mask_of
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

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
        written = writer.append_inner_batch(
            "T", [(b"x", {})], properties=batch | {"phone": "13912345678", "region": "hz"}
        )
    record = MessageStore.open(writer.root).commit_log.record_at(written.physical_offset)
    (inner,) = decode_message(record).inner_messages()
    for rule in ("properties.phone", "properties:/[0-9]{11}/"):
        shown = mask_of((rule,)).message(inner)
        assert SubscriptionCheck(None, "phone IS NOT NULL").verdict(shown) == (
            True,
            "of the record of its batch: phone IS NOT NULL is true (phone is '***')",
        )
        assert SubscriptionCheck(None, "region = 'hz'").verdict(shown)[0]


VECTORS = json.loads((GOLDEN / "filter" / "tag-bloom-vectors.json").read_text())
TAG_TYPES = [vector for vector in VECTORS["subscription_parse"] if vector["type"] in (None, "", "TAG")]


def test_a_subscription_is_parsed_and_matches_as_recorded() -> None:
    for vector in TAG_TYPES:
        if "error" in vector:
            with pytest.raises(FilterSyntaxError):
                parse_tag_expression(vector["subString"], vector["type"])
            continue
        expression = parse_tag_expression(vector["subString"], vector["type"])
        assert expression.text == vector["out_subString"]
        assert sorted(expression.tags) == sorted(vector["tagsSet"])
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


def test_each_condition_is_told_with_what_it_came_to() -> None:
    for text, properties, words in [
        ("a = 'x'", {"a": "x"}, "a = 'x' is true (a is 'x')"),
        ("a = 'x'", {}, "a = 'x' is unknown (a is missing)"),
        ("a > b", {"a": "1"}, "b is missing"),
        ("TRUE", {}, "TRUE is true"),
        ("a = 1 OR b = 2", {"a": "1", "b": "3"}, "the expression is true: a = 1 is true (a is '1'); b = 2 is false"),
        ("a BETWEEN 1 AND 3", {"a": "2"}, "is true (a is '2')"),
    ]:
        assert words in explain_expression(parse(text), properties)


def test_long_values_and_long_expressions_are_cut() -> None:
    told = explain_expression(parse("a = 'x'"), {"a": "y" * 5000})
    assert len(told) < 2 * LONGEST_VALUE + 100
    many = " OR ".join(f"a = {number}" for number in range(MOST_CONDITIONS + 7))
    assert explain_expression(parse(many), {"a": "1"}).endswith("and 7 more conditions")


REGISTERED = {"A": ExpressionFilter(parse("a > 5")), "B": ExpressionFilter(parse("b = 'x'"))}


def test_a_message_is_chosen_as_in_the_topic_it_came_from() -> None:
    for properties, is_delivered in [
        ({"RETRY_TOPIC": "A", "a": "6"}, True), ({"RETRY_TOPIC": "A", "a": "5"}, False), ({"RETRY_TOPIC": "A"}, False),
        ({"RETRY_TOPIC": "A", "a": "none"}, False), ({"RETRY_TOPIC": "B", "b": "x", "a": "1"}, True),
        ({"RETRY_TOPIC": "B", "a": "6"}, False), ({"RETRY_TOPIC": "C", "a": "1"}, True), ({"a": "1"}, True), ({}, True),
    ]:  # fmt: skip
        chosen = RetryFilter(REGISTERED.get)
        assert chosen.matches_commit_log(encode_properties(properties)) is is_delivered


@pytest.mark.parametrize(("topic", "group"), [
    ("%RETRY%CG", "CG"), ("%RETRY%CG_Topic", "CG_Topic"), ("%RETRY%CG+Topic", "CG"),
    ("%RETRY%CG+Topic+More", "CG+Topic+More"), ("%RETRY%", ""), ("%DLQ%CG", None), ("Topic", None),
])  # fmt: skip
def test_a_retry_topic_is_filtered_for_the_group_that_a_broker_reads_in_its_name(topic: str, group: str | None) -> None:
    """As RocketMQ's KeyBuilder takes it apart."""
    assert group_of_retry_filter(topic) == group
