"""Pulls and offsets of clients of RocketMQ 5: the requests of the broker's port, in gRPC's words.

No official proxy serves these calls. An offset outside of a queue's range is ILLEGAL_OFFSET, also for a pull that may
wait, and the answer names the next one in the range.
"""

import asyncio
from typing import Final

from broker.cluster.client import QueueQuestion
from broker.grpc.calls import ASK_SECONDS, Call
from broker.grpc.clients import KnownClients
from broker.grpc.message_conversion import message_of, milliseconds_of
from broker.grpc.messages import service_pb2 as pb
from broker.grpc.messages.definition_pb2 import (
    Code,
    FilterExpression,
    FilterType,
    MessageQueue,
    QueryOffsetPolicy,
    Status,
)
from broker.grpc.messages.definition_pb2 import Message as GrpcMessage
from broker.grpc.resources import checked_group
from broker.grpc.routes import brokers_of
from broker.grpc.statuses import OK, CallRefused
from broker.service.broker_service import BrokerService
from broker.service.consumers.report_limits import check_topic
from broker.service.long_polling import LONGEST_HOLD_SECONDS
from broker.web.api.request_context import RequestContext
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.errors import BadCommand, RocketLensError
from protocol.message import decode_messages
from storage.kernels.file_map import count_cuts

CONVERTED_AT_ONCE: Final = 16
"""Messages that are made into gRPC's in one turn of the event loop."""

WITHOUT_MESSAGES: Final = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class AskedQueue:
    """A queue of a request: the store that has it, its topic, and what the client may see there."""

    def __init__(self, call: Call, queue: MessageQueue) -> None:
        """Check a request's queue, and the right to read it. Raises `ApiError` and `CallRefused`."""
        name, services = queue.broker.name, call.stores.services
        if not name and len(services) > 1:
            raise CallRefused(Code.BAD_REQUEST, "message_queue names no broker, and several are served here")
        self.service: BrokerService = call.threads.service_of(name or None)
        self.topic, self.queue_id = queue.topic.name, queue.id
        if not self.topic.strip():
            raise CallRefused(Code.ILLEGAL_TOPIC, "The specified topic is blank")
        try:
            check_topic("topic", self.topic)
        except BadCommand as error:
            raise CallRefused(Code.ILLEGAL_TOPIC, str(error)) from None
        if self.queue_id < 0:
            raise CallRefused(Code.BAD_REQUEST, f"queue {self.queue_id}: expected 0 or more")
        self.context = call.context(self.service)
        self.context.require_right(self.topic)

    @property
    def fields(self) -> dict[str, str]:
        """The header fields that name it."""
        return {"topic": self.topic, "queueId": str(self.queue_id)}

    async def check(self, call: Call) -> None:
        """Check that there is such a queue. Raises `CallRefused`."""
        for each in await brokers_of(call, self.topic):
            if each.service is self.service:
                if self.queue_id < each.queues:
                    return
                text = f"topic {self.topic} has queues 0 to {each.queues - 1} at broker {self.service.broker_name}"
                raise CallRefused(Code.BAD_REQUEST, text)
        text = f"broker {self.service.broker_name} has no topic {self.topic}"
        raise CallRefused(Code.TOPIC_NOT_FOUND, text)


