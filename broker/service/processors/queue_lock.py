"""Locks of queues, for consumers that keep messages in order. Source: remoting-protocol §3.2, §4.2.

This short module is one family of request codes; the locks themselves are in `consumers.queue_locks`.
"""

from broker.service.broker_service import BrokerService
from broker.service.consumers.report_limits import check_locks
from broker.service.dispatcher import Request, handles
from broker.service.long_work import parse_body
from protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, encode_json
from protocol.codes import RequestCode
from protocol.command import Response
from protocol.headers import EmptyRequestHeader
from storage.files.waiting import Lookup


class QueueLockProcessor:
    """Answers LOCK_BATCH_MQ and UNLOCK_BATCH_MQ."""

    def __init__(self, service: BrokerService) -> None:
        self._locks = service.locks

    @handles(RequestCode.LOCK_BATCH_MQ, EmptyRequestHeader)
    def lock_queues(self, _header: EmptyRequestHeader, request: Request) -> Lookup[Response]:
        """Lock queues for a client; the answer lists those that it has locked now."""
        body = yield from _body_of(request)
        granted = self._locks.lock(body.consumer_group, body.client_id, body.mq_set)
        return Response(body=encode_json(LockBatchResponseBody(granted)))

    @handles(RequestCode.UNLOCK_BATCH_MQ, EmptyRequestHeader)
    def unlock_queues(self, _header: EmptyRequestHeader, request: Request) -> Lookup[Response]:
        """Unlock the queues of a client."""
        body = yield from _body_of(request)
        self._locks.unlock(body.consumer_group, body.client_id, body.mq_set)
        return Response()


def _body_of(request: Request) -> Lookup[LockBatchRequestBody]:
    body = yield from parse_body(request.command.body, LockBatchRequestBody)
    check_locks(body)
    return body
