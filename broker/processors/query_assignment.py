"""Queues for members of a consumer group that leave it to the server to share them out (`clientRebalance` false).

Such a consumer of 5.x has no other way to queues: an error leaves it without any, asking again every second. It pulls
from what it is assigned, also where the broker that wrote the store had the group pop. Source: remoting-protocol §3.2.
"""

from collections.abc import Sequence

from broker.broker_service import BrokerService
from broker.dispatcher import Request, handles
from broker.group_notices import BROADCASTING
from broker.queue_allocation import STRATEGIES
from broker.topic_catalog import find_topic
from protocol.bodies import (
    MessageQueue,
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    decode_json,
    encode_json,
)
from protocol.codes import RequestCode
from protocol.command import Response
from protocol.headers import EmptyRequestHeader


class QueryAssignmentProcessor:
    """QUERY_ASSIGNMENT."""

    def __init__(self, service: BrokerService) -> None:
        self._service = service

    @handles(RequestCode.QUERY_ASSIGNMENT, EmptyRequestHeader)
    def query_assignment(self, _header: EmptyRequestHeader, request: Request) -> Response:
        """The queues that a client is to pull from; without a list it keeps those that it has."""
        body = decode_json(request.command.body, QueryAssignmentRequestBody)
        queue_ids = self._queue_ids(body)
        if queue_ids is None:
            return Response(body=encode_json(QueryAssignmentResponseBody()))
        queues = [MessageQueue(self._service.broker_name, queue_id, body.topic) for queue_id in queue_ids]
        return Response(body=encode_json(QueryAssignmentResponseBody([*map(MessageQueueAssignment, queues)])))

    def _queue_ids(self, body: QueryAssignmentRequestBody) -> Sequence[int] | None:
        """A client's share of a topic, None where a broker says nothing: no topic, no group, no such strategy."""
        topic = find_topic(self._service.store, body.topic)
        if topic is None or topic.read_queue_nums < 1:
            return None
        if body.message_model == BROADCASTING:
            return range(topic.read_queue_nums)
        members = sorted({member.client_id for member in self._service.clients.members_of(body.consumer_group)})
        strategy = STRATEGIES.get(body.strategy_name or "")
        if not members or strategy is None or not body.client_id:
            return None
        if body.client_id not in members:
            return ()
        return strategy(topic.read_queue_nums, len(members), members.index(body.client_id))