class PullingCalls:
    """Answers PullMessage and the calls about offsets."""

    def __init__(self, clients: KnownClients) -> None:
        self._clients = clients

    async def pull(self, call: Call, request: pb.PullMessageRequest) -> list[pb.PullMessageResponse]:
        """Messages of a queue from an offset on; a status is first, the offset to go on from is last."""
        connection = self._clients.connection_of(call)
        group = checked_group(request.group)
        queue = AskedQueue(call, request.message_queue)
        queue.context.require_group(group)
        expression, kind = _expression_of(request.filter_expression)
        seconds, number = _polling_seconds(call, request), max(request.batch_size, 1)
        asked = QueueQuestion(
            queue.topic, queue.queue_id, request.offset, number, group, expression, kind, round(seconds * 1000)
        )
        cuts = count_cuts()
        answer = await call.ask(
            queue.service,
            RequestCode.PULL_MESSAGE,
            asked.ext_fields(),
            accepted=WITHOUT_MESSAGES,
            connection=connection,
            seconds=seconds + ASK_SECONDS,
        )
        messages = await self._shown(call, queue, asked, answer, cuts) if answer.code == ResponseCode.SUCCESS else []
        return [
            pb.PullMessageResponse(status=_status_of(queue.context, answer, request.offset)),
            *(pb.PullMessageResponse(message=message) for message in messages),
            pb.PullMessageResponse(next_offset=_number(answer, "nextBeginOffset")),
        ]

    async def _shown(
        self, call: Call, queue: AskedQueue, asked: QueueQuestion, answer: Response, cuts: int
    ) -> list[GrpcMessage]:
        """The messages of an answer, if all may be seen, and no file was cut; they are written down first."""
        fields = asked.ext_fields()
        looked = {name: fields[name] for name in ("topic", "queueId", "consumerGroup", "queueOffset")}
        found: list[GrpcMessage] = []
        offsets: list[int] = []
        try:
            for stored in decode_messages(answer.body, check_crc=False):
                queue.context.require_message(stored)
                offsets.append(stored.physical_offset)
                for message in stored.inner_messages():  # of an inner batch its messages
                    found.append(message_of(message))
                    if len(found) % CONVERTED_AT_ONCE == 0:
                        await asyncio.sleep(0)
            if (cut := queue.service.store.cut(cuts)) is not None:
                raise cut
        except RocketLensError as error:
            call.looker.note(call.method, queue.context, looked, [], error)
            raise
        call.looker.note(call.method, queue.context, looked, offsets)
        return found

    async def get_offset(self, call: Call, request: pb.GetOffsetRequest) -> pb.GetOffsetResponse:
        """The offset from which a group goes on in a queue."""
        group, queue = checked_group(request.group), AskedQueue(call, request.message_queue)
        queue.context.require_group(group)
        await queue.check(call)
        fields = {**queue.fields, "consumerGroup": group, "setZeroIfNotFound": "false"}
        code, absent = RequestCode.QUERY_CONSUMER_OFFSET, ResponseCode.QUERY_NOT_FOUND
        answer = await call.ask(queue.service, code, fields, accepted=(absent,))
        if answer.code == absent:
            text = f"group {group} has committed no offset in queue {queue.queue_id} of topic {queue.topic}"
            raise CallRefused(Code.OFFSET_NOT_FOUND, text)
        return pb.GetOffsetResponse(status=OK, offset=_number(answer, "offset"))

    async def query_offset(self, call: Call, request: pb.QueryOffsetRequest) -> pb.QueryOffsetResponse:
        """The first offset of a queue, the one behind its last, or the one of the first message at a time or later."""
        queue = AskedQueue(call, request.message_queue)
        await queue.check(call)
        fields, policy = queue.fields, request.query_offset_policy
        if policy == QueryOffsetPolicy.TIMESTAMP:
            if not request.HasField("timestamp"):
                raise CallRefused(Code.BAD_REQUEST, "the policy TIMESTAMP needs a timestamp")
            fields["timestamp"] = str(milliseconds_of(request.timestamp))
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
        elif policy in (QueryOffsetPolicy.BEGINNING, QueryOffsetPolicy.END):
            at_end = policy == QueryOffsetPolicy.END
            code = RequestCode.GET_MAX_OFFSET if at_end else RequestCode.GET_MIN_OFFSET
        else:
            raise CallRefused(Code.BAD_REQUEST, f"query_offset_policy {policy} is not known")
        answer = await call.ask(queue.service, code, fields)
        return pb.QueryOffsetResponse(status=OK, offset=_number(answer, "offset"))

    async def update_offset(self, call: Call, request: pb.UpdateOffsetRequest) -> pb.UpdateOffsetResponse:
        """Commit the offset of a member of a group, as at the broker's port."""
        group, queue = checked_group(request.group), AskedQueue(call, request.message_queue)
        queue.context.require_group(group)
        if request.offset < 0:
            raise CallRefused(Code.ILLEGAL_OFFSET, f"offset {request.offset}: expected 0 or more")
        await queue.check(call)
        fields = {**queue.fields, "consumerGroup": group, "commitOffset": str(request.offset)}
        connection = self._clients.connection_of(call)
        await call.ask(queue.service, RequestCode.UPDATE_CONSUMER_OFFSET, fields, connection=connection)
        return pb.UpdateOffsetResponse(status=OK)


def _expression_of(expression: FilterExpression) -> tuple[str, str]:
    if expression.type == FilterType.SQL:
        return expression.expression, "SQL92"
    return expression.expression or "*", "TAG"


def _polling_seconds(call: Call, request: pb.PullMessageRequest) -> float:
    """How long a pull may wait: no longer than its client. Raises `CallRefused`."""
    timeout = request.long_polling_timeout
    seconds = timeout.seconds + timeout.nanos / 1e9
    if seconds < 0:
        raise CallRefused(Code.ILLEGAL_POLLING_TIME, "long_polling_timeout is negative")
    left: float | None = call.servicer.time_remaining()  # None without a deadline, whatever the stubs say
    return min(seconds, LONGEST_HOLD_SECONDS, *(() if left is None else (max(left - 0.5, 0),)))


def _status_of(context: RequestContext, answer: Response, offset: int) -> Status:
    if answer.code == ResponseCode.SUCCESS:
        _, _, lost = (answer.remark or "").partition(": ")
        return Status(code=Code.OK, message=f"OK: {context.readable(lost, ())}") if lost else OK
    first, end = _number(answer, "minOffset"), _number(answer, "maxOffset")
    if not first <= offset <= end:
        return Status(code=Code.ILLEGAL_OFFSET, message=f"offset {offset} is not among {first} to {end}")
    return Status(code=Code.MESSAGE_NOT_FOUND, message="no new message")


def _number(answer: Response, name: str) -> int:
    return int((answer.ext_fields or {})[name])
