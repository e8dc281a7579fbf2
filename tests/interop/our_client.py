"""What `rocketlens find` prints as JSON, of ids and of keys, and what they must print of a recorded store."""

import base64
import json
from collections.abc import Iterable
from typing import Any

from interop.stored import Stored, unpacked_body

FOUND, NOT_FOUND, CANNOT_ASK = 0, 1, 3
"""Exit codes."""


def shown(printed: bytes) -> list[dict[str, Any]]:
    """The printed messages, with the fields that `as_shown` can tell."""
    return [_fields(json.loads(line)) for line in printed.splitlines()]


def as_shown(store: Stored, offset_ids: Iterable[str]) -> list[dict[str, Any]]:
    """What must be printed of the records that these ids name."""
    return [_expected(store, offset_id) for offset_id in offset_ids]


def _fields(message: dict[str, Any]) -> dict[str, Any]:
    names = ("offsetMessageId", "topic", "queueId", "queueOffset", "storeTimestamp", "properties")
    is_text = message["bodyEncoding"] == "text"
    body = message["body"].encode() if is_text else base64.b64decode(message["body"])
    return {name: message[name] for name in names} | {"body": body}


def _expected(store: Stored, offset_id: str) -> dict[str, Any]:
    record = store.at(offset_id)
    return {
        "offsetMessageId": offset_id,
        "topic": record.topic,
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "storeTimestamp": record.store_timestamp,
        "properties": record.properties,
        "body": unpacked_body(record),
    }
