"""Every recorded session, and every store with a tier, answered by our server as its broker answered."""

import asyncio
import json
import shutil
import struct
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pytest

from asking import Asker
from broker.endpoint import Endpoint
from broker.service._refusals import WRITING_CODES
from broker.service.dispatcher import handled_methods
from broker.service.request_families import PROCESSORS
from broker_harness import connected, service_of, serving
from draining import pull_of
from golden_deviations import DEVIATIONS, LARGEST_NUMBER, expected_of, is_same, refusal_of
from golden_frames import RESPONSE_FLAG, Answer, answer_of, consumer_sessions, sessions, value_of
from golden_store import GOLDEN, unpack
from interop.wire import BINARY_HEADER, FrameSplitter
from oracles import read_record
from protocol.codes import RequestCode, ResponseCode
from protocol.command import ext_fields_of
from protocol.message import decode_messages
from storage.layout.delay_levels import DEFAULT_DELAY_LEVELS
from storage.store.message_store import MessageStore, StoreOptions
from tier_answers import exchanges_of, pulls_of, records_in

SESSIONS = {session.name: session for session in [*sessions(), *consumer_sessions()]}
ANSWERED = frozenset(code for family in PROCESSORS for code, _, _ in handled_methods(family)) | WRITING_CODES


class Outcome(NamedTuple):
    exchange: object
    ours: Answer | None


class ReplayConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._splitter = FrameSplitter()
        self._frames = []
        self.asked = []

    async def ask(self, exchange: object) -> Outcome:
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


def play(name, tmp_path_factory, asked) -> list[Outcome]:
    session, exchanges = SESSIONS[name], SESSIONS[name].exchanges()
    root = unpack("store", tmp_path_factory.mktemp(session.archive.parent.name), archives=session.archive.parent)
    log_directories = tuple(sorted(path for path in root.glob("commitlog-*") if path.is_dir()))
    recorded = session.archive.with_name("store.json")
    levels = json.loads(recorded.read_text())["properties"]["messageDelayLevel"] if recorded.exists() else None
    options = StoreOptions(commit_log_directories=log_directories, delay_levels=levels or DEFAULT_DELAY_LEVELS)
    store = MessageStore.open(root, options)

    async def run() -> list[Outcome]:
        cluster_info = next(exchange for exchange in exchanges if exchange.code == RequestCode.GET_BROKER_CLUSTER_INFO)
        (broker,) = value_of(cluster_info.recorded.body)["brokerAddrTable"].values()
        service = service_of(store, advertise=Endpoint.parse(broker["brokerAddrs"]["0"]))
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


NAMES = ("g2-tier", "g2-tier-killed")
ONLY_IN_TIER = ("Tier-old", "TierDelay")
"""Topics whose queues a broker counts from 0 anew, since its own log has lost all their messages."""
OFFSETS = {RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.GET_EARLIEST_MSG_STORETIME}
OFFSETS.add(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP)
PHYSICAL_OFFSET = slice(28, 36)


def alike(record: bytes) -> bytes:
    return record[: PHYSICAL_OFFSET.start] + record[PHYSICAL_OFFSET.stop :]


def decoded(record):
    found = read_record(record, 0)
    assert found is not None
    return found


@dataclass(frozen=True)
class Case:
    name: str
    shape: str
    exchanges: list
    store: MessageStore


@pytest.fixture(scope="module", params=[(NAMES[0], "alone"), (NAMES[1], "joined")], ids=" ".join)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name, shape = request.param
    root = unpack("store", tmp_path_factory.mktemp(name), archives=GOLDEN / "g2" / name)
    tier = root / json.loads((GOLDEN / "g2" / name / "store.json").read_text())["tier"]
    if shape == "alone":
        (root / "config" / "tieredStoreMetadata.json").unlink()
        tier = Path(shutil.move(tier, root.with_name("tier")))
        options, place = StoreOptions(keeps_state=False), tier
    else:
        options, place = StoreOptions(keeps_state=False, tier=tier), root
    return Case(name, shape, exchanges_of(name), MessageStore.open(place, options))


