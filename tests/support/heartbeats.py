"""Heartbeats as clients send them (remoting-protocol §4.18)."""

import json
from typing import Any


def subscription(topic: str, expression: str = "*", version: int = 1, kind: str = "TAG") -> dict[str, Any]:
    """What a group wants of a topic."""
    return {
        "topic": topic,
        "subString": expression,
        "subVersion": version,
        "expressionType": kind,
        "classFilterMode": False,
        "codeSet": [],
        "tagsSet": [],
    }


def consumer(group: str, *subscriptions: dict[str, Any], **members: Any) -> dict[str, Any]:
    """One consumer group of a client."""
    return {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "subscriptionDataSet": list(subscriptions),
        "unitMode": False,
        **members,
    }


def heartbeat(client_id: str, *consumers: dict[str, Any], producers: tuple[str, ...] = (), **members: Any) -> bytes:
    """The body of HEART_BEAT."""
    data = {
        "clientID": client_id,
        "consumerDataSet": list(consumers),
        "producerDataSet": [{"groupName": name} for name in producers],
        "heartbeatFingerprint": 0,
        "withoutSub": False,
        **members,
    }
    return json.dumps(data).encode()
