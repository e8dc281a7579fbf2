"""Good and bad calls of `MessagingService`: what the official proxy answers is recorded in tests/golden/grpc."""

import json
import queue
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict

from broker.grpc.messages import service_pb2
from golden_store import GOLDEN

RECORDED = GOLDEN / "grpc" / "proxy-5.5.0.jsonl"

ENDPOINTS = {"scheme": "DOMAIN_NAME", "addresses": [{"host": "broker.example", "port": 8081}]}
TOPIC = {"name": "TopicTest"}
GROUP = {"name": "GroupOfGrpc"}
ME = {"x-mq-client-id": "client@1", "x-mq-language": "JAVA", "x-mq-client-version": "5.0.8"}
OTHER = {**ME, "x-mq-client-id": "client@2"}
NOBODY = {"x-mq-language": "JAVA", "x-mq-client-version": "5.0.8"}
QUEUE = {"topic": TOPIC, "id": 0, "broker": {"name": "broker-a"}}
BAD_TOPIC = {"name": "Topic Test"}
BAD_GROUP = {"name": "Group$"}
LONG = {"name": "x" * 256}
SECONDS = 60.0
PORT = 1


@dataclass(frozen=True)
class GrpcCase:
    """A call, or several commands on one stream of Telemetry; the requests are protobuf's JSON."""

    name: str
    method: str
    requests: Sequence[Mapping[str, Any]] = ({},)
    metadata: Mapping[str, str] = field(default_factory=lambda: ME)
    unanswered: int = 0
    """The first commands that get no answer; it is seen by the answer that comes to the one behind them."""


def subscribing(client_type="PUSH_CONSUMER", group=GROUP, topic=TOPIC, **more):
    expression = {"type": "TAG", "expression": "*"}
    subscription = {"subscriptions": [{"topic": topic, "expression": more.pop("expression", expression)}], **more}
    if group is not None:
        subscription["group"] = group
    return {"settings": {"client_type": client_type, "access_point": ENDPOINTS, "subscription": subscription}}


def _publishing(*topics: Mapping[str, Any]) -> Any:
    publishing = {"topics": list(topics), "validate_message_type": True}
    return {"settings": {"client_type": "PRODUCER", "access_point": ENDPOINTS, "publishing": publishing}}


PUSH = {"group": GROUP, "client_type": "PUSH_CONSUMER"}
AT = {"endpoints": ENDPOINTS}
ASKED = {"topic": TOPIC, "group": GROUP, **AT}


def _by(client: str) -> Mapping[str, str]:
    return {**ME, "x-mq-client-id": client}


def _at(*addresses: Mapping[str, Any], **scheme: str) -> Any:
    return {"topic": TOPIC, "endpoints": {**scheme, "addresses": list(addresses)}}


METHODS = {
    "heartbeat": "Heartbeat", "termination": "NotifyClientTermination", "assignment": "QueryAssignment",
    "route": "QueryRoute", "settings": "Telemetry", "telemetry": "Telemetry", "pull": "PullMessage",
    "get": "GetOffset", "query": "QueryOffset", "update": "UpdateOffset",
}  # fmt: skip
"""Of a case, by the first word of its name."""


def _cases():
    for name, row in CALLS.items():
        request, *more = row if isinstance(row, tuple) else (row,)
        requests = request if isinstance(request, list) else [request]
        yield GrpcCase(name, METHODS[name.partition("-")[0]], requests, *more)


