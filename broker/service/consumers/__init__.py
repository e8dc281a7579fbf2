"""Consumer groups: their members, subscriptions, offsets and locks."""

from typing import Final

DOOR: Final = (
    "client_calls",
    "client_registry",
    "consume_rates",
    "consumer_offsets",
    "filter_data",
    "group_notices",
    "kept_filters",
    "member_commits",
    "offset_journal",
    "offset_keeper",
    "pulled_offsets",
    "queue_allocation",
    "queue_locks",
    "registries",
    "subscriptions",
    "report_limits",
)
