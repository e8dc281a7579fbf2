"""Several workers on one port give one view of groups, offsets and locks, also when one of them dies."""

import asyncio
import json
import os
import shutil
import signal
import socket
import struct
import sys
import urllib.request
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
import process
from blocking_client import BlockingClient, eventually
from broker.workers.member import OWNED_CODES
from broker_harness import DEADLINE_SECONDS, connected, until
from draining import pull_of
from examples import examples
from heartbeats import consumer, heartbeat, subscription
from kept_store import written
from process import owner_of, serving_process
from protocol.codes import RequestCode, ResponseCode
from protocol.command import decode_command, encode_request, ext_fields_of
from protocol.frame import FrameDecoder
from protocol.message import decode_messages

WORKERS = 3
CLIENTS = 6
"""Connections to begin with; more are opened until each worker has one."""

GROUP = "SharedGroup"
PULL = pull_of("TopicTest", consumerGroup=GROUP, maxMsgNums=4, sysFlag=0, subVersion=1)


@pytest.fixture(scope="module")
def server(g1_store, tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    with serving_process(g1_store, folder, "--workers", str(WORKERS), "--state-dir", str(folder / "state")) as running:
        yield running
        assert running.stop() == 0


def worker_of(server, client) -> int:
    return owner_of(server.endpoints[0].port, client.writer.get_extra_info("sockname")[1])


@asynccontextmanager
async def clients_of(server, count=CLIENTS, workers=WORKERS):
    """Connections to all workers: as many as asked for, and more until each worker has one."""
    async with AsyncExitStack() as stack:
        opened = []
        while len(opened) < count or len({worker_of(server, each) for each in opened}) < workers:
            opened.append(await stack.enter_async_context(connected(server.endpoints[0])))
            # Answered: a worker has taken it.
            await opened[-1].ask(RequestCode.GET_MAX_OFFSET, {"topic": "TopicTest", "queueId": "0"})
        yield opened


async def until_so(check) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not await check():  # noqa: ASYNC110 - the state is another process's
            await asyncio.sleep(0.02)


async def join(client, name) -> None:
    body = heartbeat(name, consumer(GROUP, subscription("TopicTest", "*")))
    assert (await client.ask(RequestCode.HEART_BEAT, {}, body=body)).code == 0


async def refuse(client) -> None:
    """Send a heartbeat that Java cannot read; what is wrong with it is worker 0's business at no worker."""
    header, body = b'{"code":34,"language":%d,"opaque":77,"extFields":{}}' % 2**70, heartbeat("odd", consumer(GROUP))
    client.writer.write(struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body)
    answer = await client.answer()
    assert (answer.code, answer.opaque) == (ResponseCode.SYSTEM_ERROR, 77)
    assert "language is no 32-bit integer" in answer.remark


async def members(client) -> list[str]:
    answer = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP})
    return list(json.loads(bytes(answer.body))["consumerIdList"]) if answer.code == 0 else []


async def test_all_workers_know_all_members_and_what_they_subscribe_to(server) -> None:
    async with clients_of(server) as clients:
        names = sorted(f"client-{number}" for number in range(len(clients)))
        for client, name in zip(clients, names, strict=True):
            await refuse(client)
            await join(client, name)
        for client in clients:
            assert await members(client) == names
            # Without a subscription of its own a pull is filtered by the group's, which each worker has a copy of.
            answer = await client.ask(RequestCode.PULL_MESSAGE, PULL)
            assert (answer.code, len(answer.body) > 0) == (0, True)
        # Every member hears of every newcomer, whatever worker he came to; that may take longer than an answer.
        for client in clients[:-1]:
            while (await client.push()).code != RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                pass
        clients[0].writer.close()
        await clients[0].writer.wait_closed()

        async def is_gone() -> bool:
            return await members(clients[-1]) == names[1:]

        await until_so(is_gone)
        for client, name in zip(clients[1:], names[1:], strict=True):
            leaving = {"clientID": name, "consumerGroup": GROUP}
            assert (await client.ask(RequestCode.UNREGISTER_CLIENT, leaving)).code == 0
        assert await members(clients[-1]) == []

        async def is_refused() -> bool:
            codes = [(await client.ask(RequestCode.PULL_MESSAGE, PULL)).code for client in clients[1:]]
            return set(codes) == {ResponseCode.SUBSCRIPTION_NOT_EXIST}

        await until_so(is_refused)


