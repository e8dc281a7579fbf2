"""From a subscription to its filter: made once, and with a registered filter's bits where they can be trusted.

What pulls make of it is in `processors/test_filtered_pulls.py`.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.service.consumers.kept_filters import KeptFilters
from broker.service.consumers.subscriptions import GroupFilter, Subscriptions, expressions_of
from broker.service.consumers.subscriptions import reported_filters as reported_filters_of
from protocol.bodies import SubscriptionData
from protocol.properties import encode_properties
from storage.files.waiting import finish
from storage.filter.base import MessageFilter
from storage.filter.expression import ExpressionFilter
from storage.layout.store_config import BloomFilterData, ConsumerFilter

EXPRESSION = "a > 5"
FILTERS = KeptFilters()
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


def by_expression(text: str = EXPRESSION, topic: str = "TopicTest", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic, text, expression_type="SQL92", sub_version=version)


def reported_filters(known: dict[str, GroupFilter], reported: list[SubscriptionData]) -> dict[str, GroupFilter]:
    return reported_filters_of(known, reported, finish(FILTERS.make_all(expressions_of(reported))))


def subscriptions_on(store: Any, *, supports_retry: bool = False, **told: GroupFilter) -> Subscriptions:
    """The subscriptions of a store of whose groups each has told these filters."""
    return Subscriptions(store, lambda _group: told, supports_retry=supports_retry)


def chosen_by(subscriptions: Subscriptions, group: str, subscription: SubscriptionData) -> MessageFilter | None:
    """The filter of a group that has just told a subscription."""
    reported = reported_filters({}, [subscription])
    return finish(subscriptions.of_group(group, subscription, reported.get(subscription.topic)))


def test_a_registered_filter_brings_its_bits() -> None:
    subscriptions = subscriptions_on(Store())
    chosen = chosen_by(subscriptions, "CG_SQL", by_expression())
    assert isinstance(chosen, ExpressionFilter)
    assert chosen.bits is not None
    assert chosen.evaluations is subscriptions.evaluations
    assert chosen_by(subscriptions, "CG_SQL", by_expression()) is chosen, "made once"


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
    subscriptions = subscriptions_on(store)
    chosen = chosen_by(subscriptions, group, by_expression(text, topic))
    assert isinstance(chosen, ExpressionFilter)
    assert chosen.bits is None
    assert chosen.evaluations is not subscriptions.evaluations


def test_a_filter_that_is_registered_anew_after_a_refresh_brings_its_new_bits() -> None:
    store: Any = Store()
    subscriptions = subscriptions_on(store)
    before = chosen_by(subscriptions, "CG_SQL", by_expression())
    later = ConsumerFilter(
        "CG_SQL", "TopicTest", EXPRESSION, "SQL92", 1500, 2500, 1, BloomFilterData(112, [22, 91, 50])
    )
    store.config = Config({"TopicTest": {"CG_SQL": later}})
    after = chosen_by(subscriptions, "CG_SQL", by_expression())
    assert after is not before
    assert isinstance(after, ExpressionFilter)
    assert after.bits is not None


# ---------------------------------------------------------------------- what heartbeats tell


def texts(filters: dict[str, GroupFilter]) -> dict[str, tuple[int, str]]:
    """Version and expression of each topic's filter."""
    found = {}
    for topic, told in filters.items():
        assert isinstance(told.chosen, ExpressionFilter)
        found[topic] = told.version, told.chosen.expression.text
    return found


@pytest.mark.parametrize(
    ("version", "text", "kind", "expected"),
    [
        (2, "b > 1", "SQL92", (3, "a > 1")),
        (3, "b > 1", "SQL92", (3, "a > 1")),
        (4, "b > 1", "SQL92", (4, "b > 1")),
        (4, "a > 1", "SQL92", (4, "a > 1")),
        (3, "b >", "SQL92", (3, "a > 1")),
        (4, "b >", "SQL92", None),
        (4, "b > 1", "FOO", None),
        (4, "", "SQL92", (3, "a > 1")),
        (4, "*", "TAG", (3, "a > 1")),
        (4, "*", "", (3, "a > 1")),
    ],
)
def test_a_known_filter_changes_as_in_a_brokers_registry(
    version: int, text: str, kind: str, expected: tuple[int, str] | None
) -> None:
    """The table of filters §3.4."""
    known = reported_filters({}, [by_expression("a > 1", "A", 3)])
    told = SubscriptionData("A", text, expression_type=kind, sub_version=version)
    assert texts(reported_filters(known, [told])).get("A") == expected


def test_a_topic_that_is_told_twice_has_the_newest_filter() -> None:
    told = [by_expression("a > 2", "A", 5), by_expression("a > 1", "A", 3), by_expression("a >", "B", 4)]
    assert texts(reported_filters({}, told)) == {"A": (5, "a > 2")}
    assert texts(reported_filters({}, [*told, by_expression("a >", "A", 6)])) == {}


# ---------------------------------------------------------------------- retry topics


def test_the_filter_of_members_comes_before_that_of_the_store() -> None:
    message, other = (encode_properties({"RETRY_TOPIC": "TopicTest", "a": value}) for value in "65")
    stored = subscriptions_on(Store(), supports_retry=True)
    assert finish(stored.in_pull("%RETRY%CG_SQL", "a > 99", "SQL92")).matches_commit_log(message)
    assert not finish(stored.in_pull("%RETRY%CG_SQL", "a > 99", "SQL92")).matches_commit_log(other)
    assert finish(stored.in_pull("%RETRY%CG_OTHER", "a > 99", "SQL92")).matches_commit_log(other)
    told = reported_filters({}, [by_expression("a < 6")])
    live = subscriptions_on(Store(), supports_retry=True, **told)
    assert not finish(live.in_pull("%RETRY%CG_SQL", "a > 99", "SQL92")).matches_commit_log(message)


@pytest.mark.parametrize(("text", "kind"), [("a >", "SQL92"), (None, "SQL92"), ("a > 5", "FOO")])
def test_a_stored_filter_that_does_not_compile_lets_everything_through(text: str | None, kind: str) -> None:
    broken = ConsumerFilter("CG_SQL", "TopicTest", text, kind)
    subscriptions = subscriptions_on(Store(Config({"TopicTest": {"CG_SQL": broken}})), supports_retry=True)
    chosen = finish(subscriptions.in_pull("%RETRY%CG_SQL", "a > 99", "SQL92"))
    assert chosen.matches_commit_log(encode_properties({"RETRY_TOPIC": "TopicTest", "a": "1"}))
