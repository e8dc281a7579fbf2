"""The service `Admin`: what tools ask. Each method turns a request into a question that is asked elsewhere too."""

import socket
import time
from functools import partial
from typing import Any, Final

import grpc

from broker.config import installed_version
from broker.grpc import groups
from broker.grpc.calls import Answer, Call, CallRunner, refuse_write
from broker.grpc.messages import admin_pb2 as pb
from broker.grpc.messages.definition_pb2 import Code
from broker.grpc.query_message import list_messages, read_question
from broker.grpc.statuses import OK, CallRefused
from broker.metrics.metrics_rows import CALL_DURATIONS, CALLS, CONNECTIONS, DURATIONS, REQUESTS
from broker.web.api.looks import look

WRITES: Final = ("ChangeLogLevel", "DeleteSubscription", "ResetGroupOffset", "VerifyMessage", "AdminSendMessage")


class AdminService:
    """Answers tools for the stores of a runner."""

    def __init__(self, runner: CallRunner) -> None:
        self._runner = runner
        self._counted = time.monotonic(), self._answered()

    def handlers(self) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        """The handlers by method."""
        answers: dict[str, Answer] = {
            "QueryMessage": self._query_message,
            "GetProxyRuntimeStats": self._stats,
            "DescribeTopicStatus": groups.describe_topic,
            "GetTopicRoute": groups.topic_route,
            "ListSubscription": groups.list_subscriptions,
            "DescribeSubscription": groups.describe_subscriptions,
            "ListConsumerConnection": groups.consumer_connections,
            "DescribeGroupAccumulation": groups.group_accumulation,
            "QueryTimeSpan": groups.time_spans,
            "GetConsumerRunningInfo": groups.running_info,
            "PrintThreadStackTrace": groups.stack_trace,
            **dict.fromkeys(WRITES, refuse_write),
        }
        of_deployment = {name: partial(self._of_deployment, answer) for name, answer in answers.items()}
        return self._runner.handlers(pb, "Admin", of_deployment, shows=("QueryMessage",))

    async def _of_deployment(self, answer: Answer, call: Call, request: Any) -> Any:
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
        question, context = read_question(request), call.context()
        find = partial(list_messages, context, call.stores.services, question, request.scroll_id)
        asked = question.audited()
        page = await call.run(
            context, lambda: look(call.method, context, asked, call.looker, find, lambda page: page.physical_offsets)
        )
        return page.response

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
