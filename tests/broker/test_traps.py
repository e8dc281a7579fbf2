"""The 32 traps of remoting-protocol §9, each with where it is proved; those without a test of their own are here.

 1 no success without a body        here
 2 long polling                     the consumers' issue; pulls answer at once (processors/test_pull_message)
 3 no endless rebalance             here; processors/test_pull_message (led back into the queue)
 4 notify at a first heartbeat      the consumers' issue
 5 a group's list names the asker   processors/test_consumer_manage
 6 broker id 0                      processors/test_name_server
 7 compact JSON, quoted keys        here
 8 queues as bare keys              here
 9 header values are texts          here; numbers are accepted: here
10 the form of the request          here
11 port − 2                         tests of the server (`--vip`)
12 every request is answered        here
13 names and forms of figures       processors/test_broker_admin
14 nothing negative in flight       processors/test_consume_stats
15 351 beside 202                   here
16 the first *no match* is no end   processors/test_pull_message
17 windows of unique keys           tests of QUERY_MESSAGE
18 true keys within maxNum          test_golden_replay (`true_keys`), tests of the store
19 stored topics                    a client's matter: the stored topic is asked for
20 answers within a frame           tests of QUERY_MESSAGE; processors/test_pull_message
21 a version that lets SQL92 in     here
22 numbers that fit 16 bits         here
23 the response flag                test_golden_replay
24 answers on the asking connection tests of the connection
25 refusals and their remarks       the security issue
26 leaving is answered at once      processors/test_client_manage
27 clients that never take leave    here
28 one address for one name         processors/test_name_server
29 stable answers                   here
30 a user's set-up                  not ours
31 searches by time                 processors/test_topic_admin
32 what follows each id query       here
"""

import json
import re
from pathlib import Path

import pytest

from asking import Asker
from broker.service._refusals import WRITING_CODES
from broker.service.dispatcher import Dispatcher
from broker.service.request_families import build_processors
from broker_harness import connected, service_of, serving, until
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode, ResponseCode, SerializeType
from protocol.command import ext_fields_of
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


@pytest.mark.parametrize("code", sorted(BODY_CODES))
def test_trap_1_no_success_comes_without_the_body_that_clients_look_into(code: int, g1: Asker) -> None:
    answer = g1.ask(code, BODY_CODES[code])
    assert answer.code == 0, answer.remark
    assert len(answer.body) > 0


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


def test_trap_3_an_offset_committed_after_a_jump_is_found_again(g1: Asker) -> None:
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("TopicTest"))))
    queue = {"consumerGroup": "G", "topic": "TopicTest", "queueId": "2"}
    g1.ask(RequestCode.UPDATE_CONSUMER_OFFSET, queue | {"commitOffset": "7"})
    assert g1.ask(RequestCode.QUERY_CONSUMER_OFFSET, queue).ext_fields == {"offset": "7"}


@pytest.mark.parametrize(
    "code", sorted(set(BODY_CODES) - {RequestCode.GET_BROKER_CONFIG, RequestCode.GET_NAMESRV_CONFIG})
)
def test_trap_7_json_has_no_blanks_between_tokens_and_no_bare_integer_keys(code: int, g1: Asker) -> None:
    text = bytes(g1.ask(code, BODY_CODES[code]).body).decode()
    outside_texts = re.sub(r'"(?:[^"\\]|\\.)*"', '""', text)
    assert not re.search(r"\s", outside_texts)
    assert not re.search(r"[{,]-?\d+:", outside_texts)


@pytest.mark.parametrize(
    "code", [RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_CONSUME_STATS, RequestCode.GET_BROKER_CONSUME_STATS]
)
def test_trap_8_queues_are_keys_as_bare_objects(code: int, g1: Asker) -> None:
    fields = {**BODY_CODES[code], "consumerGroup": "CG_TAG"}
    assert b'{{"brokerName":"broker-a","queueId":0,"topic":"TopicTest"}:{' in bytes(g1.ask(code, fields).body)


def test_trap_9_every_header_value_is_a_text(g1: Asker) -> None:
    for code, fields in (
        (RequestCode.GET_ALL_TOPIC_CONFIG, {}),
        (RequestCode.GET_MAX_OFFSET, {"topic": "TopicTest", "queueId": "1"}),
        (RequestCode.PULL_MESSAGE, PULL),
        (
            RequestCode.QUERY_MESSAGE,
            {"topic": "TopicTest", "key": "hotkey", "maxNum": "3", "beginTimestamp": "0", "endTimestamp": "9" * 18},
        ),
    ):
        answer = g1.ask(code, fields)
        assert answer.ext_fields
        assert all(isinstance(text, str) for text in answer.ext_fields.values())