CALLS = {
    # before the client is known
    "heartbeat-before-settings": (PUSH, OTHER),
    "termination-before-settings": ({"group": GROUP}, OTHER),
    "assignment-before-settings": (ASKED, OTHER),
    "route": {"topic": TOPIC, **AT},
    "route-two-addresses": _at({"host": "10.0.0.1", "port": 8081}, {"host": "10.0.0.2", "port": 8082}, scheme="IPv4"),
    "route-ipv6": _at({"host": "fe80::1", "port": 8081}, scheme="IPv6"),
    "route-wrong-scheme": _at({"host": "10.0.0.1", "port": 8081}, scheme="IPv6"),
    "route-delay-topic": {"topic": {"name": "TopicDelay"}, **AT},
    "route-unknown-topic": {"topic": {"name": "NoSuchTopic"}, **AT},
    "route-unknown-in-namespace": {"topic": {"resource_namespace": "ns", "name": "TopicTest"}, **AT},
    "route-no-topic": AT,
    "route-blank-topic": {"topic": {"name": " "}, **AT},
    "route-bad-topic": {"topic": BAD_TOPIC, **AT},
    "route-long-topic": {"topic": LONG, **AT},
    "route-127-characters": {"topic": {"name": "x" * 127}, **AT},
    "route-128-characters": {"topic": {"name": "x" * 128}, **AT},
    "route-system-topic": {"topic": {"name": "RMQ_SYS_TRACE_TOPIC"}, **AT},
    "route-tbw102": {"topic": {"name": "TBW102"}, **AT},
    "route-schedule-topic": {"topic": {"name": "SCHEDULE_TOPIC_XXXX"}, **AT},
    "route-retry-topic": {"topic": {"name": "%RETRY%NobodyKnowsMe"}, **AT},
    "route-no-endpoints": {"topic": TOPIC},
    "route-no-address": {"topic": TOPIC, "endpoints": {"scheme": "IPv4"}},
    "route-port-0": _at({"host": "10.0.0.1"}, scheme="IPv4"),
    "route-negative-port": _at({"host": "10.0.0.1", "port": -1}, scheme="IPv4"),
    "route-large-port": _at({"host": "10.0.0.1", "port": 70000}, scheme="IPv4"),
    "route-no-host": _at({"port": 8081}, scheme="IPv4"),
    "route-no-scheme": _at({"host": "10.0.0.1", "port": 8081}),
    "route-no-client-id": ({"topic": TOPIC, **AT}, NOBODY),
    "route-no-language": ({"topic": TOPIC, **AT}, {"x-mq-client-id": "client@1"}),
    "settings-push": subscribing(),
    "settings-push-limits": subscribing(fifo=True, receive_batch_size=7, long_polling_timeout="3s"),
    "settings-push-own-policy": {
        "settings": {
            **subscribing()["settings"],
            "request_timeout": "3s",
            "backoff_policy": {
                "max_attempts": 3,
                "exponential_backoff": {"initial": "1s", "max": "10s", "multiplier": 2},
            },
            "user_agent": {"language": "JAVA", "version": "5.0.8", "platform": "x", "hostname": "h"},
            "client_properties": {"a": "b"},
        }
    },
    "settings-simple": subscribing("SIMPLE_CONSUMER", long_polling_timeout="20s"),
    "settings-pull": (subscribing("PULL_CONSUMER"), _by("client@3")),
    "settings-lite": (subscribing("LITE_PUSH_CONSUMER"), _by("client@4")),
    "settings-unspecified": (subscribing("CLIENT_TYPE_UNSPECIFIED"), _by("client@5")),
    "settings-no-type": ({"settings": {"access_point": ENDPOINTS, "subscription": {"group": GROUP}}}, _by("client@6")),
    "settings-twice": [subscribing(), subscribing(receive_batch_size=2)],
    "settings-known-group": (subscribing(group={"name": "CG_TAG"}), _by("client@7")),
    "settings-producer": (_publishing(TOPIC), _by("producer@1")),
    "settings-producer-bad-topic": (_publishing(BAD_TOPIC), _by("producer@2")),
    "settings-producer-no-topic": (_publishing(), _by("producer@3")),
    "settings-neither": ({"settings": {"client_type": "PUSH_CONSUMER"}}, _by("client@8")),
    "settings-no-group": (subscribing(group=None), _by("client@9")),
    "settings-bad-group": (subscribing(group=BAD_GROUP), _by("client@9")),
    "settings-long-group": (subscribing(group=LONG), _by("client@9")),
    "settings-bad-subscribed-topic": (subscribing(topic=BAD_TOPIC), _by("client@9")),
    "settings-unknown-topic": (subscribing(topic={"name": "NoSuchTopic"}), _by("client@9")),
    "settings-bad-sql": (subscribing(expression={"type": "SQL", "expression": "a >"}), _by("client@9")),
    "settings-no-client-id": (subscribing(), NOBODY),
    "settings-in-namespace": (subscribing(group={"resource_namespace": "ns", "name": "GroupOfGrpc"}), _by("client@10")),
    "telemetry-nothing": ([{}, subscribing()], ME, 1),
    "telemetry-trace-of-nobody": (
        [{"status": {"code": "OK"}, "thread_stack_trace": {"nonce": "n", "thread_stack_trace": "t"}}, subscribing()],
        ME,
        1,
    ),
    "telemetry-verified-of-nobody": (
        [{"status": {"code": "OK"}, "verify_message_result": {"nonce": "n"}}, subscribing()],
        ME,
        1,
    ),
    "telemetry-server-command": ([{"print_thread_stack_trace_command": {"nonce": "n"}}, subscribing()], ME, 1),
    "heartbeat-push": PUSH,
    "heartbeat-simple": {"group": GROUP, "client_type": "SIMPLE_CONSUMER"},
    "heartbeat-pull": ({"group": GROUP, "client_type": "PULL_CONSUMER"}, _by("client@3")),
    "heartbeat-producer": ({"client_type": "PRODUCER"}, _by("producer@1")),
    "heartbeat-producer-unknown": ({"client_type": "PRODUCER"}, _by("producer@9")),
    "heartbeat-no-type": {"group": GROUP},
    "heartbeat-no-group": {"client_type": "PUSH_CONSUMER"},
    "heartbeat-bad-group": {**PUSH, "group": BAD_GROUP},
    "heartbeat-long-group": {**PUSH, "group": LONG},
    "heartbeat-blank-group": {**PUSH, "group": {"name": " "}},
    "heartbeat-no-client-id": (PUSH, NOBODY),
    "assignment": ASKED,
    "assignment-unknown-topic": {**ASKED, "topic": {"name": "NoSuchTopic"}},
    "assignment-other-group": {**ASKED, "group": {"name": "NobodyElse"}},
    "assignment-bad-topic": {**ASKED, "topic": BAD_TOPIC},
    "assignment-no-topic": {"group": GROUP, **AT},
    "assignment-bad-group": {**ASKED, "group": BAD_GROUP},
    "assignment-no-group": {"topic": TOPIC, **AT},
    "assignment-no-endpoints": {"topic": TOPIC, "group": GROUP},
    "assignment-no-client-id": (ASKED, NOBODY),
    "termination": {"group": GROUP},
    "termination-twice": {"group": GROUP},
    "termination-producer": ({}, _by("producer@1")),
    "termination-no-group": ({}, _by("client@7")),
    "termination-bad-group": ({"group": BAD_GROUP}, _by("client@10")),
    "termination-no-client-id": ({"group": GROUP}, NOBODY),
    # not served by the proxy
    "pull": {"group": GROUP, "message_queue": QUEUE, "batch_size": 1},
    "get-offset": {"group": GROUP, "message_queue": QUEUE},
    "query-offset": {"message_queue": QUEUE, "query_offset_policy": "BEGINNING"},
    "update-offset": {"group": GROUP, "message_queue": QUEUE, "offset": 1},
}
CASES = tuple(_cases())


