"""Every recorded session, played against our server on the store that its broker left behind."""

import asyncio
import json
import struct
from dataclasses import replace
from typing import NamedTuple

import pytest

from asking import Asker
from broker.endpoint import Endpoint
from broker.service._refusals import WRITING_CODES
from broker.service.dispatcher import handled_methods
from broker.service.request_families import PROCESSORS
from broker_harness import service_of, serving
from golden_deviations import DEVIATIONS, LARGEST_NUMBER, expected_of, is_same, refusal_of
from golden_frames import RESPONSE_FLAG, Answer, Exchange, answer_of, consumer_sessions, sessions, value_of
from golden_store import GOLDEN, unpack
from interop.wire import BINARY_HEADER, FrameSplitter
from protocol.codes import RequestCode, ResponseCode
from protocol.message import decode_messages
from storage.layout.delay_levels import DEFAULT_DELAY_LEVELS
from storage.store.message_store import MessageStore, StoreOptions

SESSIONS = {session.name: session for session in [*sessions(), *consumer_sessions()]}
ANSWERED = frozenset(code for family in PROCESSORS for code, _, _ in handled_methods(family)) | WRITING_CODES


class Outcome(NamedTuple):
    exchange: Exchange
    ours: Answer | None


class ReplayConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._splitter = FrameSplitter()
        self._frames = []
        self.asked = []

    async def ask(self, exchange: Exchange) -> Outcome:
        header = exchange.binary
        mark = BINARY_HEADER << 24
        if header is None:
            header, mark = json.dumps(exchange.header, ensure_ascii=False, separators=(",", ":")).encode("utf-8"), 0
        length = 4 + len(header) + len(exchange.body)
        self._writer.write(struct.pack(">iI", length, mark | len(header)) + header + exchange.body)
        if exchange.recorded is None:
            return Outcome(exchange, None)
        async with asyncio.timeout(30):
            frame = await self._answer_to(exchange.header["opaque"])
        return Outcome(exchange, answer_of(frame.header, frame.body))

    async def _answer_to(self, opaque):
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if frame.header["flag"] & RESPONSE_FLAG and frame.header["opaque"] == opaque:
                    return frame
                self.asked.append(frame)
            chunk = await self._reader.read(1 << 16)
            assert chunk, f"the server closed the connection instead of answering request {opaque}"
            self._frames += self._splitter.feed(chunk)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def replay(exchanges, endpoint, asked) -> list[Outcome]:
    """Play a session in its order; each recorded connection is one of ours, closed after its last request."""
    last_use = {exchange.connection: exchange.number for exchange in exchanges}
    connections: dict[tuple[int, int], ReplayConnection] = {}
    outcomes = []
    for exchange in exchanges:
        if exchange.connection not in connections:
            connections[exchange.connection] = ReplayConnection(*await asyncio.open_connection(*endpoint))
        outcomes.append(await connections[exchange.connection].ask(exchange))
        if last_use[exchange.connection] == exchange.number:
            ended = connections.pop(exchange.connection)
            await ended.close()
            asked += [(exchange.connection, frame) for frame in ended.asked]
    return outcomes


def advertised_address(exchanges: list[Exchange]) -> Endpoint:
    cluster_info = next(exchange for exchange in exchanges if exchange.code == RequestCode.GET_BROKER_CLUSTER_INFO)
    (broker,) = value_of(cluster_info.recorded.body)["brokerAddrTable"].values()
    return Endpoint.parse(broker["brokerAddrs"]["0"])


def play(name, tmp_path_factory, asked) -> list[Outcome]:
    session, exchanges = SESSIONS[name], SESSIONS[name].exchanges()
    root = unpack("store", tmp_path_factory.mktemp(session.archive.parent.name), archives=session.archive.parent)
    log_directories = tuple(sorted(path for path in root.glob("commitlog-*") if path.is_dir()))
    recorded = session.archive.with_name("store.json")
    levels = json.loads(recorded.read_text())["properties"]["messageDelayLevel"] if recorded.exists() else None
    options = StoreOptions(commit_log_directories=log_directories, delay_levels=levels or DEFAULT_DELAY_LEVELS)
    store = MessageStore.open(root, options)

    async def run() -> list[Outcome]:
        service = service_of(store, advertise=advertised_address(exchanges))
        async with serving(service) as server:
            return await replay(exchanges, server.addresses[0], asked)

    return asyncio.run(run())


ASKED = {name: [] for name in SESSIONS}
"""What the server asked in each session in turn, with the connection."""


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Outcome]]:
    return {name: play(name, tmp_path_factory, ASKED[name]) for name in SESSIONS}


