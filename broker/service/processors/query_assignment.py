"""Queues for the members of a consumer group whose queues the server shares out (`clientRebalance` false).

Such a consumer of 5.x gets queues in no other way: after an error it has none, and asks again every second. It pulls
from its assigned queues, even if the broker that wrote the store had the group pop. Source: remoting-protocol §3.2.
"""

from collections.abc import Sequence

from broker.service.broker_service import BrokerService
from broker.service.consumers.group_notices import BROADCASTING
from broker.service.consumers.queue_allocation import STRATEGIES
from broker.service.dispatcher import Request, handles
from broker.service.long_work import leave_to_a_thread, parse_body
from broker.service.served_brokers import ServedBrokers
from protocol.bodies import (
    MessageQueue,
    MessageQueueAssignment,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    encode_json,
)
from protocol.codes import RequestCode
from protocol.command import Response
from protocol.headers import EmptyRequestHeader
from storage.files.waiting import Lookup


class QueryAssignmentProcessor:
    """Answers QUERY_ASSIGNMENT."""

    def __init__(self, service: BrokerService, brokers: ServedBrokers) -> None:
        self._service = service
        self._brokers = brokers

    @handles(RequestCode.QUERY_ASSIGNMENT, EmptyRequestHeader)
    def query_assignment(self, _header: EmptyRequestHeader, request: Request) -> Lookup[Response]:
        """The queues that a client is to pull from; if the answer has no list, the client keeps its queues."""
        body = yield from parse_body(request.command.body, QueryAssignmentRequestBody)
        yield from leave_to_a_thread(self._service.clients.count_of(body.consumer_group))
        yield from self._brokers.listed()
        queues = self._share(body)
        if queues is None:
            return Response(body=encode_json(QueryAssignmentResponseBody()))
        return Response(body=encode_json(QueryAssignmentResponseBody([*map(MessageQueueAssignment, queues)])))

    def _share(self, body: QueryAssignmentRequestBody) -> Sequence[MessageQueue] | None:
        """A client's share of a topic's queues, None for an unknown topic, group or strategy, as from a broker."""
        queues = self._queues(body.topic)
        if not queues:
            return None
        if body.message_model == BROADCASTING:
            return queues
        members = sorted({member.client_id for member in self._service.clients.members_of(body.consumer_group)})
        strategy = STRATEGIES.get(body.strategy_name or "")
        if not members or strategy is None or not body.client_id:
            return None
        if body.client_id not in members:
            return ()
        return [queues[place] for place in strategy(len(queues), len(members), members.index(body.client_id))]

    def _queues(self, topic: str) -> list[MessageQueue]:
        """The queues of all brokers that have a topic, in the order in which every broker sorts them."""
        found = sorted(
            (service.broker_name, config.read_queue_nums) for service, config in self._brokers.with_topic(topic)
        )
        return [MessageQueue(name, queue_id, topic) for name, count in found for queue_id in range(count)]
