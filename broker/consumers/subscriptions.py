"""From what a consumer subscribes to, to the filter that a pull asks; each is made once and used by all its pulls.

A subscription is one by tags, or one of the type SQL92 (filter.md §1). The expressions that a group's members told with
their heartbeats are its filters (§3.4); they live as long as the group has members. The filters that the store's broker
had registered are not theirs: they only bring the bits that stand for them in its bitmaps, to the same expression of
the same group on the same topic, unless the broker did not stop in good order: what it wrote last of them may then be
missing.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from protocol.bodies import SubscriptionData
from protocol.errors import FilterSyntaxError
from storage.filter.base import MessageFilter
from storage.filter.expression import SQL92_TYPE, Evaluations, ExpressionFilter, bits_of_subscription
from storage.filter.retry import RetryFilter, group_of_retry_topic
from storage.filter.sql92 import parse
from storage.filter.tag import EVERYTHING, TagFilter, is_tag_type, parse_tag_expression
from storage.store_config import ConsumerFilter

if TYPE_CHECKING:
    from storage.message_store import MessageStore

KEPT = 1024
"""Filters of either kind that are remembered."""

LONGEST_KEPT = 4096
"""Characters of a subscription that is remembered."""


def make_filter(text: str | None, expression_type: str | None) -> MessageFilter:
    """The filter of a subscription, by its text and type alone.

    Raises `FilterSyntaxError` for a text that does not compile, and for a type that nobody knows.
    """
    return _make_filter(text, expression_type) if len(text or "") > LONGEST_KEPT else _kept(text, expression_type)


def _make_filter(text: str | None, expression_type: str | None) -> MessageFilter:
    if is_tag_type(expression_type):
        return TagFilter(parse_tag_expression(text, expression_type))
    if expression_type != SQL92_TYPE:
        kind = expression_type or ""
        raise FilterSyntaxError(kind, (0, len(kind)), f"filters are of the type TAG or {SQL92_TYPE}")
    if not text:
        raise FilterSyntaxError("", (0, 0), "the expression is empty")
    return ExpressionFilter(parse(text))


_kept = lru_cache(KEPT)(_make_filter)


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """The expression by which a group chooses from a topic, and the version of the subscription that told it last.

    `born_timestamp` (ms) is when it was told first.
    """

    version: int
    chosen: MessageFilter
    born_timestamp: int


def told_filters(known: Mapping[str, GroupFilter], subscriptions: Iterable[SubscriptionData]) -> dict[str, GroupFilter]:
    """A group's filters by topic after a heartbeat with these subscriptions; only those of expressions are kept.

    One changes with a newer version alone, and goes when the new expression does not compile (filter.md §3.4).
    """
    filters: dict[str, GroupFilter] = {}
    for subscription in subscriptions:
        topic = subscription.topic
        told = _told_filter(filters.get(topic, known.get(topic)), subscription)
        if told is None:
            filters.pop(topic, None)
        else:
            filters[topic] = told
    return filters


def _told_filter(before: GroupFilter | None, subscription: SubscriptionData) -> GroupFilter | None:
    text, expression_type = subscription.sub_string, subscription.expression_type
    if is_tag_type(expression_type) or not text:
        return before
    if before is not None and subscription.sub_version <= before.version:
        return before
    try:
        chosen = make_filter(text, expression_type)
    except FilterSyntaxError:
        return None
    is_known = before is not None and _is_same(before.chosen, chosen)
    born_timestamp = before.born_timestamp if before is not None and is_known else time.time_ns() // 1_000_000
    return GroupFilter(subscription.sub_version, chosen, born_timestamp)


def _is_same(one: MessageFilter, other: MessageFilter) -> bool:
    """Whether two filters are by the same expression."""
    return (
        isinstance(one, ExpressionFilter) and isinstance(other, ExpressionFilter) and one.expression == other.expression
    )


class Subscriptions:
    """The filters of pulls on one store.

    `filters_of` tells the filters of a group with members. `supports_retry`: retry topics are filtered as by a broker
    with `filterSupportRetry`. `evaluations` count for all filters together that have bits in the store's bitmaps.
    """

    def __init__(
        self,
        store: "MessageStore",
        filters_of: Callable[[str], Mapping[str, GroupFilter]],
        *,
        supports_retry: bool,
    ) -> None:
        self._store = store
        self._filters_of = filters_of
        self._supports_retry = supports_retry
        self._with_bits: dict[tuple[str, str], tuple[ConsumerFilter, ExpressionFilter]] = {}
        self.evaluations = Evaluations()

    def in_pull(self, topic: str, text: str | None, expression_type: str | None) -> MessageFilter:
        """The filter of a subscription that comes with a pull. Raises `FilterSyntaxError` as `make_filter` does."""
        return self._on_retries(topic, make_filter(text, expression_type))

    def of_group(self, group: str, subscription: SubscriptionData, told: GroupFilter | None) -> MessageFilter | None:
        """The filter of a group's subscription; `told` is the one that it has on the topic, if it is an expression.

        None for an expression that is none of the group's filters. Raises `FilterSyntaxError` for tags that do not
        parse.
        """
        if subscription.class_filter_mode:
            return make_filter(EVERYTHING, None)
        if is_tag_type(subscription.expression_type):
            return make_filter(subscription.sub_string, subscription.expression_type)
        if told is None:
            return None
        return self._on_retries(subscription.topic, self._by_bits(group, subscription.topic, told.chosen))

    def _on_retries(self, topic: str, chosen: MessageFilter) -> MessageFilter:
        """What chooses on a retry topic instead of an expression, if that is asked for."""
        group = group_of_retry_topic(topic) if self._supports_retry and isinstance(chosen, ExpressionFilter) else None
        return chosen if group is None else RetryFilter(partial(self._registered, group))

    def _registered(self, group: str, topic: str) -> MessageFilter | None:
        """The expression that a group has on a topic, by its members or, while they say nothing, by the store."""
        told = self._filters_of(group).get(topic)
        if told is not None:
            return told.chosen
        stored = self._store.config.filters.get(topic, {}).get(group)
        try:
            return None if stored is None else make_filter(stored.expression, stored.expression_type)
        except FilterSyntaxError:
            return None

    def _by_bits(self, group: str, topic: str, chosen: MessageFilter) -> MessageFilter:
        registered = self._store.config.filters.get(topic, {}).get(group)
        if registered is None or not isinstance(chosen, ExpressionFilter) or self._store.state.abort:
            return chosen
        known = self._with_bits.get((group, topic))
        if known is not None and known[0] is registered and known[1].expression == chosen.expression:
            return known[1]
        bits = bits_of_subscription(chosen.expression, registered)
        if bits is None:
            return chosen
        made = ExpressionFilter(chosen.expression, bits, self.evaluations)
        # No more of them than the store has registered filters.
        self._with_bits[group, topic] = registered, made
        return made
