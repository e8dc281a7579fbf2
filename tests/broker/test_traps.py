"""Traps of remoting-protocol §9, by their numbers; the others are in the tests of what they are about."""

import json
import re
from pathlib import Path

import pytest

from asking import Asker
from broker.service._refusals import WRITING_CODES
from broker.service.dispatcher import Dispatcher
from broker.service.request_families import build_processors
from broker_harness import connected, service_of, serving
from draining import pull_of
from heartbeats import consumer, heartbeat
from protocol.codes import RequestCode, ResponseCode
from storage.store.message_store import MessageStore

BODY_CODES = {
    RequestCode.GET_ALL_TOPIC_CONFIG: {},
    RequestCode.GET_BROKER_CONFIG: {},
    RequestCode.GET_BROKER_RUNTIME_INFO: {},
    RequestCode.GET_ALL_CONSUMER_OFFSET: {},
    RequestCode.GET_ALL_DELAY_OFFSET: {},
    RequestCode.GET_BROKER_CLUSTER_INFO: {},
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {},
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {},
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: {},
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: {},
    RequestCode.GET_UNIT_TOPIC_LIST: {},
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: {},
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: {},
    RequestCode.GET_NAMESRV_CONFIG: {},
    RequestCode.GET_ALL_PRODUCER_INFO: {},
    RequestCode.GET_BROKER_HA_STATUS: {},
    RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: {},
    RequestCode.GET_ROUTEINFO_BY_TOPIC: {"topic": "TopicTest"},
    RequestCode.GET_TOPIC_STATS_INFO: {"topic": "TopicTest"},
    RequestCode.GET_TOPIC_CONFIG: {"topic": "TopicTest"},
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: {"topic": "Nobody's"},
    RequestCode.GET_CONSUME_STATS: {"consumerGroup": "Nobody"},
    RequestCode.GET_TOPICS_BY_CLUSTER: {"cluster": "No"},
    RequestCode.QUERY_TOPICS_BY_CONSUMER: {"group": "Nobody"},
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: {"group": "Nobody"},
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: {"group": "CG_TAG"},
    RequestCode.QUERY_CONSUME_TIME_SPAN: {"topic": "TopicTest", "group": "Nobody"},
    RequestCode.GET_BROKER_CONSUME_STATS: {"isOrder": "false"},
    RequestCode.QUERY_CONSUME_QUEUE: {"topic": "TopicTest", "queueId": "0", "index": "77", "count": "1"},
    RequestCode.VIEW_BROKER_STATS_DATA: {"statsName": "BROKER_PUT_NUMS", "statsKey": "DefaultCluster"},
    RequestCode.GET_BROKER_MEMBER_GROUP: {"clusterName": "C", "brokerName": "B"},
}
"""Codes whose answer Java clients dereference the body of, with a request that finds as little as possible."""

ABSENT = {
    RequestCode.PULL_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    RequestCode.QUERY_MESSAGE: ResponseCode.QUERY_NOT_FOUND,
    RequestCode.VIEW_MESSAGE_BY_ID: ResponseCode.SYSTEM_ERROR,
    RequestCode.GET_PRODUCER_CONNECTION_LIST: ResponseCode.SYSTEM_ERROR,
    RequestCode.GET_CONSUMER_CONNECTION_LIST: ResponseCode.CONSUMER_NOT_ONLINE,
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: ResponseCode.SYSTEM_ERROR,
    RequestCode.GET_KV_CONFIG: ResponseCode.QUERY_NOT_FOUND,
    RequestCode.GET_KVLIST_BY_NAMESPACE: ResponseCode.QUERY_NOT_FOUND,
}
"""Codes that find nothing, and the code that says so."""


@pytest.fixture
def g1(g1_store: Path) -> Asker:
    return Asker(g1_store)


@pytest.fixture(scope="module")
def store(g1_store: Path) -> MessageStore:
    return MessageStore.open(g1_store)


def test_traps_1_and_7_a_success_has_a_body_of_compact_json_without_bare_integer_keys(g1: Asker) -> None:
    for code, fields in BODY_CODES.items():
        answer = g1.ask(code, fields)
        assert (answer.code, len(answer.body) > 0) == (0, True), (code, answer.remark)
        if code not in (RequestCode.GET_BROKER_CONFIG, RequestCode.GET_NAMESRV_CONFIG):
            outside_texts = re.sub(r'"(?:[^"\\]|\\.)*"', '""', bytes(answer.body).decode())
            assert not re.search(r"\s|[{,]-?\d+:", outside_texts), code


