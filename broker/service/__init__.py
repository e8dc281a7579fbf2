"""The modules that answer requests: the dispatcher, the processors, consumers and their offsets, long polls."""

from typing import Final

DOOR: Final = (
    "broker_service",
    "consumers",
    "denials",
    "dispatcher",
    "following_threads",
    "hole_search",
    "kept_work",
    "long_polling",
    "long_work",
    "lookup_pool",
    "pending_reply",
    "processors",
    "registry_budget",
    "request_families",
    "served_brokers",
    "served_life",
    "state_directory",
    "store_answers",
)