@pytest.mark.parametrize("name", SESSIONS)
def test_recorded_requests_are_answered_as_recorded(name: str, outcomes: dict[str, list[Outcome]]) -> None:
    assert outcomes[name]
    for outcome in outcomes[name]:
        exchange, ours = outcome.exchange, outcome.ours
        if exchange.recorded is None:
            continue
        refusal = refusal_of(exchange, ANSWERED)
        expected, rules = (refusal, ["refusal"]) if refusal is not None else expected_of(exchange, ours)
        if not is_same(expected, ours):
            told = f"{exchange}, by {', '.join(rules)}" if rules else f"{exchange}, as recorded"
            assert replace(expected, body=b"") == replace(ours, body=b""), told
            assert value_of(expected.body) == value_of(ours.body), told


def test_every_rule_is_needed_and_there_are_at_most_twelve(outcomes: dict[str, list[Outcome]]) -> None:
    answered = (each for session in outcomes.values() for each in session if each.ours is not None)
    plain = ((each.exchange, each.ours) for each in answered if refusal_of(each.exchange, ANSWERED) is None)
    used = {name for exchange, ours in plain if ours is not None for name in expected_of(exchange, ours)[1]}
    assert sorted(used) == sorted(rule.name for rule in DEVIATIONS)
    assert len(DEVIATIONS) <= LARGEST_NUMBER


@pytest.mark.usefixtures("outcomes")
@pytest.mark.parametrize("session", consumer_sessions(), ids=lambda session: session.name)
def test_members_are_told_of_changes_in_their_group_as_recorded(session) -> None:
    asked = ASKED[session.name]
    assert {(frame.code, frame.header["flag"]) for _, frame in asked} == {(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 2)}
    assert sorted((place, frame.header["extFields"]["consumerGroup"]) for place, frame in asked) == session.notices()


FOREVER = {"beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}


@pytest.fixture(scope="module")
def g1(g1_store) -> Asker:
    return Asker(g1_store)


def test_stored_queues(tmp_path) -> None:
    asker = Asker(unpack("store", tmp_path, archives=GOLDEN / "g2" / "g2-queues"))
    assert "%LMQ%alpha" not in asker.store.config.topics
    assert "%LMQ%alpha" in asker.value(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]
    (queues,) = asker.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%LMQ%alpha"})["queueDatas"]
    assert (queues["readQueueNums"], queues["perm"]) == (1, 4)


def test_retry_routes(g1: Asker) -> None:
    route = g1.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%NobodyYet"})
    assert [(queues["readQueueNums"], queues["perm"]) for queues in route["queueDatas"]] == [(1, 4)]
    assert g1.value(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicTest"})["brokerDatas"] == route["brokerDatas"]
    assert g1.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%"}).code == ResponseCode.TOPIC_NOT_EXIST


def test_disclosed_page(g1: Asker) -> None:
    fields = {"topic": "TopicTest", "key": "hotkey", "indexType": "K", "_UNIQUE_KEY_QUERY": "false", **FOREVER}
    answer = g1.ask(RequestCode.QUERY_MESSAGE, fields | {"maxNum": "5"})
    oldest, *_ = decode_messages(answer.body)
    assert answer.ext_fields["rocketlensTruncated"] == "true"
    assert answer.ext_fields["rocketlensCursor"] == str(oldest.physical_offset)
    assert f"lastKey {oldest.physical_offset}" in answer.remark
    whole = g1.ask(RequestCode.QUERY_MESSAGE, fields | {"maxNum": "40"})
    assert "rocketlensTruncated" not in (whole.ext_fields or {})


def test_process_facts(g1: Asker) -> None:
    table = g1.value(RequestCode.GET_BROKER_RUNTIME_INFO)["table"]
    assert table["bootTimestamp"] == str(g1.service.started_timestamp)
    assert table["msgPutTotalTodayNow"] == "0"
    assert (table["commitLogMinOffset"], table["commitLogMaxOffset"]) == ("0", "156014")
    assert g1.value(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "TopicTest"})["topicPutTps"] == 0.0
    assert table["brokerVersion"] == "513"
    put = g1.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "TopicTest"})
    assert (put.code, put.remark) == (ResponseCode.SYSTEM_ERROR, "The stats <TOPIC_PUT_NUMS> <TopicTest> not exist")
    version = g1.value(RequestCode.GET_ALL_TOPIC_CONFIG)["mappingDataVersion"]
    assert version == {"counter": 0, "stateVersion": 0, "timestamp": 0}


def test_own_configuration(g1: Asker) -> None:
    broker = g1.value(RequestCode.GET_BROKER_CONFIG)
    assert (broker["brokerPermission"], broker["autoCreateTopicEnable"]) == ("4", "false")
    version = g1.ask(RequestCode.GET_BROKER_CONFIG).ext_fields["version"]
    assert json.loads(version)["timestamp"] == g1.service.started_timestamp
    assert value_of(bytes(g1.ask(RequestCode.GET_NAMESRV_CONFIG).body))["listenPort"] == "10911"