def test_trap_1_what_finds_nothing_says_so_by_its_code(g1: Asker) -> None:
    everything = {
        "topic": "TopicTest", "queueId": "0", "offset": "1", "key": "no such key", "namespace": "n",
        "maxNum": "64", "beginTimestamp": "0", "endTimestamp": str(2**63 - 1),
        "consumerGroup": "Nobody", "producerGroup": "Nobody",
        "queueOffset": "99", "maxMsgNums": "1", "sysFlag": "6", "commitOffset": "0",
        "suspendTimeoutMillis": "0", "subVersion": "0",
    }  # fmt: skip
    for code, expected in ABSENT.items():
        answer = g1.ask(code, everything)
        assert (code, answer.code, len(answer.body)) == (code, expected, 0)


def test_trap_8_queues_are_keys_as_bare_objects(g1: Asker) -> None:
    for code in (
        RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_CONSUME_STATS, RequestCode.GET_BROKER_CONSUME_STATS
    ):  # fmt: skip
        fields = {**BODY_CODES[code], "consumerGroup": "CG_TAG"}
        assert b'{{"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}:{' in bytes(g1.ask(code, fields).body)


def test_trap_9_every_header_value_is_a_text(g1: Asker) -> None:
    query = {"topic": "TopicTest", "key": "hotkey", "maxNum": "3", "beginTimestamp": "0", "endTimestamp": "9" * 18}
    for code, fields in (
        (RequestCode.GET_ALL_TOPIC_CONFIG, {}),
        (RequestCode.GET_MAX_OFFSET, {"topic": "TopicTest", "queueId": "1"}),
        (RequestCode.PULL_MESSAGE, PULL),
        (RequestCode.QUERY_MESSAGE, query),
    ):
        answer = g1.ask(code, fields)
        assert answer.ext_fields
        assert all(isinstance(text, str) for text in answer.ext_fields.values())


PULL = pull_of("TopicTest", maxMsgNums=1)


@pytest.mark.asyncio
async def test_trap_9_numbers_and_booleans_of_other_clients_are_accepted(store: MessageStore) -> None:
    header = {
        "code": RequestCode.PULL_MESSAGE,
        "language": "JAVA",
        "version": 121,
        "opaque": 5,
        "flag": 0,
        "remark": "",
    }
    fields = {name: int(text) if text.isdigit() else text for name, text in PULL.items()}
    fields |= {"unitMode": False, "Signature": "", "AccessKey": "", "OnsChannel": ""}
    raw = json.dumps(header | {"extFields": fields}).encode()
    async with serving(service_of(store)) as server, connected(server.addresses[0]) as client:
        client.writer.write((4 + len(raw)).to_bytes(4) + len(raw).to_bytes(4) + raw)
        answer = await client.answer()
    assert (answer.code, answer.opaque, len(answer.body)) == (0, 5, 313)


@pytest.mark.asyncio
async def test_traps_12_21_and_22_every_request_is_answered_by_a_version_and_a_code_of_16_bits(
    store: MessageStore,
) -> None:
    service = service_of(store)
    codes = {*Dispatcher(build_processors(service)).codes, *WRITING_CODES, *RequestCode, 0, 13, 4711}
    async with serving(service) as server, connected(server.addresses[0]) as client:
        for code in sorted(codes):
            for fields in (None, {"topic": "", "queueId": "x", "offset": "", "key": ""}):
                answer = await client.ask(code, fields)
                assert answer.is_response
                assert answer.code == 0 or answer.remark, f"code {code} fails without a word"
                assert (-(2**15) <= answer.code < 2**15, 232 <= answer.version < 2**15) == (True, True), code


def test_trap_15_a_topic_with_statistics_has_a_configuration_and_none_is_17(g1: Asker) -> None:
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("Live")))
    for topic, expected in {"TopicTest": 0, "%RETRY%Live": 0, "%RETRY%Anybody": 17, "NoSuchTopic": 17}.items():
        for code in (RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_TOPIC_CONFIG):
            assert g1.ask(code, {"topic": topic}).code == expected, (code, topic)


def test_trap_32_what_tools_ask_after_each_id_is_there(g1: Asker) -> None:
    groups = g1.value(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "TopicTest"})["groupList"]
    assert "CG_TAG" in groups
    for group in groups:
        assert g1.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": f"%RETRY%{group}"}).code == 0
        assert (
            g1.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group}).code
            == ResponseCode.CONSUMER_NOT_ONLINE
        )
        assert g1.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group}).code == 0
