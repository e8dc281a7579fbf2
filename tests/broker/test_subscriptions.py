"""From a subscription to its filter: made once, and with a registered filter's bits where they can be trusted."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.subscriptions import LONGEST_KEPT, Subscriptions, make_filter
from protocol.bodies import SubscriptionData
from protocol.errors import FilterSyntaxError
from storage.filter.expression import ExpressionFilter
from storage.filter.tag import TagFilter
from storage.store_config import BloomFilterData, ConsumerFilter

EXPRESSION = "a > 5"
REGISTERED = ConsumerFilter(
    "CG_SQL", "TopicTest", EXPRESSION, "SQL92", 1000, 2000, 1, BloomFilterData(112, [22, 91, 50])
)


@dataclass
class State:
    abort: bool = False


@dataclass
class Config:
    filters: dict[str, dict[str, ConsumerFilter]] = field(default_factory=lambda: {"TopicTest": {"CG_SQL": REGISTERED}})


@dataclass
class Store:
    config: Config = field(default_factory=Config)
    state: State = field(default_factory=State)


def by_expression(text: str = EXPRESSION, topic: str = "TopicTest") -> SubscriptionData:
    return SubscriptionData(topic, text, expression_type="SQL92")


@pytest.mark.parametrize("kind", [None, "", "TAG"])
def test_tags_are_what_is_meant_unless_a_type_is_named(kind: str | None) -> None:
    chosen = make_filter("A || B", kind)
    assert isinstance(chosen, TagFilter)
    assert chosen.matches_everything is False


def test_the_filter_of_a_subscription_is_made_once() -> None:
    assert make_filter("a > 1", "SQL92") is make_filter("a > 1", "SQL92")
    assert make_filter("A", None) is make_filter("A", None)
    assert make_filter("a > 1", "SQL92") is not make_filter("a > 1", None)


def test_a_subscription_as_long_as_a_book_is_compiled_but_not_kept() -> None:
    text = " OR ".join(f"a = {number}" for number in range(LONGEST_KEPT // 8))
    chosen = make_filter(text, "SQL92")
    assert chosen is not make_filter(text, "SQL92")
    assert chosen.matches_commit_log({"a": "100"})


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("a >", "SQL92", "a >"),
        (None, "SQL92", "the expression is empty"),
        ("", "SQL92", "the expression is empty"),
        ("a > 1", "sql92", "TAG or SQL92"),
        ("x", "FOO", "TAG or SQL92"),
        ("||", "TAG", "no tag"),
    ],
)
def test_what_does_not_compile_is_an_error_that_says_where(text: str | None, kind: str, words: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        make_filter(text, kind)
    assert words in str(caught.value)


def test_a_registered_filter_brings_its_bits() -> None:
    subscriptions = Subscriptions(Store())  # type: ignore[arg-type]
    chosen = subscriptions.filter_of("CG_SQL", by_expression())
    assert isinstance(chosen, ExpressionFilter)
    assert chosen.bits is not None
    assert subscriptions.filter_of("CG_SQL", by_expression()) is chosen, "made once"


@pytest.mark.parametrize(
    ("group", "text", "topic", "abort"),
    [
        ("H", EXPRESSION, "TopicTest", False),
        ("CG_SQL", "a > 6", "TopicTest", False),
        ("CG_SQL", EXPRESSION, "U", False),
        ("CG_SQL", EXPRESSION, "TopicTest", True),
    ],
    ids=["another group", "another expression", "another topic", "a broker that was killed"],
)
def test_bits_that_may_not_be_those_of_the_filter_are_left_alone(
    group: str, text: str, topic: str, abort: bool
) -> None:
    store: Any = Store(state=State(abort))
    chosen = Subscriptions(store).filter_of(group, by_expression(text, topic))
    assert isinstance(chosen, ExpressionFilter)
    assert chosen.bits is None


def test_a_filter_that_is_registered_anew_after_a_refresh_brings_its_new_bits() -> None:
    store: Any = Store()
    subscriptions = Subscriptions(store)
    before = subscriptions.filter_of("CG_SQL", by_expression())
    later = ConsumerFilter(
        "CG_SQL", "TopicTest", EXPRESSION, "SQL92", 1500, 2500, 1, BloomFilterData(112, [22, 91, 50])
    )
    store.config = Config({"TopicTest": {"CG_SQL": later}})
    after = subscriptions.filter_of("CG_SQL", by_expression())
    assert after is not before
    assert isinstance(after, ExpressionFilter)
    assert after.bits is not None


def test_class_filters_let_everything_through() -> None:
    told = SubscriptionData("T", "a.Java.Class", class_filter_mode=True)
    assert Subscriptions(Store()).filter_of("CG_SQL", told).matches_everything  # type: ignore[arg-type]
