"""Requests of clients: heartbeats, unregistration, checks of subscriptions; and lists of producers.

Source: remoting-protocol §3.2, §4.10, §4.18.
"""

from broker.service.broker_service import BrokerService
from broker.service.consumers.client_registry import Member, as_connection
from broker.service.consumers.report_limits import check_heartbeat, check_subscription
from broker.service.consumers.subscriptions import expressions_of
from broker.service.dispatcher import Request, handles
from broker.service.long_work import leave_to_a_thread, parse_body
from protocol.bodies import (
    CheckClientRequestBody,
    HeartbeatData,
    ProducerConnection,
    ProducerInfo,
    ProducerTableInfo,
    encode_json,
)
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.errors import FilterSyntaxError
from protocol.headers import (
    EmptyRequestHeader,
    GetProducerConnectionListRequestHeader,
    UnregisterClientRequestHeader,
)
from storage.files.waiting import Lookup
from storage.filter.tag import is_tag_type


class ClientManageProcessor:
    """Answers heartbeats, and requests for the clients that sent them."""

    def __init__(self, service: BrokerService) -> None:
        self._clients, self._commits = service.clients, service.commits
        self._filters = service.subscriptions.filters

    @handles(RequestCode.HEART_BEAT, EmptyRequestHeader)
    def heart_beat(self, _header: EmptyRequestHeader, request: Request) -> Lookup[Response]:
        """Update the registry with the groups of a client and their subscriptions.

        The answer names no features, so that clients keep sending complete heartbeats (remoting-protocol §4.18).
        """
        data = yield from parse_body(request.command.body, HeartbeatData)
        check_heartbeat(data)
        reported = (each for consumer in data.consumer_data_set for each in consumer.subscription_data_set)
        made = yield from self._filters.make_all(expressions_of(reported))
        language = request.command.language_code.name
        if not self._clients.heartbeat(request.connection, data, language, request.command.version, made):
            return Response(ResponseCode.SYSTEM_BUSY, "too many groups have members already")
        self._commits.joined(request.connection, (consumer.group_name for consumer in data.consumer_data_set))
        return Response()

    @handles(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader)
    def unregister_client(self, header: UnregisterClientRequestHeader, request: Request) -> Response:
        """Remove a client from a group that it leaves."""
        self._clients.unregister(request.connection, header.consumer_group, header.producer_group)
        return Response(ext_fields={})

    @handles(RequestCode.CHECK_CLIENT_CONFIG, EmptyRequestHeader)
    def check_client_config(self, _header: EmptyRequestHeader, request: Request) -> Lookup[Response]:
        """Check that the expression of a subscription compiles; a subscription by tags is not checked."""
        body = request.command.body
        subscription = (yield from parse_body(body, CheckClientRequestBody)).subscription_data if body else None
        if subscription is None or is_tag_type(subscription.expression_type):
            return Response()
        check_subscription(subscription)
        try:
            yield from self._filters.make_lookup(subscription.sub_string, subscription.expression_type)
        except FilterSyntaxError as error:
            return Response(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error))
        return Response()

    @handles(RequestCode.GET_PRODUCER_CONNECTION_LIST, GetProducerConnectionListRequestHeader)
    def get_producer_connections(self, header: GetProducerConnectionListRequestHeader) -> Lookup[Response]:
        """The connections of a producer group."""
        yield from leave_to_a_thread(self._clients.count_of(header.producer_group))
        members = self._clients.producers(header.producer_group)
        if not members:
            return Response(ResponseCode.SYSTEM_ERROR, f"the producer group[{header.producer_group}] not exist")
        return Response(body=encode_json(ProducerConnection([as_connection(member) for member in members])))

    @handles(RequestCode.GET_ALL_PRODUCER_INFO, EmptyRequestHeader)
    def get_all_producers(self, _header: EmptyRequestHeader) -> Lookup[Response]:
        """All producer groups with their connections."""
        yield from leave_to_a_thread(len(self._clients))
        groups = self._clients.producer_groups()
        table = {group: [_as_producer(member) for member in groups[group]] for group in sorted(groups)}
        return Response(body=encode_json(ProducerTableInfo(table)))


def _as_producer(member: Member) -> ProducerInfo:
    return ProducerInfo(
        client_id=member.client_id,
        language=member.language,
        last_update_timestamp=member.last_update_timestamp,
        version=member.version,
        # Java prints an address without a host name in this form.
        remote_ip=f"/{member.connection.peer_address}",
    )
