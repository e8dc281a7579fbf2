"""A server that consumers talk to, ours or the official broker, behind a proxy that tells what they asked."""

import contextlib
import shutil
from dataclasses import dataclass

from benchmarks.server_process import free_port
from interop.official_broker import G1_PROPERTIES, official_broker, official_name_server
from interop.proxy import RecordingProxy, recording_proxy
from interop.wire import ask
from process import rocketlens_serving

PULL_MESSAGE, QUERY_CONSUMER_OFFSET, GET_CONSUMER_LIST_BY_GROUP, LITE_PULL_MESSAGE = 11, 14, 38, 361
SUCCESS, QUERY_NOT_FOUND = 0, 22
WAIT_SECONDS = 180.0


@dataclass(frozen=True)
class Stage:
    """The name server that clients are configured with, and the proxy before the broker that its routes name."""

    name_server: str
    proxy: RecordingProxy
    is_read_only: bool

    def requests(self, group, *codes):
        return [passed.frame for passed in self.passed(group, *codes)]

    def answers(self, group, code):
        asked = {(passed.connection, passed.frame.header["opaque"]) for passed in self.passed(group, code)}
        back = [passed for passed in self.proxy.passed if not passed.to_server and passed.frame.is_response]
        return [passed.frame for passed in back if (passed.connection, passed.frame.header["opaque"]) in asked]

    def passed(self, group, *codes):
        asked = [passed for passed in self.proxy.passed if passed.to_server and not passed.frame.is_response]
        return [passed for passed in asked if passed.frame.code in codes and _group_of(passed.frame) == group]

    def pulls(self, group):
        return self.requests(group, PULL_MESSAGE, LITE_PULL_MESSAGE)

    def has_asked_for_more(self, group: str, topic: str, ends: dict[int, int]) -> bool:
        asked: dict[int, int] = {}
        for frame in self.pulls(group):
            fields = frame.header["extFields"]
            if fields["topic"] == topic:
                queue_id = int(fields["queueId"])
                asked[queue_id] = max(asked.get(queue_id, 0), int(fields["queueOffset"]))
        return all(asked.get(queue_id, -1) >= end for queue_id, end in ends.items())

    def committed(self, group: str, topic: str, queue_id: int) -> int | None:
        return committed(self.proxy.address, group, topic, queue_id)


def committed(server: tuple[str, int], group: str, topic: str, queue_id: int) -> int | None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "setZeroIfNotFound": "false"}
    answer = ask(server, QUERY_CONSUMER_OFFSET, fields)
    if answer.code == QUERY_NOT_FOUND:
        return None
    assert answer.code == SUCCESS, answer.header
    return int(answer.header["extFields"]["offset"])


@contextlib.contextmanager
def our_stage(store, work):
    with recording_proxy(None) as proxy, our_server(store, work, proxy):
        yield Stage(address_text(proxy), proxy, is_read_only=True)


@contextlib.contextmanager
def our_server(store, work, proxy):
    """Our server behind a proxy that its routes name; a second one with the same ``work`` has the same state."""
    with rocketlens_serving(store, work, "--advertise", address_text(proxy)) as server:
        proxy.target = server
        yield
        proxy.target = None


@contextlib.contextmanager
def official_stage(store, work):
    """The official broker over a copy of ``store``, on another loopback address than its routes name."""
    copy = work / "store"
    shutil.copytree(store, copy)
    with recording_proxy(None, ("127.0.0.1", free_port((-2,), "127.0.0.2"))) as proxy:
        properties = {**G1_PROPERTIES, "brokerIP1": "127.0.0.1"}
        how = {"properties": properties, "host": "127.0.0.2", "port": proxy.address[1]}
        with (
            official_name_server(work) as name_server,
            official_broker(copy, work, name_server=name_server, **how) as broker,
        ):
            proxy.target = broker.address
            yield Stage(name_server.text_address, proxy, is_read_only=False)


def address_text(proxy: RecordingProxy) -> str:
    host, port = proxy.address
    return f"{host}:{port}"


def _group_of(frame) -> str | None:
    fields: dict[str, str] = frame.header.get("extFields", {})
    return fields.get("consumerGroup") or fields.get("group")
