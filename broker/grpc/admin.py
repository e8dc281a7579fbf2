"""The service `Admin`: what tools ask. Each method turns a request into a question that is asked elsewhere too."""

import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import grpc
from google.protobuf.message import Message

from broker.config import installed_version
from broker.grpc import groups
from broker.grpc.calls import Answer, Call, CallRunner, Unary
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
WRITES: Final = ("ChangeLogLevel", "DeleteSubscription", "ResetGroupOffset", "VerifyMessage", "AdminSendMessage")
SHOWING: Final = ("QueryMessage",)
"""The methods that show messages."""


class AdminService:
    """Answers tools for the stores of a runner."""

    def __init__(self, runner: CallRunner) -> None:
        self._runner = runner
        self._counted = time.monotonic(), self._answered()

    def handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        """The handlers by method."""
        answers: dict[str, tuple[str, Any]] = {
            "QueryMessage": ("ListMessage", self._query_message),
            "GetProxyRuntimeStats": ("", self._stats),
            "DescribeTopicStatus": ("", groups.describe_topic),
            "GetTopicRoute": ("", groups.topic_route),
            "ListSubscription": ("", groups.list_subscriptions),
            "DescribeSubscription": ("", groups.describe_subscriptions),
            "ListConsumerConnection": ("", groups.consumer_connections),
            "DescribeGroupAccumulation": ("", groups.group_accumulation),
            "QueryTimeSpan": ("", groups.time_spans),
            "GetConsumerRunningInfo": ("", groups.running_info),
            "PrintThreadStackTrace": ("", groups.stack_trace),
            **dict.fromkeys(WRITES, ("", _refuse)),
        }
        handlers = {}
        for name, (spelled, answer) in answers.items():
            request, response = (getattr(pb, f"{spelled or name}{kind}") for kind in ("Request", "Response"))
            shows = True if name in SHOWING else None
            of_deployment = partial(self._of_deployment, answer)
            handlers[name] = self._runner.unary(Unary(f"{SERVICE}/{name}", request, response, of_deployment, shows))
        return handlers

    async def _of_deployment(self, answer: Answer, call: Call, request: Any) -> Message:
        """Answer what is asked of all deployments, or of the one that is served: its cluster."""
        named = getattr(request, "deployment_name", "")
        if named and named not in {service.cluster for service in self._runner.stores.services}:
            raise CallRefused(Code.NOT_FOUND, f"no deployment {named} is served here")
        return await answer(call, request)

    def _answered(self) -> int:
        """Count the requests and calls that all processes have answered."""
        rows = self._runner.stores.rows
        totals = [rows.totals(store) for store in range(rows.stores)]
        return int(sum(each[REQUESTS:DURATIONS].sum() + each[CALLS:CALL_DURATIONS].sum() for each in totals))

    async def _query_message(self, call: Call, request: pb.ListMessageRequest) -> pb.ListMessageResponse:
        """A page of messages."""
        services = self._runner.stores.services
        question = read_question(request)
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
            producers=await groups.count_producers(call),
            consumers=await groups.count_consumers(call),
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
