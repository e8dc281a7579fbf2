"""The filters of pulls, made from the subscriptions of consumers; each is made once and used by all pulls.

A subscription is one by tags, or one of the type SQL92 (filters §1). The expressions that members of a group report in
their heartbeats are its filters (§3.4); they are kept as long as the group has members. The filters that the store's
broker had registered are not used as such. Only their bits in the broker's bitmaps are used, for the same expression of
the same group on the same topic, and only if the broker was shut down properly: otherwise the last bits that it wrote
may be missing.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from broker.service.consumers.kept_filters import Failed, KeptFilters, Key, Made
from broker.service.registry_budget import BudgetSpent
from protocol.bodies import SubscriptionData
from protocol.errors import FilterSyntaxError
from storage.files.waiting import Lookup
from storage.filter.base import MessageFilter
from storage.filter.expression import Evaluations, ExpressionFilter, bits_of_subscription
from storage.filter.retry import RetryFilter, group_of_retry_filter
from storage.filter.tag import EVERYTHING, is_tag_type
from storage.layout.store_config import ConsumerFilter
from storage.store.message_store import MessageStore


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """A group's filter on a topic, and the version of the subscription that named it last.

    `born_timestamp` (ms) is when it was first reported.
    """

    version: int
    chosen: MessageFilter
    born_timestamp: int


def expressions_of(subscriptions: Iterable[SubscriptionData]) -> Iterator[Key]:
    """Yield text and type of each subscription by an expression; `reported_filters` needs their filters."""
    for each in subscriptions:
        if each.sub_string and not is_tag_type(each.expression_type):
            yield each.sub_string, each.expression_type


def reported_filters(
    known: Mapping[str, GroupFilter], subscriptions: Iterable[SubscriptionData], made: Mapping[Key, Made]
) -> dict[str, GroupFilter]:
    """A group's filters by topic after a heartbeat with these subscriptions; only those of expressions are kept.

    A filter is replaced only by one of a newer version, and removed when the new expression does not compile (filters
    §3.4). `made` has the filter or the error for each of `expressions_of` the subscriptions; where the budget refused
    one, the old filter is kept.
    """
    filters: dict[str, GroupFilter] = {}
    for subscription in subscriptions:
        topic = subscription.topic
        reported = _reported_filter(filters.get(topic, known.get(topic)), subscription, made)
        if reported is None:
            filters.pop(topic, None)
        else:
            filters[topic] = reported
    return filters


def _reported_filter(
    before: GroupFilter | None, subscription: SubscriptionData, made: Mapping[Key, Made]
) -> GroupFilter | None:
    text, expression_type = subscription.sub_string, subscription.expression_type
    if is_tag_type(expression_type) or not text:
        return before
    if before is not None and subscription.sub_version <= before.version:
        return before
    chosen = made[text, expression_type]
    if isinstance(chosen, Failed):
        return None
    if isinstance(chosen, BudgetSpent):
        return before
    is_known = before is not None and _is_same(before.chosen, chosen)
    born_timestamp = before.born_timestamp if before is not None and is_known else time.time_ns() // 1_000_000
    return GroupFilter(subscription.sub_version, chosen, born_timestamp)


def _is_same(one: MessageFilter, other: MessageFilter) -> bool:
    """Whether two filters have the same expression."""
    return (
        isinstance(one, ExpressionFilter) and isinstance(other, ExpressionFilter) and one.expression == other.expression
    )


class Subscriptions:
    """The filters of pulls on one store.

    `filters_of` returns the filters of a group with members. With `supports_retry`, retry topics are filtered as by a
    broker with `filterSupportRetry`. `evaluations` counts for all filters together that have bits in the bitmaps.
    """

    def __init__(
        self,
        store: MessageStore,
        filters_of: Callable[[str], Mapping[str, GroupFilter]],
        filters: KeptFilters | None = None,
        *,
        supports_retry: bool,
    ) -> None:
        self._store = store
        self._filters_of = filters_of
        self.filters = KeptFilters() if filters is None else filters
        """The filters of all clients of the server, which are made there."""
        self._supports_retry = supports_retry
        self._with_bits: dict[tuple[str, str], tuple[ConsumerFilter, ExpressionFilter]] = {}
        self.evaluations = Evaluations()

    def known_in_pull(self, topic: str, text: str | None, expression_type: str | None) -> MessageFilter | None:
        """The filter of a subscription that comes with a pull if it is kept; None where it has to be made."""
        known = self.filters.known(text, expression_type)
        return None if known is None else self._on_retries(topic, known)

    def in_pull(self, topic: str, text: str | None, expression_type: str | None) -> Lookup[MessageFilter]:
        """Return the filter of a subscription that comes with a pull. Raises what `KeptFilters.make_lookup` raises."""
        return self._on_retries(topic, (yield from self.filters.make_lookup(text, expression_type)))

    def of_group(
        self, group: str, subscription: SubscriptionData, reported: GroupFilter | None
    ) -> Lookup[MessageFilter | None]:
        """Return the filter of a group's subscription; `reported` is the group's filter on the topic, if it has one.

        None for an expression that is not the group's filter. For tags, raises what `KeptFilters.make_lookup` raises.
        """
        if subscription.class_filter_mode:
            return (yield from self.filters.make_lookup(EVERYTHING, None))
        if is_tag_type(subscription.expression_type):
            return (yield from self.filters.make_lookup(subscription.sub_string, subscription.expression_type))
        if reported is None:
            return None
        return self._on_retries(subscription.topic, self._by_bits(group, subscription.topic, reported.chosen))

    def _on_retries(self, topic: str, chosen: MessageFilter) -> MessageFilter:
        """The filter that is used on a retry topic instead of an expression, if retry topics are to be filtered."""
        group = group_of_retry_filter(topic) if self._supports_retry and isinstance(chosen, ExpressionFilter) else None
        return chosen if group is None else RetryFilter(partial(self._registered, group))

    def _registered(self, group: str, topic: str) -> MessageFilter | None:
        """The filter that a group has on a topic: that of its members, else the one that is registered in the store."""
        reported = self._filters_of(group).get(topic)
        if reported is not None:
            return reported.chosen
        stored = self._store.config.filters.get(topic, {}).get(group)
        try:
            return None if stored is None else self.filters.make(stored.expression, stored.expression_type)
        except (FilterSyntaxError, BudgetSpent):
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
        # These are never more than the filters that are registered in the store.
        self._with_bits[group, topic] = registered, made
        return made