PULL = {
    "consumerGroup": "G", "topic": "TopicTest", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1", "sysFlag": "4",
    "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
}  # fmt: skip


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
    header["extFields"] = {name: int(text) if text.isdigit() else text for name, text in PULL.items()}
    header["extFields"] |= {"unitMode": False, "Signature": "", "AccessKey": "", "OnsChannel": ""}
    raw = json.dumps(header).encode()
    async with serving(service_of(store)) as server, connected(server.addresses[0]) as client:
        client.writer.write((4 + len(raw)).to_bytes(4) + len(raw).to_bytes(4) + raw)
        answer = await client.answer()
    assert (answer.code, answer.opaque, len(answer.body)) == (0, 5, 313)


@pytest.mark.asyncio
@pytest.mark.parametrize("form", list(SerializeType))
async def test_trap_10_an_answer_has_the_form_of_its_request(form: SerializeType, store: MessageStore) -> None:
    async with serving(service_of(store)) as server, connected(server.addresses[0]) as client:
        answer = await client.ask(
            RequestCode.GET_MAX_OFFSET, {"topic": "TopicTest", "queueId": "1"}, serialize_type=form
        )
    assert answer.serialize_type == form
    assert ext_fields_of(answer) == {"offset": "15"}


@pytest.mark.asyncio
async def test_trap_12_every_request_is_answered_whatever_is_missing_from_it(store: MessageStore) -> None:
    service = service_of(store)
    known = Dispatcher(build_processors(service)).codes
    codes = sorted(
        {
            *known,
            *WRITING_CODES,
            0,
            13,
            RequestCode.GET_CONSUMER_RUNNING_INFO,
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            RequestCode.QUERY_ASSIGNMENT,
            4711,
            RequestCode.POP_MESSAGE,
        }
    )
    async with serving(service) as server, connected(server.addresses[0]) as client:
        for code in codes:
            for fields in (None, {"topic": "", "queueId": "x", "offset": "", "key": ""}):
                answer = await client.ask(code, fields)
                assert answer.is_response
                assert answer.code == 0 or answer.remark, f"code {code} fails without a word"


@pytest.mark.parametrize("topic", ["TopicTest", "%RETRY%Live", "%RETRY%Anybody", "NoSuchTopic"])
def test_trap_15_a_topic_with_statistics_has_a_configuration_and_none_is_17(topic: str, g1: Asker) -> None:
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("Live")))
    codes = {
        g1.ask(code, {"topic": topic}).code for code in (RequestCode.GET_TOPIC_STATS_INFO, RequestCode.GET_TOPIC_CONFIG)
    }
    assert codes == {0 if topic in ("TopicTest", "%RETRY%Live") else ResponseCode.TOPIC_NOT_EXIST}


@pytest.mark.asyncio
async def test_traps_21_and_22_our_version_lets_sql_in_and_fits_16_bits(store: MessageStore) -> None:
    async with serving(service_of(store)) as server, connected(server.addresses[0]) as client:
        answer = await client.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G")))
        assert 232 <= answer.version < 2**15
        for code in (
            0,
            RequestCode.PULL_MESSAGE,
            RequestCode.QUERY_MESSAGE,
            RequestCode.VIEW_MESSAGE_BY_ID,
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            4711,
            RequestCode.POP_MESSAGE,
        ):
            answer = await client.ask(code)
            assert -(2**15) <= answer.code < 2**15


@pytest.mark.asyncio
async def test_trap_27_a_closed_connection_ends_its_memberships(store: MessageStore) -> None:
    service = service_of(store)
    async with serving(service) as server:
        async with connected(server.addresses[0]) as client:
            await client.ask(RequestCode.HEART_BEAT, body=heartbeat("go-client", consumer("G")))
            assert service.clients.consumer_group("G") is not None
        await until(lambda: service.clients.consumer_group("G") is None)


def test_trap_29_routes_are_the_same_from_one_call_to_the_next(g1: Asker) -> None:
    for code in (
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
    ):
        answers = {bytes(g1.ask(code, {"topic": "TopicTest"}).body) for _ in range(3)}
        assert len(answers) == 1


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