async def test_offsets_and_locks_are_the_same_everywhere(server) -> None:
    queue = {"topic": "TopicTest", "queueId": "1"}
    mq_set = [{"brokerName": "broker-a", "queueId": 1, "topic": "TopicTest"}]
    async with clients_of(server) as clients:
        strangers_pull = PULL | {"sysFlag": "5", "subscription": "*", "commitOffset": "9", "queueId": "2"}
        for client in clients[1:]:  # of which not all are at the worker that keeps the offsets
            commit = {"consumerGroup": GROUP, "commitOffset": "9", **queue}
            refused = await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit)
            assert refused.code == ResponseCode.NO_PERMISSION
            assert (await client.ask(RequestCode.PULL_MESSAGE, strangers_pull | {"consumerGroup": "Foreign"})).code == 0
        for number, client in enumerate(clients):
            await join(client, f"puller-{number}")
        for offset, client in enumerate(clients, 1):
            fields = {"consumerGroup": GROUP, "commitOffset": str(offset), **queue}
            assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0
            for other in clients:
                answer = await other.ask(RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": GROUP, **queue})
                assert ext_fields_of(answer)["offset"] == str(offset)
        # An offset that comes with a pull goes to worker 0 too.
        for client in clients:
            await client.ask(RequestCode.PULL_MESSAGE, PULL | {"sysFlag": "1", "commitOffset": "7", "queueId": "2"})
        pulled = {"consumerGroup": GROUP, "topic": "TopicTest", "queueId": "2"}
        answer = await clients[0].ask(RequestCode.QUERY_CONSUMER_OFFSET, pulled)
        assert ext_fields_of(answer)["offset"] == "7"
        foreign = {"consumerGroup": "Foreign", "topic": "TopicTest", "queueId": "2", "setZeroIfNotFound": "false"}
        assert (await clients[0].ask(RequestCode.QUERY_CONSUMER_OFFSET, foreign)).code == ResponseCode.QUERY_NOT_FOUND
        granted = []
        for number, client in enumerate(clients):
            body = json.dumps({"consumerGroup": GROUP, "clientId": f"c{number}", "mqSet": mq_set}).encode()
            answer = await client.ask(RequestCode.LOCK_BATCH_MQ, {}, body=body)
            granted.append(len(json.loads(bytes(answer.body))["lockOKMQSet"]))
        assert granted == [1] + [0] * (len(clients) - 1)


# ------------------------ clients that end their side

FIELDS = dict.fromkeys(("consumerGroup", "producerGroup", "group"), GROUP)
FIELDS |= {"clientID": "client", "clientId": "client", "topic": "TopicTest", "queueId": "0", "commitOffset": "1"}
FIELDS |= {"isOrder": "false", "statsName": "TOPIC_PUT_NUMS", "statsKey": "TopicTest"}
OF_GROUP = {"consumerGroup": GROUP, "clientId": "client"}
BODIES = {
    RequestCode.HEART_BEAT: heartbeat("client", consumer(GROUP, subscription("TopicTest", "*"))),
    RequestCode.LOCK_BATCH_MQ: json.dumps(OF_GROUP | {"mqSet": []}).encode(),
    RequestCode.UNLOCK_BATCH_MQ: json.dumps(OF_GROUP | {"mqSet": []}).encode(),
    RequestCode.QUERY_ASSIGNMENT: json.dumps(OF_GROUP | {"topic": "TopicTest", "strategyName": "AVG"}).encode(),
}

LOCAL = (RequestCode.GET_MAX_OFFSET, RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_ALL_TOPIC_CONFIG)
"""Codes that each worker answers by itself, between the others."""


def answered(endpoint, requests) -> set[int]:
    frames = (
        encode_request(code, fields, opaque=opaque, body=BODIES.get(RequestCode(code), b""))
        for opaque, (code, fields) in enumerate(requests)
    )
    with socket.create_connection(endpoint, 30) as connection:
        connection.sendall(b"".join(frames))
        connection.shutdown(socket.SHUT_WR)
        data = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    return {each.opaque for each in map(decode_command, FrameDecoder().feed(data)) if each.is_response}


@pytest.mark.parametrize("loop", ["uvloop", pytest.param("asyncio", marks=pytest.mark.soak)])
def test_requests_in_any_order_are_all_answered_though_the_client_has_ended(g1_store, tmp_path, loop) -> None:
    codes = st.sampled_from([*sorted(OWNED_CODES), *LOCAL])
    options = ("--workers", "2", "--loop", loop, "--state-dir", str(tmp_path / "state"))
    with serving_process(g1_store, tmp_path, *options) as server:

        @settings(max_examples=examples(8))
        @given(st.lists(st.tuples(codes, st.sampled_from([FIELDS, {}])), min_size=1, max_size=60))
        def check(requests: list[tuple[int, dict[str, str]]]) -> None:
            for _ in range(4):  # of which hardly all come to one worker
                assert answered(server.endpoints[0], requests) == set(range(len(requests)))

        check()


# ------------------------ a stuck worker


QUEUE = {"topic": "TopicTest", "queueId": "1"}


async def offset_of(client) -> str | None:
    answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, {"consumerGroup": GROUP, **QUEUE})
    return ext_fields_of(answer).get("offset")


