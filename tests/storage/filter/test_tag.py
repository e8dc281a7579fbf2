"""Tag subscriptions: parsed and matched as the official client library and broker did."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_store import GOLDEN
from oracles import java_hash
from protocol.errors import FilterSyntaxError
from storage.filter.tag import TagExpression, TagFilter, is_tag_type, parse_tag_expression

VECTORS: dict[str, Any] = json.loads((GOLDEN / "filter" / "tag-bloom-vectors.json").read_text())
TAG_TYPES = [vector for vector in VECTORS["subscription_parse"] if vector["type"] in (None, "", "TAG")]


@pytest.mark.parametrize("vector", TAG_TYPES, ids=lambda vector: repr(vector["subString"]))
def test_a_subscription_is_parsed_and_matches_as_recorded(vector: dict[str, Any]) -> None:
    if "error" in vector:
        with pytest.raises(FilterSyntaxError):
            parse_tag_expression(vector["subString"], vector["type"])
        return
    expression = parse_tag_expression(vector["subString"], vector["type"])
    assert expression.text == vector["out_subString"]
    assert (sorted(expression.tags), sorted(expression.codes)) == (sorted(vector["tagsSet"]), sorted(vector["codeSet"]))
    chosen = TagFilter(expression)
    for tag, (at_broker, _) in vector["broker_then_client"].items():
        assert chosen.matches_consume_queue_entry(java_hash(tag), None) == at_broker, tag


def test_there_are_recorded_subscriptions_of_every_kind() -> None:
    assert len(TAG_TYPES) > 20
    assert any("error" in vector for vector in TAG_TYPES)


@pytest.mark.parametrize(
    ("expression_type", "expected"),
    [(None, True), ("", True), ("TAG", True), ("tag", False), ("SQL92", False), ("sql92", False), (" TAG", False)],
)
def test_the_types_that_mean_tags(expression_type: str | None, expected: bool) -> None:
    assert is_tag_type(expression_type) is expected


def test_separators_alone_are_refused_with_the_place() -> None:
    with pytest.raises(FilterSyntaxError, match=r"no tag between the separators\n    \|\|\|\|\n    \^\^\^\^"):
        parse_tag_expression("||||")


def test_a_unit_whose_code_is_not_known_may_match() -> None:
    assert TagFilter(parse_tag_expression("TagA")).matches_consume_queue_entry(None, None)


@given(st.text(), st.text())
def test_a_tag_matches_the_subscription_to_it_and_to_everything(tag: str, other: str) -> None:
    chosen = TagFilter(TagExpression(tag, frozenset([tag]), frozenset([java_hash(tag)])))
    assert chosen.matches_consume_queue_entry(java_hash(tag), None)
    if java_hash(other) != java_hash(tag) and tag != "*":
        assert not chosen.matches_consume_queue_entry(java_hash(other), None)
    assert TagFilter(parse_tag_expression("*")).matches_consume_queue_entry(java_hash(tag), None)


def test_only_the_low_32_bits_of_a_code_are_compared() -> None:
    chosen = TagFilter(parse_tag_expression("polygenelubricants"))
    for code in (-(1 << 31), 1 << 31, (5 << 32) + (1 << 31)):
        assert chosen.matches_consume_queue_entry(code, None)
    assert not chosen.matches_consume_queue_entry(0, None)


def test_the_second_stage_is_left_to_the_client() -> None:
    chosen = TagFilter(parse_tag_expression("TagA"))
    assert chosen.matches_commit_log(b"TAGS\x01TagB\x02")
    assert not chosen.needs_properties


@given(st.text(alphabet="|* Tt\t\u3000", max_size=12))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        expression = parse_tag_expression(text)
    except FilterSyntaxError:
        assert set(text) == {"|"}
        assert len(text) % 2 == 0
        return
    assert expression.codes == {java_hash(tag) for tag in expression.tags}
