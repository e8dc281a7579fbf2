"""Good and bad calls of `MessagingService`: what the official proxy answers is recorded in tests/golden/grpc.

They are asked of the proxy in front of our server with the store g1, so that queues are readable there too.
"""

import json
import queue
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from broker.grpc.messages import service_pb2
from golden_store import GOLDEN

RECORDED: Final = GOLDEN / "grpc" / "proxy-5.5.0.jsonl"

ENDPOINTS: Final = {"scheme": "DOMAIN_NAME", "addresses": [{"host": "broker.example", "port": 8081}]}
TOPIC: Final = {"name": "TopicTest"}
GROUP: Final = {"name": "GroupOfGrpc"}
ME: Final = {"x-mq-client-id": "client@1", "x-mq-language": "JAVA", "x-mq-client-version": "5.0.8"}
OTHER: Final = {**ME, "x-mq-client-id": "client@2"}
NOBODY: Final = {"x-mq-language": "JAVA", "x-mq-client-version": "5.0.8"}
QUEUE: Final = {"topic": TOPIC, "id": 0, "broker": {"name": "broker-a"}}
BAD_TOPIC: Final = {"name": "Topic Test"}
BAD_GROUP: Final = {"name": "Group$"}
LONG: Final = {"name": "x" * 256}
SECONDS: Final = 60.0
"""How long an answer may take."""
PORT: Final = 1
"""What stands in answers for the port of the server."""


@dataclass(frozen=True)
class GrpcCase:
    """A call, or several commands on one stream of Telemetry; the requests are protobuf's JSON."""

    name: str
    method: str
    requests: Sequence[Mapping[str, Any]] = ({},)
    metadata: Mapping[str, str] = field(default_factory=lambda: ME)
    unanswered: int = 0
    """The first commands that get no answer; it is seen by the answer that comes to the one behind them."""


def subscribing(client_type: str, group: Mapping[str, Any] | None = GROUP, topic: Any = TOPIC, **more: Any) -> Any:
    """A command with the settings of a consumer."""
    expression = {"type": "TAG", "expression": "*"}
    subscription = {"subscriptions": [{"topic": topic, "expression": more.pop("expression", expression)}], **more}
    if group is not None:
        subscription["group"] = group
    return {"settings": {"client_type": client_type, "access_point": ENDPOINTS, "subscription": subscription}}


def _publishing(*topics: Mapping[str, Any]) -> Any:
    publishing = {"topics": list(topics), "validate_message_type": True}
    return {"settings": {"client_type": "PRODUCER", "access_point": ENDPOINTS, "publishing": publishing}}