def ask_all(case: Case, questions: list[tuple[int, dict[str, str]]]) -> list[tuple[int, dict[str, str], bytes]]:
    async def run() -> list[tuple[int, dict[str, str], bytes]]:
        async with serving(service_of(case.store)) as server, connected(server.addresses[0]) as client:
            answers = [await client.ask(code, fields) for code, fields in questions]
            return [(each.code, ext_fields_of(each), bytes(each.body)) for each in answers]

    return asyncio.run(run())


def pull_all(case, queues):
    async def run():
        async with serving(service_of(case.store)) as server, connected(server.addresses[0]) as client:
            return {queue: await pull(client, queue) for queue in queues}

    return asyncio.run(run())


async def pull(client, queue) -> list[bytes]:
    topic, queue_id, kind, expression = queue
    found: list[bytes] = []
    offset, end = 0, 1
    while offset < end:
        fields = pull_of(topic, int(queue_id), offset, subscription=expression, expressionType=kind)
        answer = await client.ask(RequestCode.PULL_MESSAGE, fields)
        assert answer.code in (0, ResponseCode.PULL_RETRY_IMMEDIATELY), answer.remark
        found += records_in(bytes(answer.body))
        following = ext_fields_of(answer)
        assert int(following["nextBeginOffset"]) > offset
        offset, end = int(following["nextBeginOffset"]), int(following["maxOffset"])
    return found


def test_every_queue_is_pulled_as_from_the_broker_by_each_filter(case: Case) -> None:
    recorded = pulls_of(case.exchanges)
    assert len(recorded) == 9
    pulled = pull_all(case, recorded)
    for queue, records in recorded.items():
        assert len(records) >= 1
        assert list(map(alike, pulled[queue])) == list(map(alike, records)), queue


def test_offsets_and_times_are_the_brokers(case: Case) -> None:
    asked = [each for each in case.exchanges if each.code in OFFSETS and each.topic not in ONLY_IN_TIER]
    assert len(asked) == 9 + 15
    answers = ask_all(case, [(each.code, each.fields) for each in asked])
    assert [fields for _, fields, _ in answers] == [each.answer["extFields"] for each in asked]


def test_every_key_unique_key_and_tag_finds_the_messages_that_have_it(case: Case) -> None:
    """A broker finds them where its index of the tier does: what it found is among these."""
    everything = defaultdict(list)
    for (topic, _, kind, expression), records in pulls_of(case.exchanges).items():
        if (kind, expression) == ("TAG", "*"):
            everything[topic] += map(decoded, records)
    asked = [each for each in case.exchanges if each.code == RequestCode.QUERY_MESSAGE and each.fields.get("indexType")]
    assert len(asked) > 300
    found_by_broker = 0
    for each, (_, _, body) in zip(asked, ask_all(case, [(each.code, each.fields) for each in asked]), strict=True):
        kind, key = each.fields["indexType"], each.fields["key"]
        having = [record for record in everything[each.topic] if has(record, kind, key)]
        newest = sorted(having, key=lambda record: record.store_timestamp)[-64:]
        ours = {(record.queue_id, record.queue_offset) for record in map(decoded, records_in(body))}
        if len(having) <= 32:
            assert ours == {(record.queue_id, record.queue_offset) for record in newest}, (each.topic, key)
        # A broker gives what has the hash of a tag; only what has the tag counts.
        matching = [record for record in map(decoded, records_in(each.body)) if has(record, kind, key)]
        theirs = {(record.queue_id, record.queue_offset) for record in matching}
        assert len(having) > 32 or theirs <= ours
        found_by_broker += bool(theirs)
    assert found_by_broker > 100


def has(record, kind, key) -> bool:
    properties = record.properties
    if kind == "K":
        return key in properties.get("KEYS", "").split(" ")
    return properties.get("UNIQ_KEY" if kind == "U" else "TAGS") == key


def test_an_offset_that_only_the_tier_had_is_refused_with_the_way_out(case: Case) -> None:
    views = [each for each in case.exchanges if each.code == RequestCode.VIEW_MESSAGE_BY_ID]
    asked = [each for each in views if each.answer["code"] == ResponseCode.SYSTEM_ERROR]
    assert len(asked) > 50
    for code, _, body in ask_all(case, [(each.code, each.fields) for each in asked]):
        assert code == ResponseCode.SYSTEM_ERROR
        assert not body
