"""Request processors: one class a family of request codes, named as RocketMQ names it, one `@handles` method a code."""

from typing import Final

DOOR: Final = (
    "ask_consumer",
    "broker_admin",
    "client_manage",
    "consume_stats",
    "consumer_manage",
    "name_server",
    "pull_message",
    "query_assignment",
    "query_message",
    "queue_lock",
    "topic_admin",
    "whole_store",
)
