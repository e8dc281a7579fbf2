"""Requests that are long to parse: heartbeats, checks, odd bodies, expressions, made-up groups."""

import json

from draining import pull_of
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode
from protocol.command import encode_request

TOPIC = "TopicTest"


def expression(number: int, size: int) -> str:
    """An expression of about so many characters that nobody has asked before."""
    terms = size // 24
    return " AND ".join(f"p{number}x{term} > {term}" for term in range(terms))


def expressions(number: int, count: int, size: int) -> bytes:
    wanted = [subscription(f"T{each}", expression(number + each, size), number, "SQL92") for each in range(count)]
    body = heartbeat(f"c{number}", consumer(f"G{number}", *wanted))
    return encode_request(RequestCode.HEART_BEAT, {}, opaque=1, body=body)


def check(number: int, size: int) -> bytes:
    wanted = {"subscriptionData": subscription(TOPIC, expression(number, size), kind="SQL92")}
    return encode_request(RequestCode.CHECK_CLIENT_CONFIG, {}, opaque=1, body=json.dumps(wanted).encode())


WITH_A_BODY = (RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ)
WITH_A_BODY += (RequestCode.CHECK_CLIENT_CONFIG, RequestCode.QUERY_ASSIGNMENT)


def odd_body(number: int, size: int) -> bytes:
    body = b'{"clientID":"c%d","x":{' % number + b"{}:1," * (size // 5)
    return encode_request(WITH_A_BODY[number % len(WITH_A_BODY)], {}, opaque=1, body=body)


def pull(number: int, size: int) -> bytes:
    fields = pull_of(TOPIC, consumerGroup=f"G{number}", maxMsgNums=1, suspendTimeoutMillis=0)
    fields |= {"subscription": expression(number, size), "expressionType": "SQL92"}
    return encode_request(RequestCode.PULL_MESSAGE, fields, opaque=1)


def groups(number: int, count: int) -> bytes:
    wanted = (consumer(f"{number}-{each}-{'g' * 200}", subscription(TOPIC)) for each in range(count))
    producers = tuple(f"{number}-{each}-{'p' * 200}" for each in range(count))
    return encode_request(RequestCode.HEART_BEAT, {}, opaque=1, body=heartbeat("c" * 200, *wanted, producers=producers))


def commits(number: int, count: int) -> bytes:
    place = {"topic": TOPIC, "queueId": "0", "commitOffset": "1"}
    wanted = b"".join(
        encode_request(RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": group, **place}, opaque=1, oneway=True)
        for group in (f"{number}-{each}-{'g' * 200}" for each in range(count))
    )
    return wanted + encode_request(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": "0"}, opaque=1)


def huge(number: int, size: int) -> bytes:
    wanted = [subscription(f"T{each}", f"a > {each}", kind="SQL92") for each in range(size // 150)]
    return encode_request(RequestCode.HEART_BEAT, {}, opaque=1, body=heartbeat(f"c{number}", consumer("G", *wanted)))


LARGE = [
    lambda number: expressions(number, 100, 2400),
    lambda number: check(number, 250_000),
    lambda number: odd_body(number, 130_000),
    lambda number: odd_body(number, 1_000_000),
    lambda number: pull(number, 250_000),
    lambda number: groups(number, 1000),
    lambda number: commits(number, 500),
    lambda number: huge(number, 12_000_000),
    lambda number: b"".join(expressions(number + each, 1, 500) for each in range(0, 100, 2)),
]
