"""From what a consumer subscribes to, to the filter that a pull asks; each is made once and used by all its pulls.

A subscription is one by tags, or one of the type SQL92 (filter.md §1). The filters that the store's broker had
registered bring the bits that stand for them in its bitmaps, unless it did not stop in good order: what it wrote last
of them may then be missing.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

from protocol.bodies import SubscriptionData
from protocol.errors import FilterSyntaxError
from storage.filter.base import MessageFilter
from storage.filter.expression import SQL92_TYPE, ExpressionFilter, bits_of_subscription
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


class Subscriptions:
    """The filters of consumer groups on one store."""

    def __init__(self, store: "MessageStore") -> None:
        self._store = store
        self._with_bits: dict[tuple[str, str], tuple[ConsumerFilter, ExpressionFilter]] = {}

    def filter_of(self, group: str, subscription: SubscriptionData) -> MessageFilter:
        """The filter of what a group told with its heartbeats. Raises `FilterSyntaxError` as `make_filter` does."""
        if subscription.class_filter_mode:
            return make_filter(EVERYTHING, None)
        chosen = make_filter(subscription.sub_string, subscription.expression_type)
        return self._by_bits(group, subscription.topic, chosen) if isinstance(chosen, ExpressionFilter) else chosen

    def _by_bits(self, group: str, topic: str, chosen: ExpressionFilter) -> ExpressionFilter:
        """The same filter with the bits under which the store's broker had registered it, if it had."""
        registered = self._store.config.filters.get(topic, {}).get(group)
        if registered is None or self._store.state.abort:
            return chosen
        known = self._with_bits.get((group, topic))
        if known is not None and known[0] is registered and known[1].expression == chosen.expression:
            return known[1]
        bits = bits_of_subscription(chosen.expression, registered)
        if bits is None:
            return chosen
        made = ExpressionFilter(chosen.expression, bits)
        # No more of them than the store has registered filters.
        self._with_bits[group, topic] = registered, made
        return made
