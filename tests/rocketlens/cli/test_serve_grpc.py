"""`rocketlens serve --grpc`: a process of its own beside the workers, with the server's readiness, figures and end."""

import os
import signal
from pathlib import Path

import grpc
import pytest

from blocking_client import eventually
from broker.grpc.messages.definition_pb2 import Code, Resource
from connected_consumer import ConnectedConsumer
from grpc_client import GrpcClient
from heartbeats import consumer, heartbeat, subscription
from metric_figures import figure, read_figures
from process import Serving, serving_process
from protocol.codes import RequestCode

DEADLINE_SECONDS = 60.0


def address_of(server: Serving) -> str:
    return server.line.rpartition("; gRPC at ")[2].strip()


def answers(client: GrpcClient) -> bool:
    """Whether a call is answered; one that was under way when the process died is not."""
    try:
        return bool(client.admin("GetProxyRuntimeStats").status.code == Code.OK)
    except grpc.RpcError as error:
        if error.code() != grpc.StatusCode.UNAVAILABLE:
            raise
        return False


def test_the_port_is_served_by_a_process_that_is_replaced_and_ends_with_the_server(
    g1_store: Path, tmp_path: Path
) -> None:
    with serving_process(g1_store, tmp_path, "--grpc", "0", "--http", "0") as server:
        client = GrpcClient(address_of(server))
        assert client.admin("GetProxyRuntimeStats").status.code == Code.OK
        first, grpc_process = server.workers
        assert b"serve_grpc" in Path(f"/proc/{grpc_process}/cmdline").read_bytes()
        assert "cygrpc" not in Path(f"/proc/{first}/maps").read_text()
        os.kill(grpc_process, signal.SIGKILL)
        eventually(lambda: answers(client))
        eventually(lambda: figure(read_figures(server.http_port), "worker_up", worker="1") == 1)
        figures = read_figures(server.http_port)
        assert figure(figures, "worker_starts_total", worker="1") == 2
        assert figure(figures, "grpc_calls_total", method="Admin/GetProxyRuntimeStats", result="OK") == 2
        client.channel.close()
        processes = server.workers
        assert server.stop() == 0
        assert not [each for each in processes if Path(f"/proc/{each}").exists()]
        assert "Traceback" not in server.errors.read_text()


@pytest.mark.parametrize("workers", [pytest.param("1", marks=pytest.mark.soak), "2"])
def test_groups_and_their_offsets_are_those_of_worker_0(workers: str, g1_store: Path, tmp_path: Path) -> None:
    with serving_process(g1_store, tmp_path, "--grpc", "0", "--workers", workers) as server:
        body = heartbeat("10.0.0.1@7", consumer("CG_NEW", subscription("TopicTest", "TagA")))
        online = ConnectedConsumer(server.endpoints[0], body)
        commit = {"consumerGroup": "CG_NEW", "topic": "TopicTest", "queueId": "1", "commitOffset": "5"}
        assert online.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0
        client = GrpcClient(address_of(server))
        group = Resource(name="CG_NEW")
        (found,) = client.admin("ListConsumerConnection", group=group).client_info
        assert found.client_id == "10.0.0.1@7"
        (info,) = client.admin("ListSubscription", group=group).subscription_info
        assert (info.expression.expression, info.online) == ("TagA", True)
        spans = client.admin("QueryTimeSpan", group=group, topics=[Resource(name="TopicTest")]).queue_time_span_list
        consumed = {each.message_queue.id: each.consume_timestamp for each in spans}
        first = {each.message_queue.id: each.min_timestamp for each in spans}
        assert [queue for queue in consumed if consumed[queue] != first[queue]] == [1]
        trace = client.admin("PrintThreadStackTrace", group=group, client_id="10.0.0.1@7")
        assert trace.thread_stack_trace == "main RUNNABLE"
        online.close()
        client.channel.close()
        assert server.stop() == 0
        assert "Traceback" not in server.errors.read_text()
