"""The service `MessagingService`, as far as it reads: what clients of RocketMQ 5 ask.

Answers and errors are those of the official proxy 5.5.0, where it has the call; pulls and offsets are in
:mod:`broker.grpc.pulls`. Nothing is sent, and no message is popped.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.message import DecodeError, Message
from grpc.aio import ServicerContext

from broker.grpc.calls import CANCELLED, Answer, Call, CalledMethod, CallRunner, refuse_write
from broker.grpc.clients import Forget, KnownClients, client_id_of, join
from broker.grpc.messages import service_pb2 as pb
from broker.grpc.messages.definition_pb2 import ClientType, Code, Settings
from broker.grpc.pulls import PullingCalls
from broker.grpc.resources import checked_group, checked_topic
from broker.grpc.routes import EVERY_QUEUE, brokers_of, endpoints_for, message_types, queue_of, queues_of
from broker.grpc.settings import CONSUMERS, LIGHT_CONSUMERS, settings_of_consumer, settings_of_producer
from broker.grpc.statuses import OK, CallRefused, CallUnserved, status_of
from storage.layout.store_config import SubscriptionGroup

SERVICE: Final = "MessagingService"
TELEMETRY: Final = CalledMethod(name=f"{SERVICE}/Telemetry")

WRITES: Final = ("SendMessage", "EndTransaction", "RecallMessage")
OF_POPPED: Final = (
    "ReceiveMessage",
    "AckMessage",
    "ForwardMessageToDeadLetterQueue",
    "ChangeInvisibleDuration",
    "SyncLiteSubscription",
)
"""Methods about messages that are popped."""

SETTINGS_ROOM: Final = 8
"""The part of the budget of registries that the settings of clients may take: one of so many."""

NOT_POPPED: Final = (
    "{} is not served: this server only reads and keeps no account of popped messages. "
    "Pull messages by PullMessage, UpdateOffset and GetOffset, or consume by the broker's port"
)


class SettingsRefused(CallRefused):
    """Settings for which the stream of their client ends with a status of gRPC."""

    def __init__(self, status: grpc.StatusCode, message: str) -> None:
        super().__init__(Code.BAD_REQUEST, message)
        self.status = status


class MessagingService:
    """Answers clients for the stores of a runner."""

    def __init__(self, runner: CallRunner, port: int, forget: Sequence[Forget]) -> None:
        """`port` is what clients find in routes; each of `forget` is called with the connection of a client gone."""
        self._runner, self._port = runner, port
        room = runner.stores.services[0].budget.room("settings of clients by gRPC", SETTINGS_ROOM)
        self._clients = KnownClients(room, forget)

    def handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        """The handlers by method."""
        pulls = PullingCalls(self._clients)
        answers: dict[str, Answer] = {
            "QueryRoute": self._query_route,
            "Heartbeat": self._heartbeat,
            "QueryAssignment": self._query_assignment,
            "NotifyClientTermination": self._notify_termination,
            "PullMessage": pulls.pull,
            "GetOffset": pulls.get_offset,
            "QueryOffset": pulls.query_offset,
            "UpdateOffset": pulls.update_offset,
            **dict.fromkeys(WRITES, refuse_write),
            **dict.fromkeys(OF_POPPED, _not_popped),
        }
        identified = {name: partial(_identified, answer) for name, answer in answers.items()}
        handlers = self._runner.handlers(pb, SERVICE, identified, shows=("PullMessage",))
        return handlers | {"Telemetry": grpc.stream_stream_rpc_method_handler(self._telemetry)}

    # ------------------------------------------------------------------ routes

    async def _query_route(self, call: Call, request: pb.QueryRouteRequest) -> pb.QueryRouteResponse:
        """The queues of a topic."""
        topic = checked_topic(request.topic)
        call.context().require_right(topic)
        endpoints = endpoints_for(request.endpoints, self._port)
        brokers = await brokers_of(call, topic)
        types = message_types(brokers, topic)
        return pb.QueryRouteResponse(
            status=OK, message_queues=queues_of(brokers, request.topic, endpoints, types=types)
        )

    async def _query_assignment(self, call: Call, request: pb.QueryAssignmentRequest) -> pb.QueryAssignmentResponse:
        """All queues of a topic: each by itself for a group that consumes in order, else all of a broker as one."""
        topic, group = checked_topic(request.topic), checked_group(request.group)
        context = call.context()
        context.require_right(topic)
        context.require_group(group)
        endpoints = endpoints_for(request.endpoints, self._port)
        brokers = await brokers_of(call, topic)
        if self._group(group).consume_message_orderly:
            queues = list(queues_of(brokers, request.topic, endpoints))
        else:
            queues = [queue_of(each.service, request.topic, EVERY_QUEUE, endpoints) for each in brokers if each.queues]
        response = pb.QueryAssignmentResponse(status=OK)
        for queue in queues:
            response.assignments.add().message_queue.CopyFrom(queue)
        return response

    def _group(self, name: str) -> SubscriptionGroup:
        """A group as a store has it, else as a broker would make it."""
        groups = (each.store.config.subscription_groups.get(name) for each in self._runner.stores.services)
        return next((each for each in groups if each is not None), SubscriptionGroup(name))

    # ------------------------------------------------------------------ clients

    async def _heartbeat(self, call: Call, request: pb.HeartbeatRequest) -> pb.HeartbeatResponse:
        """Keep a client in its group."""
        client = self._clients.require(call)
        if client.is_consumer:
            group = checked_group(request.group)
            call.context().require_group(group)
            await join(call, client, group)
        return pb.HeartbeatResponse(status=OK)

    async def _notify_termination(
        self, call: Call, request: pb.NotifyClientTerminationRequest
    ) -> pb.NotifyClientTerminationResponse:
        """Forget a client that ends."""
        if self._clients.drop(call).is_consumer:
            checked_group(request.group)
        return pb.NotifyClientTerminationResponse(status=OK)

    async def _telemetry(self, requests: AsyncIterator[bytes], servicer: "ServicerContext[Any, Any]") -> None:
        """Answer the settings of a client until it goes, or the server stops."""
        started, result = time.perf_counter_ns(), CANCELLED
        try:
            await self._runner.admit(servicer)
            try:
                call = self._runner.begin(TELEMETRY, servicer)
            except Exception as error:
                status = status_of(error)
                result = Code.Name(status.code)
                await servicer.write(pb.TelemetryCommand(status=status).SerializeToString())
                return
            seconds: float | None = self._runner.request_seconds
            while (data := await self._next(requests, seconds)) is not None:
                try:
                    answer = await self._answer(call, pb.TelemetryCommand.FromString(data))
                except DecodeError:
                    result = "BAD_REQUEST"
                    await servicer.abort(grpc.StatusCode.INVALID_ARGUMENT, "this is no TelemetryCommand")
                except SettingsRefused as error:
                    result = "BAD_REQUEST"
                    await servicer.abort(error.status, str(error))
                except Exception as error:
                    answer = pb.TelemetryCommand(status=status_of(error))
                if answer is not None:
                    await servicer.write(answer.SerializeToString())
                    seconds = None if answer.HasField("settings") else seconds
            result = "OK"
        except TimeoutError:
            await servicer.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no settings within {seconds} s")
        finally:
            self._runner.count(TELEMETRY.name, result, started)

    async def _next(self, requests: AsyncIterator[bytes], seconds: float | None) -> bytes | None:
        """The next command of a client; None when it goes, or the server stops. Raises `TimeoutError`."""
        reading = asyncio.ensure_future(anext(requests, None))
        waiting: set[asyncio.Future[Any]] = {reading, self._runner.stopped}
        try:
            if not (await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED))[0]:
                raise TimeoutError
            return reading.result() if reading.done() else None
        finally:
            reading.cancel()

    async def _answer(self, call: Call, command: pb.TelemetryCommand) -> pb.TelemetryCommand | None:
        """What a client gets for a command; None for those that answer a command of a server, of which there are none.

        Raises `SettingsRefused`.
        """
        client_id_of(call)
        if not command.HasField("settings"):
            return None
        sent = command.settings
        if sent.WhichOneof("pub_sub") is None:
            text = "there is no publishing or subscription data in settings"
            raise SettingsRefused(grpc.StatusCode.INVALID_ARGUMENT, text)
        if sent.HasField("publishing"):
            for topic in sent.publishing.topics:
                _in_settings(checked_topic, topic)
            self._clients.take(call, sent)
            return pb.TelemetryCommand(status=OK, settings=settings_of_producer(sent))
        group = _in_settings(checked_group, sent.subscription.group)
        context = call.context()
        context.require_group(group)
        for entry in sent.subscription.subscriptions:
            context.require_right(entry.topic.name)
        _check_type(sent, group)
        client = self._clients.take(call, sent)
        await join(call, client, group)
        return pb.TelemetryCommand(status=OK, settings=settings_of_consumer(sent, self._group(group)))


async def _identified(answer: Answer, call: Call, request: Any) -> Any:
    """Ask for the id of the client first, as all methods do."""
    client_id_of(call)
    return await answer(call, request)


def _in_settings(check: Any, resource: Any) -> str:
    """The checked name of a resource in settings. Raises `SettingsRefused`."""
    try:
        return str(check(resource))
    except CallRefused as error:
        raise SettingsRefused(grpc.StatusCode.INVALID_ARGUMENT, _failed(str(error))) from None


def _check_type(sent: Settings, group: str) -> None:
    if sent.client_type in LIGHT_CONSUMERS:
        text = _failed(f"regular group cannot use LITE mode: {group}")
        raise SettingsRefused(grpc.StatusCode.INVALID_ARGUMENT, text)
    if sent.client_type not in CONSUMERS:
        known = ClientType.DESCRIPTOR.values_by_number.get(sent.client_type)
        name = "UNRECOGNIZED" if known is None else known.name
        raise SettingsRefused(grpc.StatusCode.INTERNAL, _failed(f"Client type is not consumer, type: {name}"))


def _failed(message: str) -> str:
    return f"process client telemetryCommand failed. {message}"


async def _not_popped(call: Call, _request: Message) -> NoReturn:
    raise CallUnserved(NOT_POPPED.format(call.method.name.partition("/")[2]))
