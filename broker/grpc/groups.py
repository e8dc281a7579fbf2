"""What `Admin` says of consumer groups, their clients and topics: what the broker's port answers, as gRPC messages.

Each method asks every served broker by a request code, worker 0 for what it alone knows, and joins the answers. Rights
are those of the account: a group that it may not see is refused, and topics that it may not read are left out. A group
subscribes to what its last heartbeat said, so that all of its clients are taken to have the same subscription.
"""

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from google.protobuf.duration_pb2 import Duration

from broker.grpc.calls import Call
from broker.grpc.message_conversion import timestamp_of
from broker.grpc.messages import admin_pb2 as pb
from broker.grpc.messages.definition_pb2 import (
    Broker,
    Code,
    FilterExpression,
    FilterType,
    MessageQueue,
    MessageType,
    Resource,
)
from broker.grpc.resources import full_name, named_group, named_topic, resource_of
from broker.grpc.statuses import OK, CallRefused
from broker.service.broker_service import BrokerService
from broker.web.api.errors import ApiError
from broker.web.api.request_context import RequestContext
from protocol.bodies import (
    ConsumerConnection,
    GroupList,
    ProducerTableInfo,
    QueryConsumeTimeSpanBody,
    SubscriptionData,
    TopicList,
    decode_json,
)
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.errors import RocketLensError
from protocol.fastjson import parse_fastjson
from protocol.header_fields import well_formed
from protocol.system_topics import LIGHT_PREFIX
from storage.layout.store_config import TopicConfig
from storage.store.light_topics import SEPARATOR
from storage.store.topic_catalog import find_topic

MODELS: Final = {"CLUSTERING": pb.MessageModel.CLUSTERING, "BROADCASTING": pb.MessageModel.BROADCASTING}

NOT_ONLINE: Final = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)
"""How a broker answers about a group or a client that is not connected."""

MOST_GROUPS: Final = 1000
"""Groups of one topic, or topics of one group, that an answer lists."""

MOST_MESSAGES: Final = 2**40
"""Messages of one queue that are not consumed, at most: offsets are what clients have committed."""


# ---------------------------------------------------------------------- topics


async def describe_topic(call: Call, request: pb.DescribeTopicStatusRequest) -> pb.DescribeTopicStatusResponse:
    """What the configuration of a topic says."""
    topic = named_topic(request.topic)
    found = await _topic_config(call, topic)
    attributes = {well_formed(name.lstrip("+")): well_formed(value) for name, value in found.attributes.items()}
    tags = {
        "readQueueNums": str(found.read_queue_nums),
        "writeQueueNums": str(found.write_queue_nums),
        "perm": str(found.perm),
        "order": str(found.order).lower(),
        **attributes,
    }
    name = found.message_type
    kind = name if name in MessageType.DESCRIPTOR.values_by_name else "MESSAGE_TYPE_UNSPECIFIED"
    return pb.DescribeTopicStatusResponse(status=OK, topic_message_type=kind, tags=tags)


async def _topic_config(call: Call, topic: str) -> TopicConfig:
    unknown = list[ApiError]()
    for service in call.stores.services:
        context = call.context(service)
        try:
            return await call.run(context, partial(_config_in, context, topic))
        except ApiError as error:
            if error.status != 404:
                raise
            unknown.append(error)
    raise unknown[0]


def _config_in(context: RequestContext, topic: str) -> TopicConfig:
    """The configuration of a topic in a store, on a thread. Raises `ApiError`."""
    context.require_topic(topic)
    return find_topic(context.store, topic) or TopicConfig(topic)


