"""Locks of queues, for consumers that keep messages in order. Source: remoting-protocol §3.2, §4.13."""

from broker.broker_service import BrokerService
from broker.dispatcher import Request, handles
from protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, decode_json, encode_json
from protocol.codes import RequestCode
from protocol.command import Response
from protocol.headers import EmptyRequestHeader


class QueueLockProcessor:
    """LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    def __init__(self, service: BrokerService) -> None:
        self._locks = service.locks

    @handles(RequestCode.LOCK_BATCH_MQ, EmptyRequestHeader)
    def lock_queues(self, _header: EmptyRequestHeader, request: Request) -> Response:
        """Lock queues for a client; the answer names those that it has to itself now."""
        body = decode_json(request.command.body, LockBatchRequestBody)
        granted = self._locks.lock(body.consumer_group, body.client_id, body.mq_set)
        return Response(body=encode_json(LockBatchResponseBody(granted)))

    @handles(RequestCode.UNLOCK_BATCH_MQ, EmptyRequestHeader)
    def unlock_queues(self, _header: EmptyRequestHeader, request: Request) -> Response:
        """Make a client's queues free for the others."""
        body = decode_json(request.command.body, LockBatchRequestBody)
        self._locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return Response()
