"""Heartbeats as clients send them (remoting-protocol §4.18)."""

import json


def subscription(topic, expression="*", version=1, kind="TAG"):
    members = {"topic": topic, "subString": expression, "subVersion": version, "expressionType": kind}
    return members | {"classFilterMode": False, "codeSet": [], "tagsSet": []}


def consumer(group, *subscriptions, **members):
    usual = {"groupName": group, "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING", "unitMode": False}
    more = {"consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "subscriptionDataSet": list(subscriptions)}
    return usual | more | members


def heartbeat(client_id, *consumers, producers=(), **members):
    data = {"clientID": client_id, "consumerDataSet": list(consumers), "heartbeatFingerprint": 0, "withoutSub": False}
    named = [{"groupName": name} for name in producers]
    return json.dumps(data | {"producerDataSet": named} | members).encode()
