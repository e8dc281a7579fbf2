"""Asks a running broker and name server everything the replay proofs need, and keeps question and answer as frames."""

import base64
import json
import lzma
import socket
import time

from interop.wire import FrameSplitter, decode_frame, encode_request

NAME_SERVER_PORT = 9876
BROKER_PORT = 10911
PULL_MESSAGE, QUERY_MESSAGE, QUERY_CONSUMER_OFFSET, VIEW_MESSAGE_BY_ID = 11, 12, 14, 33
SEARCH_OFFSET_BY_TIMESTAMP, GET_MAX_OFFSET, GET_MIN_OFFSET, GET_EARLIEST_MSG_STORETIME = 29, 30, 31, 32
GET_ROUTEINFO_BY_TOPIC, GET_BROKER_CLUSTER_INFO, GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 105, 106, 206
GET_TOPIC_STATS_INFO, QUERY_CONSUME_QUEUE = 202, 321
ROUTE_SECONDS = 90
LONGEST = str(2**63 - 1)
SUBSCRIPTION_IN_HEADER = "4"
MAX_PULL_MESSAGES = "32"
ONE_MESSAGE = "1"
FILTERS = {
    "ExtTopic": [("TAG", "TagA || Aa"), ("SQL92", "a > 10 AND a <= 30"), ("SQL92", "missing = 'x'")],
    "LightParent": [("TAG", "TagB")],
    "TierTopic": [("TAG", "TagA || Aa"), ("SQL92", "a > 10 AND a <= 30")],
}
RETRY_FILTERS = [
    *[("TAG", expression) for expression in ("*", "TagA", "TagB")],
    *[("SQL92", expression) for expression in ("a = 7", "a > 100", "a < 100", "a IS NULL", "missing = 'x'", "a >")],
]

WAITING_TOPICS = """SCHEDULE_TOPIC_XXXX rmq_sys_wheel_timer RMQ_SYS_TRANS_HALF_TOPIC RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC
    TRANS_CHECK_MAX_TIME_TOPIC"""
"""Where messages wait: brokers from 5.5.1 on know each by its own topic alone, REAL_TOPIC."""
NAMES_OF_TOPICS = ("REAL_TOPIC", "RETRY_TOPIC", "DLQ_ORIGIN_TOPIC")


class Asker:
    """Puts questions over one connection a port and notes them in the form of golden's mqadmin-frames."""

    def __init__(self, hosts: dict[int, str]) -> None:
        self._connections = {port: socket.create_connection((host, port), timeout=60) for port, host in hosts.items()}
        self._opaque = 0
        self.lines: list[str] = []

    def ask(self, question):
        port, code, fields = question
        self._opaque += 1
        connection, splitter = self._connections[port], FrameSplitter()
        request = encode_request(code, self._opaque, fields)
        client_port = connection.getsockname()[1]
        self._note(client_port, port, decode_frame(request[4:]))
        connection.sendall(request)
        while True:
            for frame in splitter.feed(connection.recv(1 << 16)):
                if frame.is_response:
                    self._note(port, client_port, frame)
                    return frame

    def save(self, path) -> None:
        path.write_bytes(lzma.compress("".join(self.lines).encode(), preset=9 | lzma.PRESET_EXTREME))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def _note(self, source, target, frame) -> None:
        line = {"t": round(time.time(), 6), "src": source, "dst": target, "header": dict(sorted(frame.header.items()))}
        line["body"] = base64.b64encode(frame.body).decode()
        self.lines.append(json.dumps(line, ensure_ascii=False) + "\n")


def ask_everything(asker, records) -> None:
    """Lists, then every topic, queue, record, key, unique key and tag."""
    known = list(records)
    _wait_for_routes(asker, {record.topic for record in known})
    for question in [*_lists(known), *_queues(known), *_views(known), *_keys(known)]:
        asker.ask(question)
    for topic, queue_id in _queue_ids(known):
        for kind, expression in [("TAG", "*"), *FILTERS.get(topic, [])]:
            _pull_all(asker, topic, queue_id, kind, expression)


def ask_for_offsets(asker, records) -> None:
    """Everything, and how far each group that has a retry topic, and one that is not there, has come in every queue."""
    known = list(records)
    ask_everything(asker, known)
    groups = sorted({each.topic.removeprefix("%RETRY%") for each in known if each.topic.startswith("%RETRY%")})
    for group in [*groups, *(f"CG_LEDGER_{stage}" for stage in ("clean", "killed", "v2", "double")), "NoSuchGroup"]:
        for topic, queue_id in _queue_ids(known):
            queue = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
            asker.ask((BROKER_PORT, QUERY_CONSUMER_OFFSET, queue))


def ask_for_retries(asker, records) -> None:
    """Pulls of every retry topic, by expressions of both types."""
    for topic, queue_id in _queue_ids([record for record in records if record.topic.startswith("%RETRY%")]):
        for kind, expression in RETRY_FILTERS:
            _pull_all(asker, topic, queue_id, kind, expression, ONE_MESSAGE)