CASES: Final = (
    # ------------------------------------------------------------------ before the client is known
    GrpcCase("heartbeat-before-settings", "Heartbeat", [{"group": GROUP, "client_type": "PUSH_CONSUMER"}], OTHER),
    GrpcCase("termination-before-settings", "NotifyClientTermination", [{"group": GROUP}], OTHER),
    GrpcCase(
        "assignment-before-settings",
        "QueryAssignment",
        [{"topic": TOPIC, "group": GROUP, "endpoints": ENDPOINTS}],
        OTHER,
    ),
    # ------------------------------------------------------------------ QueryRoute
    GrpcCase("route", "QueryRoute", [{"topic": TOPIC, "endpoints": ENDPOINTS}]),
    GrpcCase(
        "route-two-addresses",
        "QueryRoute",
        [
            {
                "topic": TOPIC,
                "endpoints": {
                    "scheme": "IPv4",
                    "addresses": [{"host": "10.0.0.1", "port": 8081}, {"host": "10.0.0.2", "port": 8082}],
                },
            }
        ],
    ),
    GrpcCase(
        "route-ipv6",
        "QueryRoute",
        [{"topic": TOPIC, "endpoints": {"scheme": "IPv6", "addresses": [{"host": "fe80::1", "port": 8081}]}}],
    ),
    GrpcCase(
        "route-wrong-scheme",
        "QueryRoute",
        [{"topic": TOPIC, "endpoints": {"scheme": "IPv6", "addresses": [{"host": "10.0.0.1", "port": 8081}]}}],
    ),
    GrpcCase("route-delay-topic", "QueryRoute", [{"topic": {"name": "TopicDelay"}, "endpoints": ENDPOINTS}]),
    GrpcCase("route-unknown-topic", "QueryRoute", [{"topic": {"name": "NoSuchTopic"}, "endpoints": ENDPOINTS}]),
    GrpcCase(
        "route-unknown-in-namespace",
        "QueryRoute",
        [{"topic": {"resource_namespace": "ns", "name": "TopicTest"}, "endpoints": ENDPOINTS}],
    ),
    GrpcCase("route-no-topic", "QueryRoute", [{"endpoints": ENDPOINTS}]),
    GrpcCase("route-blank-topic", "QueryRoute", [{"topic": {"name": " "}, "endpoints": ENDPOINTS}]),
    GrpcCase("route-bad-topic", "QueryRoute", [{"topic": BAD_TOPIC, "endpoints": ENDPOINTS}]),
    GrpcCase("route-long-topic", "QueryRoute", [{"topic": LONG, "endpoints": ENDPOINTS}]),
    GrpcCase("route-127-characters", "QueryRoute", [{"topic": {"name": "x" * 127}, "endpoints": ENDPOINTS}]),
    GrpcCase("route-128-characters", "QueryRoute", [{"topic": {"name": "x" * 128}, "endpoints": ENDPOINTS}]),
    GrpcCase("route-system-topic", "QueryRoute", [{"topic": {"name": "RMQ_SYS_TRACE_TOPIC"}, "endpoints": ENDPOINTS}]),
    GrpcCase("route-tbw102", "QueryRoute", [{"topic": {"name": "TBW102"}, "endpoints": ENDPOINTS}]),
    GrpcCase(
        "route-schedule-topic", "QueryRoute", [{"topic": {"name": "SCHEDULE_TOPIC_XXXX"}, "endpoints": ENDPOINTS}]
    ),
    GrpcCase("route-retry-topic", "QueryRoute", [{"topic": {"name": "%RETRY%NobodyKnowsMe"}, "endpoints": ENDPOINTS}]),
    GrpcCase("route-no-endpoints", "QueryRoute", [{"topic": TOPIC}]),
    GrpcCase("route-no-address", "QueryRoute", [{"topic": TOPIC, "endpoints": {"scheme": "IPv4"}}]),
    GrpcCase(
        "route-port-0",
        "QueryRoute",
        [{"topic": TOPIC, "endpoints": {"scheme": "IPv4", "addresses": [{"host": "10.0.0.1"}]}}],
    ),
    GrpcCase(
        "route-negative-port",
        "QueryRoute",
        [{"topic": TOPIC, "endpoints": {"scheme": "IPv4", "addresses": [{"host": "10.0.0.1", "port": -1}]}}],
    ),
    GrpcCase(
        "route-large-port",
        "QueryRoute",
        [{"topic": TOPIC, "endpoints": {"scheme": "IPv4", "addresses": [{"host": "10.0.0.1", "port": 70000}]}}],
    ),
    GrpcCase(
        "route-no-host",
        "QueryRoute",
        [{"topic": TOPIC, "endpoints": {"scheme": "IPv4", "addresses": [{"port": 8081}]}}],
    ),
    GrpcCase(
        "route-no-scheme",
        "QueryRoute",
        [{"topic": TOPIC, "endpoints": {"addresses": [{"host": "10.0.0.1", "port": 8081}]}}],
    ),
    GrpcCase("route-no-client-id", "QueryRoute", [{"topic": TOPIC, "endpoints": ENDPOINTS}], NOBODY),
    GrpcCase(
        "route-no-language", "QueryRoute", [{"topic": TOPIC, "endpoints": ENDPOINTS}], {"x-mq-client-id": "client@1"}
    ),
    # ------------------------------------------------------------------ Telemetry
    GrpcCase("settings-push", "Telemetry", [subscribing("PUSH_CONSUMER")]),
    GrpcCase(
        "settings-push-limits",
        "Telemetry",
        [subscribing("PUSH_CONSUMER", fifo=True, receive_batch_size=7, long_polling_timeout="3s")],
    ),
    GrpcCase(
        "settings-push-own-policy",
        "Telemetry",
        [
            {
                "settings": {
                    **subscribing("PUSH_CONSUMER")["settings"],
                    "request_timeout": "3s",
                    "backoff_policy": {
                        "max_attempts": 3,
                        "exponential_backoff": {"initial": "1s", "max": "10s", "multiplier": 2},
                    },
                    "user_agent": {"language": "JAVA", "version": "5.0.8", "platform": "x", "hostname": "h"},
                    "client_properties": {"a": "b"},
                }
            }
        ],
    ),
    GrpcCase("settings-simple", "Telemetry", [subscribing("SIMPLE_CONSUMER", long_polling_timeout="20s")]),
    GrpcCase("settings-pull", "Telemetry", [subscribing("PULL_CONSUMER")], {**ME, "x-mq-client-id": "client@3"}),
    GrpcCase("settings-lite", "Telemetry", [subscribing("LITE_PUSH_CONSUMER")], {**ME, "x-mq-client-id": "client@4"}),
    GrpcCase(
        "settings-unspecified",
        "Telemetry",
        [subscribing("CLIENT_TYPE_UNSPECIFIED")],
        {**ME, "x-mq-client-id": "client@5"},
    ),
    GrpcCase(
        "settings-no-type",
        "Telemetry",
        [{"settings": {"access_point": ENDPOINTS, "subscription": {"group": GROUP}}}],
        {**ME, "x-mq-client-id": "client@6"},
    ),
    GrpcCase(
        "settings-twice",
        "Telemetry",
        [subscribing("PUSH_CONSUMER"), subscribing("PUSH_CONSUMER", receive_batch_size=2)],
    ),
    GrpcCase(
        "settings-known-group",
        "Telemetry",
        [subscribing("PUSH_CONSUMER", {"name": "CG_TAG"})],
        {**ME, "x-mq-client-id": "client@7"},
    ),
    GrpcCase("settings-producer", "Telemetry", [_publishing(TOPIC)], {**ME, "x-mq-client-id": "producer@1"}),
    GrpcCase(
        "settings-producer-bad-topic", "Telemetry", [_publishing(BAD_TOPIC)], {**ME, "x-mq-client-id": "producer@2"}
    ),
    GrpcCase("settings-producer-no-topic", "Telemetry", [_publishing()], {**ME, "x-mq-client-id": "producer@3"}),
    GrpcCase(
        "settings-neither",
        "Telemetry",
        [{"settings": {"client_type": "PUSH_CONSUMER"}}],
        {**ME, "x-mq-client-id": "client@8"},
    ),
    GrpcCase(
        "settings-no-group", "Telemetry", [subscribing("PUSH_CONSUMER", None)], {**ME, "x-mq-client-id": "client@9"}
    ),
    GrpcCase(
        "settings-bad-group",
        "Telemetry",
        [subscribing("PUSH_CONSUMER", BAD_GROUP)],
        {**ME, "x-mq-client-id": "client@9"},
    ),
    GrpcCase(
        "settings-long-group", "Telemetry", [subscribing("PUSH_CONSUMER", LONG)], {**ME, "x-mq-client-id": "client@9"}
    ),
    GrpcCase(
        "settings-bad-subscribed-topic",
        "Telemetry",
        [subscribing("PUSH_CONSUMER", topic=BAD_TOPIC)],
        {**ME, "x-mq-client-id": "client@9"},
    ),
    GrpcCase(
        "settings-unknown-topic",
        "Telemetry",
        [subscribing("PUSH_CONSUMER", topic={"name": "NoSuchTopic"})],
        {**ME, "x-mq-client-id": "client@9"},
    ),
    GrpcCase(
        "settings-bad-sql",
        "Telemetry",
        [subscribing("PUSH_CONSUMER", expression={"type": "SQL", "expression": "a >"})],
        {**ME, "x-mq-client-id": "client@9"},
    ),
    GrpcCase("settings-no-client-id", "Telemetry", [subscribing("PUSH_CONSUMER")], NOBODY),
    GrpcCase(
        "settings-in-namespace",
        "Telemetry",
        [subscribing("PUSH_CONSUMER", {"resource_namespace": "ns", "name": "GroupOfGrpc"})],
        {**ME, "x-mq-client-id": "client@10"},
    ),
    GrpcCase("telemetry-nothing", "Telemetry", [{}, subscribing("PUSH_CONSUMER")], unanswered=1),
    GrpcCase(
        "telemetry-trace-of-nobody",
        "Telemetry",
        [
            {"status": {"code": "OK"}, "thread_stack_trace": {"nonce": "n", "thread_stack_trace": "t"}},
            subscribing("PUSH_CONSUMER"),
        ],
        unanswered=1,
    ),
    GrpcCase(
        "telemetry-verified-of-nobody",
        "Telemetry",
        [{"status": {"code": "OK"}, "verify_message_result": {"nonce": "n"}}, subscribing("PUSH_CONSUMER")],
        unanswered=1,
    ),
    GrpcCase(
        "telemetry-server-command",
        "Telemetry",
        [{"print_thread_stack_trace_command": {"nonce": "n"}}, subscribing("PUSH_CONSUMER")],
        unanswered=1,
    ),
    # ------------------------------------------------------------------ Heartbeat
    GrpcCase("heartbeat-push", "Heartbeat", [{"group": GROUP, "client_type": "PUSH_CONSUMER"}]),
    GrpcCase("heartbeat-simple", "Heartbeat", [{"group": GROUP, "client_type": "SIMPLE_CONSUMER"}]),
    GrpcCase(
        "heartbeat-pull",
        "Heartbeat",
        [{"group": GROUP, "client_type": "PULL_CONSUMER"}],
        {**ME, "x-mq-client-id": "client@3"},
    ),
    GrpcCase("heartbeat-producer", "Heartbeat", [{"client_type": "PRODUCER"}], {**ME, "x-mq-client-id": "producer@1"}),
    GrpcCase(
        "heartbeat-producer-unknown", "Heartbeat", [{"client_type": "PRODUCER"}], {**ME, "x-mq-client-id": "producer@9"}
    ),
    GrpcCase("heartbeat-no-type", "Heartbeat", [{"group": GROUP}]),
    GrpcCase("heartbeat-no-group", "Heartbeat", [{"client_type": "PUSH_CONSUMER"}]),
    GrpcCase("heartbeat-bad-group", "Heartbeat", [{"group": BAD_GROUP, "client_type": "PUSH_CONSUMER"}]),
    GrpcCase("heartbeat-long-group", "Heartbeat", [{"group": LONG, "client_type": "PUSH_CONSUMER"}]),
    GrpcCase("heartbeat-blank-group", "Heartbeat", [{"group": {"name": " "}, "client_type": "PUSH_CONSUMER"}]),
    GrpcCase("heartbeat-no-client-id", "Heartbeat", [{"group": GROUP, "client_type": "PUSH_CONSUMER"}], NOBODY),
    # ------------------------------------------------------------------ QueryAssignment
    GrpcCase("assignment", "QueryAssignment", [{"topic": TOPIC, "group": GROUP, "endpoints": ENDPOINTS}]),
    GrpcCase(
        "assignment-unknown-topic",
        "QueryAssignment",
        [{"topic": {"name": "NoSuchTopic"}, "group": GROUP, "endpoints": ENDPOINTS}],
    ),
    GrpcCase(
        "assignment-other-group",
        "QueryAssignment",
        [{"topic": TOPIC, "group": {"name": "NobodyElse"}, "endpoints": ENDPOINTS}],
    ),
    GrpcCase("assignment-bad-topic", "QueryAssignment", [{"topic": BAD_TOPIC, "group": GROUP, "endpoints": ENDPOINTS}]),
    GrpcCase("assignment-no-topic", "QueryAssignment", [{"group": GROUP, "endpoints": ENDPOINTS}]),
    GrpcCase("assignment-bad-group", "QueryAssignment", [{"topic": TOPIC, "group": BAD_GROUP, "endpoints": ENDPOINTS}]),
    GrpcCase("assignment-no-group", "QueryAssignment", [{"topic": TOPIC, "endpoints": ENDPOINTS}]),
    GrpcCase("assignment-no-endpoints", "QueryAssignment", [{"topic": TOPIC, "group": GROUP}]),
    GrpcCase(
        "assignment-no-client-id", "QueryAssignment", [{"topic": TOPIC, "group": GROUP, "endpoints": ENDPOINTS}], NOBODY
    ),
    # ------------------------------------------------------------------ NotifyClientTermination
    GrpcCase("termination", "NotifyClientTermination", [{"group": GROUP}]),
    GrpcCase("termination-twice", "NotifyClientTermination", [{"group": GROUP}]),
    GrpcCase("termination-producer", "NotifyClientTermination", [{}], {**ME, "x-mq-client-id": "producer@1"}),
    GrpcCase("termination-no-group", "NotifyClientTermination", [{}], {**ME, "x-mq-client-id": "client@7"}),
    GrpcCase(
        "termination-bad-group",
        "NotifyClientTermination",
        [{"group": BAD_GROUP}],
        {**ME, "x-mq-client-id": "client@10"},
    ),
    GrpcCase("termination-no-client-id", "NotifyClientTermination", [{"group": GROUP}], NOBODY),
    # ------------------------------------------------------------------ not served by the proxy
    GrpcCase("pull", "PullMessage", [{"group": GROUP, "message_queue": QUEUE, "batch_size": 1}]),
    GrpcCase("get-offset", "GetOffset", [{"group": GROUP, "message_queue": QUEUE}]),
    GrpcCase("query-offset", "QueryOffset", [{"message_queue": QUEUE, "query_offset_policy": "BEGINNING"}]),
    GrpcCase("update-offset", "UpdateOffset", [{"group": GROUP, "message_queue": QUEUE, "offset": 1}]),
)


