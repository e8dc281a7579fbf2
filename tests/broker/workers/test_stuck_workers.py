"""A server with a stuck worker serves again by itself, and has lost no offset that was committed to it."""

import asyncio
import os
import signal
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from broker_harness import RawClient, connected
from heartbeats import consumer, heartbeat, subscription
from process import Serving, owner_of, serving_process
from protocol.codes import RequestCode
from protocol.command import ext_fields_of

SECONDS = 4
"""Long beside what a worker that lives may have to wait for a core."""

GROUP = "Group"
QUEUE = {"topic": "TopicTest", "queueId": "1"}


@asynccontextmanager
async def client_of(server: Serving, worker: int) -> AsyncIterator[RawClient]:
    """A connection that a certain worker has taken."""
    while True:
        async with connected(server.endpoints[0]) as client:
            await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "TopicTest", "queueId": "0"})
            if owner_of(server.endpoints[0].port, client.writer.get_extra_info("sockname")[1]) == worker:
                yield client
                return


async def join(client: RawClient) -> None:
    body = heartbeat("client", consumer(GROUP, subscription("TopicTest", "*")))
    assert (await client.ask(RequestCode.HEART_BEAT, {}, body=body)).code == 0


async def offset_of(client: RawClient) -> str | None:
    answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": GROUP, **QUEUE})
    return ext_fields_of(answer).get("offset")


def test_worker_0_is_replaced_and_its_offsets_groups_and_requests_live_on(g1_store: Path, tmp_path: Path) -> None:
    async def stop_worker_0(server: Serving, owner: int, other: int) -> None:
        async with client_of(server, owner) as first, client_of(server, other) as second:
            await join(first)
            await join(second)
            for offset, client in (("5", first), ("6", second)):
                assert (
                    await client.ask(
                        RequestCode.UPDATE_CONSUMER_OFFSET, {"consumerGroup": GROUP, "commitOffset": offset, **QUEUE}
                    )
                ).code == 0
            os.kill(owner, signal.SIGSTOP)
            # Handed to worker 0, which does not answer; its successor does.
            assert await offset_of(second) == "6"
            assert (await second.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP})).code == 0
            assert await first.is_closed_by_the_server()
        (successor,) = set(server.workers) - {other}
        async with client_of(server, successor) as first:
            assert await offset_of(first) == "6"

    options = ["--worker-timeout", str(SECONDS), "--state-dir", str(tmp_path / "state"), "--http", "0"]
    with serving_process(g1_store, tmp_path, "--workers", "2", *options) as server:
        owner, other = server.workers
        asyncio.run(stop_worker_0(server, owner, other))
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=60) as answer:
            figures = answer.read().decode()
        assert 'rocketlens_worker_stuck_total{worker="0"} 1.0' in figures
        assert 'rocketlens_worker_stuck_total{worker="1"} 0.0' in figures
        killed = f"worker 0 (process {owner}) is killed: its event loop has stood still for 4 s (--worker-timeout)"
        assert killed in server.errors.read_text()
        assert server.stop() == 0