def test_worker_0_is_replaced_and_its_offsets_groups_and_requests_live_on(g1_store, tmp_path) -> None:
    async def stop_worker_0(server, owner) -> None:
        async with clients_of(server, 4, 2) as clients:
            lost = [client for client in clients if worker_of(server, client) == owner]
            staying = [client for client in clients if client not in lost]
            names = [f"client-{number}" for number in range(len(staying))]
            for client, name in zip([*staying, *lost], [*names, *names], strict=False):
                await join(client, name)
            for offset, client in (("5", lost[0]), ("6", staying[0])):
                fields = {"consumerGroup": GROUP, "commitOffset": offset, **QUEUE}
                assert (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0
            os.kill(owner, signal.SIGSTOP)
            # Handed to worker 0, which does not answer; its successor does.
            assert await offset_of(staying[0]) == "6"
            assert await lost[0].is_closed_by_the_server()

            async def all_are_back() -> bool:
                return await members(staying[0]) == names

            await until_so(all_are_back)
            assert (await staying[0].ask(RequestCode.PULL_MESSAGE, PULL)).code == 0
        async with clients_of(server, 2, 2) as clients:
            assert {await offset_of(client) for client in clients} == {"6"}

    options = ["--worker-timeout", "4", "--state-dir", str(tmp_path / "state"), "--http", "0"]
    with serving_process(g1_store, tmp_path, "--workers", "2", *options) as server:
        owner = server.workers[0]
        asyncio.run(stop_worker_0(server, owner))
        with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics", timeout=60) as answer:
            figures = answer.read().decode()
        assert 'rocketlens_worker_stuck_total{worker="0"} 1.0' in figures
        assert 'rocketlens_worker_stuck_total{worker="1"} 0.0' in figures
        killed = f"worker 0 (process {owner}) is killed: its event loop has stood still for 4 s (--worker-timeout)"
        assert killed in server.errors.read_text()
        assert server.stop() == 0


# ------------------------ keys of a log without index


SMALL = """
from rocketlens.cli import serving
from storage.store import _upkeep as upkeep
serving.SCAN_BUDGET = 1000
upkeep.SLOTS, upkeep.ENTRIES, upkeep.SCAN_STEP = 31, 101, 2000
upkeep.MOST_IN_MEMORY, upkeep.MOST_WAITING = 12 * 200, 12 * 700
upkeep.STAYS_IN_MEMORY, upkeep.WORTH_KEEPING, upkeep.SPARE_BYTES = 1000, 500, 0
from rocketlens.cli.main import main
main(prog_name="rocketlens")
"""
"""A server whose bounds are those of :func:`kept_store.make_small`."""


def entries_in(directory) -> int:
    """How many entries the files of a directory have: 4 bytes at 36 of each, which count from one."""
    return sum(int.from_bytes(path.read_bytes()[36:40], "big") - 1 for path in directory.glob("*[0-9]"))


async def complete_answer(client, key) -> list[int]:
    """Physical offsets of what is found once the answer lacks nothing; until then it says so, and errs in nothing."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while True:
            times = {"beginTimestamp": "0", "endTimestamp": str(2**62)}
            answer = await client.ask(RequestCode.QUERY_MESSAGE, {"topic": "T", "key": key, "maxNum": "64", **times})
            told = ext_fields_of(answer).get("rocketlensIncomplete")
            if told is None:
                return [message.physical_offset for message in decode_messages(answer.body)]
            assert "still to be scanned" in told
            assert answer.code == 0 or "may be missing" in answer.remark
            await asyncio.sleep(0.02)


async def test_every_worker_answers_completely_and_so_does_the_next_start(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(process, "COMMAND", (sys.executable, "-c", SMALL))
    count = 200
    writer = written(tmp_path, count)
    shutil.rmtree(writer.root / "index")
    store_before = sorted(writer.root.rglob("*"))
    entries = tmp_path / "state" / "entries"
    options = ["--workers", "2", "--state-dir", str(tmp_path / "state")]
    keys = ["all0", *(f"k{number}" for number in range(0, count, 13))]
    right = {key: oracles.query(writer.records, "T", key, kind="ANY", maximum=64) for key in keys}
    kept: list[dict[str, int]] = []
    for _ in range(2):
        with serving_process(writer.root, tmp_path, *options) as server:
            async with clients_of(server, 2, 2) as clients:
                for client in clients:
                    assert {key: await complete_answer(client, key) for key in keys} == right
                # Two hundred may stay in memory; then no further file is made before the server ends.
                await until(lambda: entries_in(entries) >= 4 * count - 200)
                for client in clients:
                    assert {key: await complete_answer(client, key) for key in keys} == right
            assert server.stop() == 0
        kept.append({path.name: path.stat().st_ino for path in entries.glob("*[0-9]")})
    assert kept[0].items() <= kept[1].items(), "the second start had them, and made no others of the same"
    assert len(kept[1]) <= len(kept[0]) + 1
    assert sorted(writer.root.rglob("*")) == store_before
    assert "Traceback" not in (tmp_path / "stderr").read_text()


# ------------------------ files that are cut

SEGMENT = f"{0:020}"


def test_who_meets_a_file_that_was_cut_is_told_and_nobody_is_cut_off(g1_store, tmp_path) -> None:
    by_key = {"topic": "TopicTest", "key": "hotkey", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(2**62)}
    copy = shutil.copytree(g1_store, tmp_path / "copy")
    offsets = record_offsets(copy)
    with serving_process(copy, tmp_path, "--state-dir", str(tmp_path / "state")) as server, ExitStack() as stack:
        before = server.workers
        first, second = (stack.enter_context(BlockingClient(server.endpoints[0])) for _ in range(2))
        whole = first.ask(RequestCode.QUERY_MESSAGE, by_key)
        assert (whole.code, bool(whole.body)) == (0, True)
        for index in (copy / "index").iterdir():
            os.truncate(index, 0)
        met = first.ask(RequestCode.QUERY_MESSAGE, by_key)
        assert (met.code, "a file was cut or could not be read" in str(met.remark)) == (1, True)
        eventually(lambda: first.ask(RequestCode.QUERY_MESSAGE, by_key).code == 0)
        found = first.ask(RequestCode.QUERY_MESSAGE, by_key)
        assert found.body == whole.body, "the log is scanned for what the index had"

        def views():
            return {each: second.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(each)}) for each in offsets}

        seen = views()
        assert {answer.code for answer in seen.values()} == {0}
        cut = offsets[len(offsets) // 2] // 4096 * 4096
        os.truncate(copy / "commitlog" / SEGMENT, cut)
        for offset, answer in views().items():
            is_same = bytes(answer.body) == bytes(seen[offset].body)
            assert is_same or (answer.code and offset + len(seen[offset].body) > cut), offset
        said = f"no segment holds physical offsets {cut} to"
        eventually(lambda: said in server.errors.read_text())
        assert server.workers == before, "nobody died of it"
        assert server.stop() == 0


def record_offsets(store) -> list[int]:
    offsets, position = [], 0
    with (store / "commitlog" / SEGMENT).open("rb") as segment:
        while len(offsets) < 300:
            segment.seek(position)
            size = int.from_bytes(segment.read(4))
            if not size or int.from_bytes(segment.read(4), signed=True) != -626843481:
                break
            offsets.append(position)
            position += size
    assert len(offsets) > 100
    return offsets
