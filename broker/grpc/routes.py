"""Where the queues of a topic are, for clients of RocketMQ 5 (`RouteActivity` of the official proxy).

All queues are readable only. Clients reach every broker at the endpoints that they asked with, at our port.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.grpc.calls import Call
from broker.grpc.messages.definition_pb2 import (
    Address,
    AddressScheme,
    Broker,
    Code,
    Endpoints,
    MessageQueue,
    MessageType,
    Permission,
    Resource,
)
from broker.grpc.statuses import CallRefused
from broker.service.broker_service import BrokerService
from protocol.bodies import TopicRouteData, decode_json
from protocol.codes import RequestCode, ResponseCode
from storage.store.topic_catalog import stored_topic

NO_ROUTE: Final = (
    "CODE: 17  DESC: No topic route info in name server for the topic: {}\n"
    "For more information, please visit the url, https://rocketmq.apache.org/docs/bestPractice/06FAQ"
)
TYPES: Final = {
    "NORMAL": MessageType.NORMAL,
    "FIFO": MessageType.FIFO,
    "DELAY": MessageType.DELAY,
    "TRANSACTION": MessageType.TRANSACTION,
    "LITE": MessageType.LITE,
    "PRIORITY": MessageType.PRIORITY,
}
MIXED: Final = [MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION]
LONGEST_ENDPOINTS: Final = 4096
"""Bytes of the endpoints that a client names: each queue of an answer repeats them."""

EVERY_QUEUE: Final = -1
"""The queue id of an assignment that stands for all queues of a broker."""


class TopicOnBroker(NamedTuple):
    """A broker that has a topic, and the number of queues of the topic there."""

    service: BrokerService
    queues: int


async def brokers_of(call: Call, topic: str) -> list[TopicOnBroker]:
    """The brokers that have a topic. Raises `CallRefused` where there is none."""
    services = {service.broker_name: service for service in call.stores.services}
    answer = await call.ask(
        call.stores.services[0],
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        {"topic": topic},
        accepted=(ResponseCode.TOPIC_NOT_EXIST,),
    )
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        raise CallRefused(Code.TOPIC_NOT_FOUND, NO_ROUTE.format(topic))
    route = decode_json(bytes(answer.body), TopicRouteData)
    return [TopicOnBroker(services[each.broker_name], each.read_queue_nums) for each in route.queue_datas]


def queues_of(
    brokers: list[TopicOnBroker], topic: Resource, endpoints: Endpoints, *, types: list[MessageType] | None = None
) -> Iterator[MessageQueue]:
    """Every queue of a topic, with the types of messages that it takes where they are given."""
    for each in brokers:
        for queue_id in range(each.queues):
            yield queue_of(each.service, topic, queue_id, endpoints, types)


def queue_of(
    service: BrokerService,
    topic: Resource,
    queue_id: int,
    endpoints: Endpoints,
    types: list[MessageType] | None = None,
) -> MessageQueue:
    """One queue of a broker."""
    broker = Broker(name=service.broker_name, id=0, endpoints=endpoints)
    return MessageQueue(
        topic=topic, id=queue_id, permission=Permission.READ, broker=broker, accept_message_types=types or []
    )


def endpoints_for(asked: Endpoints, port: int) -> Endpoints:
    """The endpoints that a client named, at our port. Raises `CallRefused` for too many, or without a scheme."""
    if asked.ByteSize() > LONGEST_ENDPOINTS:
        raise CallRefused(Code.BAD_REQUEST, f"the endpoints have more than {LONGEST_ENDPOINTS} bytes")
    if not asked.addresses:
        return Endpoints(scheme=AddressScheme.IPv4)
    if asked.scheme == AddressScheme.ADDRESS_SCHEME_UNSPECIFIED:
        raise CallRefused(Code.BAD_REQUEST, "the endpoints have addresses without a scheme")
    return Endpoints(scheme=asked.scheme, addresses=[Address(host=each.host, port=port) for each in asked.addresses])


def message_types(brokers: list[TopicOnBroker], topic: str) -> list[MessageType]:
    """The types of messages that a topic takes, by the attribute `message.type` of its configuration."""
    found = (stored_topic(each.service.store, topic) for each in brokers)
    config = next((each for each in found if each is not None), None)
    name = "" if config is None else config.message_type
    if name == "MIXED":
        return MIXED
    return [TYPES.get(name, MessageType.MESSAGE_TYPE_UNSPECIFIED)]
