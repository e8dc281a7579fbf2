"""Heartbeats as clients send them (remoting-protocol §4.18)."""

import json
from typing import Any


def subscription(topic: str, expression: str = "*", version: int = 1, kind: str = "TAG") -> dict[str, Any]:
    members = {"topic": topic, "subString": expression, "subVersion": version, "expressionType": kind}
    return members | {"classFilterMode": False, "codeSet": [], "tagsSet": []}


def consumer(group: str, *subscriptions: dict[str, Any], **members: Any) -> dict[str, Any]:
    """One consumer group of a client."""
    usual = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False}
    more = {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": list(subscriptions)}
    return usual | more | members


def heartbeat(client_id: str, *consumers: dict[str, Any], producers: tuple[str, ...] = (), **members: Any) -> bytes:
    data = {"clientID": client_id, "consumerDataSet": list(consumers), "heartbeatFingerprint": 0, "withoutSub": False}
    named = [{"groupName": name} for name in producers]
    return json.dumps(data | {"producerDataSet": named} | members).encode()
