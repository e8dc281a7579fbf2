"""Tag subscriptions: parsed and matched as the official client library and broker did."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_store import GOLDEN
from oracles import java_hash
from protocol.errors import FilterSyntaxError
from storage.filter.tag import TagFilter, is_tag_type, parse_tag_expression

VECTORS: dict[str, Any] = json.loads((GOLDEN / "filter" / "tag-bloom-vectors.json").read_text())
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


def test_the_types_that_mean_tags() -> None:
    for expression_type, expected in [
        (None, True),
        ("", True),
        ("TAG", True),
        ("tag", False),
        ("SQL92", False),
        ("sql92", False),
        (" TAG", False),
    ]:
        assert is_tag_type(expression_type) is expected


def test_separators_alone_are_refused_with_the_place() -> None:
    with pytest.raises(FilterSyntaxError, match=r"no tag between the separators\n    \|\|\|\|\n    \^\^\^\^"):
        parse_tag_expression("||||")


@given(st.text(alphabet="|* Tt\t\u3000", max_size=12))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    try:
        expression = parse_tag_expression(text)
    except FilterSyntaxError:
        assert set(text) == {"|"}
        assert len(text) % 2 == 0
        return
    assert expression.codes == {java_hash(tag) for tag in expression.tags}
