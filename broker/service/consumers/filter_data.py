"""The text about a group's filter on a topic that a broker puts into its answer to QUERY_CONSUME_QUEUE.

The text is a broker's entry of `config/consumerFilter.json` (filters §4), as 5.5 prints it: members by name, indented
by tabs. A group without a filter has the text `null`.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from broker.service.consumers.subscriptions import GroupFilter
from storage.filter.bloom import BloomFilter, filter_key
from storage.filter.expression import SQL92_TYPE, ExpressionFilter
from storage.layout.store_config import BloomFilterData, ConsumerFilter

NO_FILTER: Final = "null"

FOUND_DEAD_MILLIS: Final = 30_000
"""A broker that starts treats a group that was online when its registry was written as dead for this time, in ms."""


@dataclass(frozen=True, slots=True)
class FilterData:
    """A filter, and since when its group has no member: `dead_timestamp` in ms, 0 while it has one."""

    registered: ConsumerFilter
    dead_timestamp: int

    def text(self) -> str:
        """The text in the form in which a broker prints it."""
        registered = self.registered
        members = [
            _bloom_member(registered.bloom_filter_data),
            f'"bornTime":{registered.born_time}',
            f'"clientVersion":{registered.client_version}',
            f'"consumerGroup":{_quoted(registered.consumer_group)}',
            f'"dead":{"true" if self.dead_timestamp else "false"}',
            f'"deadTime":{self.dead_timestamp}',
            *(f'"expression":{_quoted(text)}' for text in (registered.expression,) if text is not None),
            *(f'"expressionType":{_quoted(text)}' for text in (registered.expression_type,) if text is not None),
            f'"topic":{_quoted(registered.topic)}',
        ]
        return "{\n\t" + ",\n\t".join(member for member in members if member) + "\n}"


def filter_data(
    group: str, topic: str, reported: GroupFilter | None, stored: ConsumerFilter | None, started_timestamp: int
) -> FilterData | None:
    """The filter of a group on a topic as its members reported it, else as the store's broker had registered it.

    As in a broker, an expression that is reported again keeps the time and the bits with which it was registered.
    `started_timestamp` (ms) is when this server started. None for a group without a filter.
    """
    if reported is None or not isinstance(reported.chosen, ExpressionFilter):
        if stored is None:
            return None
        dead_timestamp = stored.dead_time or max(stored.born_time, started_timestamp - FOUND_DEAD_MILLIS)
        return FilterData(stored, dead_timestamp)
    expression, born_timestamp = reported.chosen.expression.text, reported.born_timestamp
    bloom = None
    if stored is not None:
        bloom = stored.bloom_filter_data
        if (stored.expression, stored.expression_type) == (expression, SQL92_TYPE):
            born_timestamp = stored.born_time
    if bloom is None:
        sized = BloomFilter.sized_for()
        bloom = BloomFilterData(sized.bit_count, list(sized.positions(filter_key(group, topic))))
    return FilterData(
        ConsumerFilter(group, topic, expression, SQL92_TYPE, born_timestamp, 0, reported.version, bloom),
        dead_timestamp=0,
    )


def _bloom_member(bloom: BloomFilterData | None) -> str:
    if bloom is None:
        return ""
    positions = ",".join(map(str, bloom.bit_pos))
    return f'"bloomFilterData":{{\n\t\t"bitNum":{bloom.bit_num},\n\t\t"bitPos":[{positions}]\n\t}}'


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()
