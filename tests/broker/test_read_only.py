"""The server on a store nobody may write to: every request code, and nothing changes."""

import asyncio
import contextlib
import os
import selectors
import signal
import subprocess
from pathlib import Path

import pytest

import read_only
from blocking_client import eventually
from broker.endpoint import Endpoint
from broker_harness import connected
from growing_store import GrowingStore
from interop.wire import ask
from protocol.codes import RequestCode, ResponseCode

START_SECONDS = 180
STOP_SECONDS = 60
WRITING = {
    RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.SEND_MESSAGE,
    RequestCode.UPDATE_BROKER_CONFIG, RequestCode.TRIGGER_DELETE_FILES,
}  # fmt: skip
FIELDS = {
    "topic": "TopicTest", "queueId": "0", "consumerGroup": "CG", "group": "CG", "commitOffset": "3", "offset": "0",
    "key": "hotkey", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": "9223372036854775807", "queueOffset": "0",
    "maxMsgNums": "32", "sysFlag": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
    "timestamp": "0", "clientID": "c", "producerGroup": "P", "defaultTopic": "TBW102", "readQueueNums": "4",
    "writeQueueNums": "4", "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false", "bornTimestamp": "0",
    "flag": "0", "properties": "", "namespace": "n", "index": "0", "count": "10", "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:1", "clusterName": "DefaultCluster", "brokerId": "0", "haServerAddr": "127.0.0.1:2",
    "cluster": "DefaultCluster", "isForce": "true", "force": "true",
}  # fmt: skip
"""Enough for most headers to decode: a request should get as far as it can."""


@contextlib.contextmanager
def serving(store, report, *options):
    """`rocketlens serve` under guard on a free port; the log goes to stderr, shown when it does not start."""
    command = read_only.guarded(
        store, report, "rocketlens.cli.main", "serve", str(store), "--listen", "127.0.0.1:0", *options
    )
    with report.with_name("log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, cwd=read_only.ROOT, env=read_only.environment()
        )
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            assert selector.select(START_SECONDS), "the server says nothing"
        line = process.stdout.readline().decode()
        prefix = f"rocketlens: serving {store} on 127.0.0.1:"
        assert line.startswith(prefix), (line, report.with_name("log").read_text()[-4000:])
        yield process, Endpoint("127.0.0.1", int(line.removeprefix(prefix)))
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


async def send_every_code(endpoint: Endpoint) -> dict[int, int]:
    answers = {}
    for code in RequestCode:
        for fields in ({}, FIELDS):
            async with connected(endpoint) as client:
                answers[int(code)] = (await client.ask(int(code), fields, body=b"{}")).code
    return answers


@pytest.mark.parametrize("loop", ["uvloop", pytest.param("asyncio", marks=pytest.mark.soak)])
def test_a_sealed_store_is_served_and_nothing_in_it_changes(g1_store: Path, tmp_path: Path, loop: str) -> None:
    report = tmp_path / "report"
    with read_only.sealed_copy(g1_store) as store:
        before = read_only.state_of(store)
        options = ["--state-dir", str(read_only.state_directory_beside(store)), "--loop", loop]
        with serving(store, report, *options) as (process, endpoint):
            if os.getuid() == 0:
                assert "Uid:\t65534" in Path(f"/proc/{process.pid}/status").read_text()
            asyncio.run(send_every_code(endpoint))
            process.send_signal(signal.SIGHUP)
            answers = asyncio.run(send_every_code(endpoint))
            assert {answers[code] for code in WRITING} == {ResponseCode.NO_PERMISSION}
            assert answers[RequestCode.QUERY_MESSAGE] == ResponseCode.SUCCESS
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_SECONDS) == 0, report.with_name("log").read_text()[-4000:]
        assert read_only.attempts(report) == []
        assert read_only.difference(before, read_only.state_of(store)) == {}


def test_a_store_that_grows_is_followed_and_only_its_broker_changes_it(tmp_path: Path) -> None:
    """Growth, files that expire and directories that are exchanged, held pulls included."""
    report = tmp_path / "report"
    with read_only.reachable_directory() as directory:
        growing = GrowingStore(directory / "store")
        growing.add()
        growing.flush()
        state = read_only.state_directory_beside(growing.root)
        with serving(growing.root, report, "--workers", "0", "--state-dir", str(state)) as (process, endpoint):
            for step in range(4):
                for _ in range(12):
                    last = growing.add(body=b"x" * 90)
                growing.flush()
                pull(endpoint, last.queue_offset)
                changes = (growing.expire, growing.exchange_index, growing.exchange_queues)
                (*changes, growing.make_segment_in_advance)[step]()
            last = growing.add(keys="last")
            growing.flush()
            before = read_only.state_of(growing.root)
            pull(endpoint, last.queue_offset)
            eventually(lambda: maps_nothing_deleted(process.pid, growing.root), "what is gone to be let go")
            process.send_signal(signal.SIGTERM)
            assert process.wait(STOP_SECONDS) == 0, report.with_name("log").read_text()[-4000:]
        assert read_only.attempts(report) == []
        assert read_only.difference(before, read_only.state_of(growing.root)) == {}


def pull(endpoint: Endpoint, queue_offset: int) -> None:
    fields = {**FIELDS, "topic": "T", "queueOffset": str(queue_offset), "sysFlag": "6", "suspendTimeoutMillis": "15000"}
    eventually(lambda: ask(endpoint, RequestCode.PULL_MESSAGE, fields, timeout_seconds=20).code == 0, "the message")


def maps_nothing_deleted(pid: int, root: Path) -> bool:
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    paths = [line.split(maxsplit=5)[5] for line in lines if str(root) in line]
    return bool(paths) and all(Path(path).exists() for path in paths)