def _answer_of(channel: grpc.Channel, port: int, case: GrpcCase) -> dict[str, Any]:
    service = service_pb2.DESCRIPTOR.services_by_name["MessagingService"]
    described = service.methods_by_name[case.method]
    request_type = getattr(service_pb2, described.input_type.name)
    response_type = getattr(service_pb2, described.output_type.name)
    requests = [ParseDict(request, request_type()) for request in case.requests]
    path = f"/{service.full_name}/{case.method}"
    options = {"timeout": SECONDS, "metadata": list(case.metadata.items()), "wait_for_ready": True}
    answers = []
    status, details = "OK", ""
    try:
        if described.client_streaming:
            with TelemetryStream(channel, case.metadata, SECONDS) as stream:
                for number, request in enumerate(requests):
                    stream.send(request)
                    if number >= case.unanswered:
                        answers.append(stream.receive())
        elif described.server_streaming:
            call = channel.unary_stream(path, _bytes_of, response_type.FromString)
            answers.extend(call(requests[0], **options))
        else:
            answers.append(channel.unary_unary(path, _bytes_of, response_type.FromString)(requests[0], **options))
    except grpc.RpcError as error:
        status, details = error.code().name, error.details() or ""
    return {
        "name": case.name,
        "grpc": status,
        "details": details,
        "answers": [_without_port(MessageToDict(each, preserving_proto_field_name=True), port) for each in answers],
    }


def _without_port(value: Any, port: int) -> Any:
    if isinstance(value, dict):
        return {
            name: PORT if name == "port" and each == port else _without_port(each, port) for name, each in value.items()
        }
    return [_without_port(each, port) for each in value] if isinstance(value, list) else value


def _bytes_of(message):
    return message.SerializeToString()


class TelemetryStream:
    def __init__(self, channel: grpc.Channel, metadata: Mapping[str, str], seconds: float) -> None:
        self._requests = queue.SimpleQueue()
        path = "/apache.rocketmq.v2.MessagingService/Telemetry"
        make = channel.stream_stream(path, _bytes_of, service_pb2.TelemetryCommand.FromString)
        self._answers = make(self._sent(), timeout=seconds, metadata=list(metadata.items()), wait_for_ready=True)

    def __enter__(self) -> "TelemetryStream":
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(None)
        self._answers.cancel()

    def _sent(self):
        while (request := self._requests.get()) is not None:
            yield request

    def send(self, request) -> None:
        self._requests.put(request)

    def receive(self):
        return next(self._answers)


def recorded() -> dict[str, dict[str, Any]]:
    return {answer["name"]: answer for answer in map(json.loads, RECORDED.read_text().splitlines())}


def asked_of(address: str) -> list[dict[str, Any]]:
    with grpc.insecure_channel(address) as channel:
        return [_answer_of(channel, int(address.rpartition(":")[2]), case) for case in CASES]


def record(address: str) -> None:
    answers = asked_of(address)
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text("".join(f"{json.dumps(answer)}\n" for answer in answers))
