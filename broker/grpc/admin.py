"""The service `Admin`: what tools ask. Each method turns a request into a question that is asked elsewhere too."""

import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from broker.config import installed_version
from broker.grpc.calls import Call, CallRunner, Unary
from broker.grpc.messages import admin_pb2 as pb
from broker.grpc.messages.definition_pb2 import Code
from broker.grpc.query_message import ListedQuestion, list_messages, read_question
from broker.grpc.statuses import OK, READ_ONLY, CallRefused
from broker.metrics.metrics_rows import CALL_DURATIONS, CALLS, CONNECTIONS, DURATIONS, REQUESTS
from broker.service.broker_service import BrokerService
from broker.web.api.errors import ClientGone
from broker.web.api.request_context import RequestContext
from protocol.errors import RocketLensError
from storage.patterns.processes import PatternsStopped

SERVICE: Final = "Admin"
SHOWING: Final = ("QueryMessage",)
"""The methods that show messages."""


class AdminService:
    """Answers tools for the stores of a runner."""

    def __init__(self, runner: CallRunner) -> None:
        self._runner = runner
        self._counted = time.monotonic(), self._answered()

    def handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        """The handlers by method."""
        answers: tuple[tuple[str, type[Message], type[Message], Any], ...] = (
            ("GetProxyRuntimeStats", pb.GetProxyRuntimeStatsRequest, pb.GetProxyRuntimeStatsResponse, self._stats),
            ("QueryMessage", pb.ListMessageRequest, pb.ListMessageResponse, self._query_message),
            ("ChangeLogLevel", pb.ChangeLogLevelRequest, pb.ChangeLogLevelResponse, _refuse),
            ("DeleteSubscription", pb.DeleteSubscriptionRequest, pb.DeleteSubscriptionResponse, _refuse),
            ("ResetGroupOffset", pb.ResetGroupOffsetRequest, pb.ResetGroupOffsetResponse, _refuse),
            ("VerifyMessage", pb.VerifyMessageRequest, pb.VerifyMessageResponse, _refuse),
            ("AdminSendMessage", pb.AdminSendMessageRequest, pb.AdminSendMessageResponse, _refuse),
        )
        return {
            name: self._runner.unary(
                Unary(f"{SERVICE}/{name}", request, response, answer, True if name in SHOWING else None)
            )
            for name, request, response, answer in answers
        }

    def _answered(self) -> int:
        """Count the requests and calls that all processes have answered."""
        rows = self._runner.stores.rows
        totals = [rows.totals(store) for store in range(rows.stores)]
        return int(sum(each[REQUESTS:DURATIONS].sum() + each[CALLS:CALL_DURATIONS].sum() for each in totals))

    async def _query_message(self, call: Call, request: pb.ListMessageRequest) -> pb.ListMessageResponse:
        """A page of messages."""
        services = self._runner.stores.services
        question = read_question(request, [each.cluster for each in services])
        context = call.context()
        return await call.run(context, partial(_listed, call, context, services, question, request.scroll_id))

    async def _stats(self, call: Call, _request: pb.GetProxyRuntimeStatsRequest) -> pb.GetProxyRuntimeStatsResponse:
        """Say what this server is, and how much it answers since this was asked the last time."""
        call.context().require_admin()
        now, answered = time.monotonic(), self._answered()
        before, counted = self._counted
        self._counted = now, answered
        rows = self._runner.stores.rows
        return pb.GetProxyRuntimeStatsResponse(
            status=OK,
            proxy_name=socket.gethostname(),
            version=f"RocketLens {installed_version()}",
            out_tps=(answered - counted) / max(now - before, 1e-3),
            connections=sum(int(rows.totals(store)[CONNECTIONS]) for store in range(rows.stores)),
        )


def _listed(
    call: Call,
    context: RequestContext,
    services: Sequence[BrokerService],
    question: ListedQuestion,
    scroll_id: str,
) -> pb.ListMessageResponse:
    """Answer on a thread; what is shown is written down before."""
    try:
        response, offsets = list_messages(context, services, question, scroll_id)
    except PatternsStopped:
        raise ClientGone from None
    except RocketLensError as error:
        call.looker.note(call.method, context, question.audited(), [], error)
        raise
    response.status.message = context.readable(response.status.message, [question.text, question.topic])
    call.looker.note(call.method, context, question.audited(), offsets)
    return response


async def _refuse(call: Call, _request: Message) -> Message:
    raise CallRefused(Code.FORBIDDEN, READ_ONLY.format(call.method.name.partition("/")[2]))