def ask_by_topics(asker, records) -> None:
    first = {}
    for record in records:
        first.setdefault(record.topic, record)
    for record in first.values():
        view = {"offset": str(record.physical_offset)}
        asker.ask((BROKER_PORT, VIEW_MESSAGE_BY_ID, view))
        for topic in _topics_to_name(record):
            asker.ask((BROKER_PORT, VIEW_MESSAGE_BY_ID, view | {"topic": topic}))


def _topics_to_name(record):
    """The topic of a record, all others that it mentions, and such as have nothing to do with it."""
    mentioned = [record.properties[name] for name in NAMES_OF_TOPICS if name in record.properties]
    light = record.properties.get("INNER_MULTI_DISPATCH", "").split(",")
    strange = ["NoSuchTopic", "BatchCqTopic", "%LMQ%none", record.topic.lower(), f"{record.topic} ", " "]
    return list(dict.fromkeys([record.topic, *mentioned, *light, *strange]))


def _wait_for_routes(asker: Asker, topics: set[str]) -> None:
    """The broker tells the name server late about topics that it made itself; until then lists and routes lack them."""
    deadline = time.monotonic() + ROUTE_SECONDS
    topic_list = (NAME_SERVER_PORT, GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
    while not topics <= set(json.loads(asker.ask(topic_list).body)["topicList"]):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the name server does not know all of {sorted(topics)} after {ROUTE_SECONDS} s")
        time.sleep(1)
    asker.lines.clear()


def _lists(records):
    yield NAME_SERVER_PORT, GET_BROKER_CLUSTER_INFO, {}
    yield NAME_SERVER_PORT, GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}
    for topic in [*sorted({topic for topic, _ in _queue_ids(records)}), "NoSuchTopic"]:
        yield NAME_SERVER_PORT, GET_ROUTEINFO_BY_TOPIC, {"topic": topic}
        yield BROKER_PORT, GET_TOPIC_STATS_INFO, {"topic": topic}


def _queues(records):
    times = sorted({record.store_timestamp for record in records})
    for topic, queue_id in _queue_ids(records):
        queue = {"topic": topic, "queueId": str(queue_id)}
        yield from ((BROKER_PORT, code, queue) for code in (GET_MAX_OFFSET, GET_MIN_OFFSET, GET_EARLIEST_MSG_STORETIME))
        yield BROKER_PORT, QUERY_CONSUME_QUEUE, queue | {"index": "0", "count": "200"}
        for timestamp in (0, times[0], times[len(times) // 2], times[-1], times[-1] + 1):
            yield BROKER_PORT, SEARCH_OFFSET_BY_TIMESTAMP, queue | {"timestamp": str(timestamp)}


def _views(records):
    for record in records:
        topic = record.properties["REAL_TOPIC"] if record.topic in WAITING_TOPICS.split() else record.topic
        yield BROKER_PORT, VIEW_MESSAGE_BY_ID, {"offset": str(record.physical_offset), "topic": topic}
    yield BROKER_PORT, VIEW_MESSAGE_BY_ID, {"offset": "16777215", "topic": "HostsTopic"}


def _keys(records):
    seen: dict[tuple[str, str, str], None] = {}
    for record in records:
        properties = record.properties
        seen |= {(record.topic, key, "K"): None for key in properties.get("KEYS", "").split(" ") if key}
        seen |= {(record.topic, properties[name], "U"): None for name in ("UNIQ_KEY",) if name in properties}
        seen |= {(record.topic, properties[name], "T"): None for name in ("TAGS",) if name in properties}
    for topic, key, index_type in [*seen, ("HostsTopic", "no such key", "K"), ("NoSuchTopic", "shared", "K")]:
        fields = {"topic": topic, "key": key, "maxNum": "32" if index_type == "U" else "64"}
        fields |= {"beginTimestamp": "0", "endTimestamp": LONGEST, "indexType": index_type}
        yield BROKER_PORT, QUERY_MESSAGE, fields | ({"_UNIQUE_KEY_QUERY": "true"} if index_type == "U" else {})
        if index_type == "K":
            yield BROKER_PORT, QUERY_MESSAGE, {name: text for name, text in fields.items() if name != "indexType"}


def _queue_ids(records):
    queues = {(record.topic, record.queue_id) for record in records}
    light = (name for record in records for name in record.properties.get("INNER_MULTI_DISPATCH", "").split(","))
    return sorted(queues | {(name, 0) for name in light if name})


def _pull_all(asker, topic, queue_id, kind, expression, count=MAX_PULL_MESSAGES) -> None:
    offset = "0"
    while True:
        fields = {"consumerGroup": "CG_REPLAY", "topic": topic, "queueId": str(queue_id), "queueOffset": offset}
        fields |= {"maxMsgNums": count, "sysFlag": SUBSCRIPTION_IN_HEADER, "commitOffset": "0"}
        fields |= {"suspendTimeoutMillis": "0", "subscription": expression, "subVersion": "0", "expressionType": kind}
        answer = asker.ask((BROKER_PORT, PULL_MESSAGE, fields))
        following = answer.header.get("extFields", {}).get("nextBeginOffset", offset)
        if int(following) <= int(offset):  # a broker that has a queue in its tier alone leads back to its begin
            return
        offset = following