def _answer_of(channel: grpc.Channel, port: int, case: GrpcCase) -> dict[str, Any]:
    """What the server at a port answers to a case: the status of gRPC, and the messages as protobuf's JSON."""
    service = service_pb2.DESCRIPTOR.services_by_name["MessagingService"]
    described = service.methods_by_name[case.method]
    request_type = getattr(service_pb2, described.input_type.name)
    response_type = getattr(service_pb2, described.output_type.name)
    requests = [ParseDict(request, request_type()) for request in case.requests]
    path = f"/{service.full_name}/{case.method}"
    options = {"timeout": SECONDS, "metadata": list(case.metadata.items()), "wait_for_ready": True}
    answers: list[Message] = []
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


def _bytes_of(message: Message) -> bytes:
    return message.SerializeToString()


class TelemetryStream:
    """A stream of Telemetry that stays open until the test has read its answers."""

    def __init__(self, channel: grpc.Channel, metadata: Mapping[str, str], seconds: float) -> None:
        self._requests: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        path = "/apache.rocketmq.v2.MessagingService/Telemetry"
        make = channel.stream_stream(path, _bytes_of, service_pb2.TelemetryCommand.FromString)
        self._answers = make(self._sent(), timeout=seconds, metadata=list(metadata.items()), wait_for_ready=True)

    def __enter__(self) -> "TelemetryStream":
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.put(None)
        self._answers.cancel()

    def _sent(self) -> Iterator[Message]:
        while (request := self._requests.get()) is not None:
            yield request

    def send(self, request: Message) -> None:
        """Send a command."""
        self._requests.put(request)

    def receive(self) -> Message:
        """The next command of the server. Raises `grpc.RpcError` where the stream ends with an error."""
        return next(self._answers)


def recorded() -> dict[str, dict[str, Any]]:
    """The recorded answers by the name of their case."""
    return {answer["name"]: answer for answer in map(json.loads, RECORDED.read_text().splitlines())}


def asked_of(address: str) -> list[dict[str, Any]]:
    """What the server at an address answers to all cases."""
    with grpc.insecure_channel(address) as channel:
        return [_answer_of(channel, int(address.rpartition(":")[2]), case) for case in CASES]


def record(address: str) -> None:
    """Write down what the server at an address answers to all cases, a line each."""
    answers = asked_of(address)
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text("".join(f"{json.dumps(answer)}\n" for answer in answers))