async def topic_route(call: Call, request: pb.GetTopicRouteRequest) -> pb.GetTopicRouteResponse:
    """The route of a topic as JSON, as the name server on the broker's port gives it."""
    topic = named_topic(request.topic)
    call.context().require_right(topic)
    fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
    answer = await call.ask(call.stores.services[0], RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
    return pb.GetTopicRouteResponse(status=OK, topic_route_data=bytes(answer.body).decode("utf-8", "replace"))


# ---------------------------------------------------------------------- clients and subscriptions


async def consumer_connections(
    call: Call, request: pb.ListConsumerConnectionRequest
) -> pb.ListConsumerConnectionResponse:
    """The clients of a group that are connected here, those that subscribe to a topic if one is given."""
    if request.HasField("liteTopic"):
        raise CallRefused(Code.UNSUPPORTED, "which light topics a client subscribes to is not known here")
    group, topic = _group_of(call, request.group), full_name(request.topic)
    clients: dict[str, pb.ClientInfo] = {}
    for service in call.stores.services:
        found = await _connection(call, service, group)
        if found is not None and (not topic or topic in found.subscription_table):
            clients.update((each.client_id, each) for each in _clients(found))
    return pb.ListConsumerConnectionResponse(status=OK, client_info=clients.values())


async def list_subscriptions(call: Call, request: pb.ListSubscriptionRequest) -> pb.ListSubscriptionResponse:
    """What groups subscribe to, or have consumed: of one group, of one topic, or of both."""
    found: dict[tuple[str, str], pb.SubscriptionInfo] = {}
    async for info, _ in _subscriptions(call, request.group, request.topic):
        key = full_name(info.group), full_name(info.topic)
        if key not in found or info.online:
            found[key] = info
    return pb.ListSubscriptionResponse(status=OK, subscription_info=found.values())


async def describe_subscriptions(
    call: Call, request: pb.DescribeSubscriptionRequest
) -> pb.DescribeSubscriptionResponse:
    """What each connected client of a group subscribes to."""
    response = pb.DescribeSubscriptionResponse(status=OK)
    seen: set[tuple[str, str, str]] = set()
    async for info, connection in _subscriptions(call, request.group, request.topic):
        for client in () if connection is None else _clients(connection):
            key = client.client_id, full_name(info.group), full_name(info.topic)
            if info.online and key not in seen:
                seen.add(key)
                response.client_subscription_info.add(client_info=client, subscription_info=info)
    return response


async def _subscriptions(
    call: Call, group: Resource, topic: Resource
) -> AsyncIterator[tuple[pb.SubscriptionInfo, ConsumerConnection | None]]:
    """Yield the subscriptions of one group, of the groups of a topic, or of one group to a topic, broker by broker."""
    one_group, one_topic = full_name(group), full_name(topic)
    if not one_group and not one_topic:
        raise CallRefused(Code.BAD_REQUEST, "a topic or a group is needed")
    if one_topic:
        call.context().require_right(one_topic)
    for service in call.stores.services:
        context = call.context(service)
        groups = [_group_of(call, group)] if one_group else await _groups_of_topic(call, service, one_topic)
        for name in groups:
            if not context.may_see_group(name):
                continue
            connection = await _connection(call, service, name)
            table = {} if connection is None else connection.subscription_table
            consumed = await _topics_of_group(call, service, name) if one_group else [one_topic]
            topics = {one_topic} if one_topic else {*table, *consumed}
            for each in sorted(topics):
                if (each in table or each in consumed) and context.may_read(each):
                    yield _subscription(name, each, table.get(each), connection), connection


def _subscription(
    group: str, topic: str, subscribed: SubscriptionData | None, connection: ConsumerConnection | None
) -> pb.SubscriptionInfo:
    info = pb.SubscriptionInfo(
        group=resource_of(group), topic=resource_of(topic), online=subscribed is not None, subscription_consistency=True
    )
    if connection is not None:
        info.message_model = MODELS.get(connection.message_model, pb.MessageModel.MESSAGE_MODEL_UNSPECIFIED)
    if subscribed is not None:
        info.expression.CopyFrom(_expression(subscribed.expression_type, subscribed.sub_string))
        info.last_update_timestamp.CopyFrom(timestamp_of(subscribed.sub_version))
    return info


def _expression(kind: str, text: str) -> FilterExpression:
    return FilterExpression(type=FilterType.SQL if kind == "SQL92" else FilterType.TAG, expression=well_formed(text))


async def _groups_of_topic(call: Call, service: BrokerService, topic: str) -> list[str]:
    answer = await call.ask(service, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
    return decode_json(bytes(answer.body), GroupList).group_list[:MOST_GROUPS]


async def _topics_of_group(call: Call, service: BrokerService, group: str) -> list[str]:
    answer = await call.ask(service, RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": group})
    return decode_json(bytes(answer.body), TopicList).topic_list[:MOST_GROUPS]


async def _readable_topics(call: Call, service: BrokerService, group: str) -> list[str]:
    """The topics of a group at one broker that the account may read."""
    context = call.context(service)
    return [topic for topic in await _topics_of_group(call, service, group) if context.may_read(topic)]


async def _connection(call: Call, service: BrokerService, group: str) -> ConsumerConnection | None:
    """The clients of a group at one broker, None where there are none."""
    fields = {"consumerGroup": group}
    answer = await call.ask(service, RequestCode.GET_CONSUMER_CONNECTION_LIST, fields, accepted=NOT_ONLINE)
    return None if answer.code in NOT_ONLINE else decode_json(bytes(answer.body), ConsumerConnection)


def _clients(connection: ConsumerConnection) -> Iterable[pb.ClientInfo]:
    model = MODELS.get(connection.message_model, pb.MessageModel.MESSAGE_MODEL_UNSPECIFIED)
    for each in connection.connection_set:
        yield pb.ClientInfo(
            client_id=well_formed(each.client_id),
            version=str(each.version),
            language=well_formed(each.language),
            egress_ip=well_formed(each.client_addr.rpartition(":")[0].strip("[]")),
            message_model=model,
        )


def _group_of(call: Call, resource: Resource) -> str:
    """The group of a request. Raises `CallRefused` for none, `ApiError` for one that may not be seen."""
    group = named_group(resource)
    call.context().require_group(group)
    return group


async def count_producers(call: Call) -> int:
    """Count the producers that are connected here."""
    found: set[str] = set()
    for service in call.stores.services:
        answer = await call.ask(service, RequestCode.GET_ALL_PRODUCER_INFO, {})
        for clients in decode_json(bytes(answer.body), ProducerTableInfo).data.values():
            found.update(each.client_id for each in clients)
    return len(found)


async def count_consumers(call: Call) -> int:
    """Count the consumers that are connected here."""
    found: set[str] = set()
    for service in call.stores.services:
        for group in service.clients.consumer_groups()[:MOST_GROUPS]:
            connection = await _connection(call, service, group)
            found.update(each.client_id for each in (() if connection is None else connection.connection_set))
    return len(found)


# ---------------------------------------------------------------------- progress


class _QueueProgress(msgspec.Struct, rename="camel"):
    """How far a group is in one queue, as GET_CONSUME_STATS says it."""

    broker_offset: int = 0
    consumer_offset: int = 0
    last_timestamp: int = 0
    pull_offset: int = 0


def _topics_of(call: Call, resources: Collection[Resource]) -> list[str]:
    """The topics that a request names, each once. Raises `CallRefused`, and `ApiError` for one that may not be read."""
    if len(resources) > MOST_GROUPS:
        raise CallRefused(Code.BAD_REQUEST, f"{len(resources)} topics: name no more than {MOST_GROUPS}")
    names = dict.fromkeys(map(named_topic, resources))
    for name in names:
        call.context().require_right(name)
    return list(names)


async def group_accumulation(
    call: Call, request: pb.DescribeGroupAccumulationRequest
) -> pb.DescribeGroupAccumulationResponse:
    """What a group has not consumed, in all and by topic; of light topics by their own names."""
    group = _group_of(call, request.group)
    asked = _topics_of(call, request.topics)
    response = pb.DescribeGroupAccumulationResponse(status=OK)
    names, light = asked, {}
    if request.HasField("lite_topic"):
        if len(asked) != 1:
            raise CallRefused(Code.ILLEGAL_TOPIC, "a light topic belongs to one topic: name that")
        light = {f"{LIGHT_PREFIX}{SEPARATOR}{asked[0]}{SEPARATOR}{request.lite_topic}": request.lite_topic}
        names = list(light)
    for service in call.stores.services:
        for topic in names or await _readable_topics(call, service, group):
            accumulation = await _accumulation(call, service, group, topic)
            if topic in light:
                _add(response.lite_topic_accumulation[light[topic]], accumulation)
            else:
                _add(response.topic_accumulation[well_formed(topic)], accumulation)
            _add(response.accumulation, accumulation)
    return response


Accumulation = pb.DescribeGroupAccumulationResponse.GroupAccumulation


async def _accumulation(call: Call, service: BrokerService, group: str, topic: str) -> Accumulation:
    fields = {"consumerGroup": group, "topic": topic}
    answer = await call.ask(service, RequestCode.GET_CONSUME_STATS, fields)
    found = Accumulation()
    for value in (_table(answer, "offsetTable")).values():
        queue = msgspec.convert(value, _QueueProgress)
        consumed = max(queue.consumer_offset, 0)
        found.inflight_messages += min(max(queue.pull_offset - consumed, 0), MOST_MESSAGES)
        found.accumulation += min(max(queue.broker_offset - consumed, 0), MOST_MESSAGES)
        found.last_consume_timestamp = max(found.last_consume_timestamp, queue.last_timestamp)
    found.ready_messages = max(found.accumulation - found.inflight_messages, 0)
    spans = await _time_spans(call, service, group, topic)
    delay = max((each.delay_time for each in spans), default=0)
    found.deliver_delay_time.CopyFrom(Duration(seconds=delay // 1000, nanos=delay % 1000 * 1_000_000))
    return found


def _add(total: Accumulation, more: Accumulation) -> None:
    total.inflight_messages += more.inflight_messages
    total.ready_messages += more.ready_messages
    total.accumulation += more.accumulation
    total.last_consume_timestamp = max(total.last_consume_timestamp, more.last_consume_timestamp)
    longest = max((total.deliver_delay_time, more.deliver_delay_time), key=lambda each: (each.seconds, each.nanos))
    total.deliver_delay_time.CopyFrom(longest)


async def time_spans(call: Call, request: pb.QueryTimeSpanRequest) -> pb.QueryTimeSpanResponse:
    """The times of the first, last and last consumed message of each queue."""
    group = _group_of(call, request.group)
    asked = _topics_of(call, request.topics)
    response = pb.QueryTimeSpanResponse(status=OK)
    for service in call.stores.services:
        for topic in asked or await _readable_topics(call, service, group):
            for each in await _time_spans(call, service, group, topic):
                response.queue_time_span_list.add(
                    message_queue=_queue(topic, each.message_queue.queue_id, service.broker_name),
                    min_timestamp=each.min_time_stamp,
                    max_timestamp=each.max_time_stamp,
                    consume_timestamp=each.consume_time_stamp,
                    delay_time_ms=each.delay_time,
                )
    return response


async def _time_spans(call: Call, service: BrokerService, group: str, topic: str) -> list[Any]:
    fields = {"topic": topic, "group": group}
    unknown = (ResponseCode.TOPIC_NOT_EXIST,)
    answer = await call.ask(service, RequestCode.QUERY_CONSUME_TIME_SPAN, fields, accepted=unknown)
    if answer.code in unknown:
        return []
    return list(decode_json(bytes(answer.body), QueryConsumeTimeSpanBody).consume_time_span_set)


def _queue(topic: str, queue_id: int, broker: str) -> MessageQueue:
    return MessageQueue(topic=resource_of(topic), id=queue_id, broker=Broker(name=well_formed(broker)))


def _table(answer: Response, name: str) -> Mapping[str, Any]:
    """A map in a body that may have queues as its keys."""
    found = parse_fastjson(bytes(answer.body)).get(name)
    return found if isinstance(found, dict) else {}


# ---------------------------------------------------------------------- what only a client knows


async def running_info(call: Call, request: pb.GetConsumerRunningInfoRequest) -> pb.GetConsumerRunningInfoResponse:
    """What a client that is connected here says of itself."""
    context = call.context()
    body = await _asked_client(call, request.group, request.client_id, stacks=False)
    info = pb.ConsumerRunningInfo()
    for name, value in _members(body, "properties"):
        info.properties[well_formed(name)] = well_formed(str(value))
    subscribed = body.get("subscriptionSet")
    for each in subscribed if isinstance(subscribed, list) else ():
        if isinstance(each, dict) and context.may_read(str(each.get("topic"))):
            expression = _expression(str(each.get("expressionType")), str(each.get("subString")))
            info.subscriptions[well_formed(str(each.get("topic")))].CopyFrom(expression)
    for key, value in _members(body, "mqTable"):
        queue = _parsed(key)
        if isinstance(value, dict) and "topic" in queue and context.may_read(str(queue["topic"])):
            item = info.message_queue_table.add()
            item.message_queue.CopyFrom(
                _queue(str(queue.get("topic")), _number(queue.get("queueId"), 32), str(queue.get("brokerName")))
            )
            for name, field in _PROCESS_QUEUE.items():
                setattr(item.process_queue_info, field, _number(value.get(name), 32 if field in _SHORT else 64))
            item.process_queue_info.locked = value.get("locked") is True
            item.process_queue_info.dropped = value.get("droped") is True
    for topic, value in _members(body, "statusTable"):
        if isinstance(value, dict) and context.may_read(topic):
            status = info.consume_status_table[well_formed(topic)]
            for name, field in _STATUS.items():
                given = value.get(name)
                setattr(status, field, given if isinstance(given, float) else float(_number(given)))
            status.consume_failed_msgs = _number(value.get("consumeFailedMsgs"))
    return pb.GetConsumerRunningInfoResponse(status=OK, consumer_running_info=info)


_PROCESS_QUEUE: Final = {
    "commitOffset": "commit_offset",
    "cachedMsgMinOffset": "cached_msg_min_offset",
    "cachedMsgMaxOffset": "cached_msg_max_offset",
    "cachedMsgCount": "cached_msg_count",
    "cachedMsgSizeInMiB": "cached_msg_size_in_mib",
    "transactionMsgMinOffset": "transaction_msg_min_offset",
    "transactionMsgMaxOffset": "transaction_msg_max_offset",
    "transactionMsgCount": "transaction_msg_count",
    "tryUnlockTimes": "try_unlock_times",
    "lastLockTimestamp": "last_lock_timestamp",
    "lastPullTimestamp": "last_pull_timestamp",
    "lastConsumeTimestamp": "last_consume_timestamp",
}
_SHORT: Final = ("cached_msg_count", "cached_msg_size_in_mib", "transaction_msg_count")
_STATUS: Final = {
    "pullRT": "receive_rt",
    "pullTPS": "receive_tps",
    "consumeRT": "consume_rt",
    "consumeOKTPS": "consume_ok_tps",
    "consumeFailedTPS": "consume_failed_tps",
}
"""Fields of a Java client's answer, and those of the messages that hold them."""


async def stack_trace(call: Call, request: pb.PrintThreadStackTraceRequest) -> pb.PrintThreadStackTraceResponse:
    """The stacks of the threads of a client that is connected here."""
    body = await _asked_client(call, request.group, request.client_id, stacks=True)
    stacks = body.get("jstack")
    return pb.PrintThreadStackTraceResponse(status=OK, thread_stack_trace=well_formed(str(stacks or "")))


async def _asked_client(call: Call, group: Resource, client_id: str, *, stacks: bool) -> dict[str, Any]:
    """Ask a client, at the first broker that it is connected to. Raises `CallRefused` where it is at none."""
    name = _group_of(call, group)
    fields = {"consumerGroup": name, "clientId": client_id, "jstackEnable": str(stacks).lower()}
    late = (*NOT_ONLINE, ResponseCode.CONSUME_MSG_TIMEOUT)
    for service in call.stores.services:
        answer = await call.ask(service, RequestCode.GET_CONSUMER_RUNNING_INFO, fields, accepted=late)
        if answer.code == ResponseCode.CONSUME_MSG_TIMEOUT:
            raise CallRefused(Code.PROXY_TIMEOUT, answer.remark or "the client does not answer")
        if answer.code == ResponseCode.SUCCESS:
            try:
                body = parse_fastjson(bytes(answer.body))
            except RocketLensError as error:
                raise CallRefused(Code.INTERNAL_ERROR, f"the client's answer cannot be read: {error}") from None
            return body if isinstance(body, dict) else {}
    raise CallRefused(Code.NOT_FOUND, f"no client {well_formed(client_id)[:255]} of group {name} is connected here")


def _parsed(key: str) -> Mapping[str, Any]:
    """A queue that is a key of a client's map; empty for what is none."""
    try:
        found = parse_fastjson(key)
    except RocketLensError:
        return {}
    return found if isinstance(found, dict) else {}


def _members(body: Mapping[str, Any], name: str) -> Iterable[tuple[str, Any]]:
    found = body.get(name)
    return found.items() if isinstance(found, dict) else ()


def _number(value: object, bits: int = 64) -> int:
    """An integer of a client's; 0 for what is none, or has more bits."""
    return value if isinstance(value, int) and -(1 << bits - 1) <= value < 1 << bits - 1 else 0
