"""Consumer groups: members, configuration, offsets, assigned queues, and what is asked of members."""

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asking import Asker, FakeConnection
from broker.service.consumers.client_calls import ClientCalls
from broker.service.consumers.queue_allocation import averagely, by_circle
from broker_harness import connected, service_of, serving
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode, ResponseCode
from protocol.command import ext_fields_of
from protocol.message import decode_message
from storage.store.message_store import MessageStore
from store_writer import appended, closed_store


def offset_of(asker: Asker, group: str, topic: str, queue_id: int, **fields: str) -> tuple[int, str | None]:
    asked = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)} | fields
    answer = asker.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)
    return answer.code, (answer.ext_fields or {}).get("offset")


def test_a_group_that_the_store_does_not_know_is_told_with_a_brokers_defaults_and_is_not_kept(g1: Asker) -> None:
    before = g1.value(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    # As the broker 5.5.0 has answered; tests/interop/test_queue_answers.py asks it about any names.
    assert g1.value(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "newgroup"}) == {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": True,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeMessageOrderly": False,
        "consumeTimeoutMinute": 15,
        "groupName": "newgroup",
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 16,
        "retryQueueNums": 1,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    assert g1.value(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG) == before
    answer = g1.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "no group"})
    assert (answer.code, answer.remark) == (ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "No group in this broker")


def test_a_group_new_to_a_queue_whose_beginning_is_gone_has_no_offset(tmp_path) -> None:
    writer = closed_store(tmp_path / "store", *(appended("Cut", queue_offset=offset) for offset in range(5, 9)))
    asker = Asker(writer.root)
    assert asker.ask(RequestCode.GET_MIN_OFFSET, {"topic": "Cut", "queueId": "0"}).ext_fields == {"offset": "5"}
    assert offset_of(asker, "New", "Cut", 0) == (22, None)


def test_what_a_consumer_tells_last_may_come_after_its_leave_taking(g1: Asker) -> None:
    """Recorded so: Java clients of 5.x send both without waiting, and the one overtakes the other."""
    fields = {"consumerGroup": "G", "topic": "TopicTest", "queueId": "1", "commitOffset": "9"}
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c", consumer("G")))
    g1.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c", "consumerGroup": "G"})
    gone = g1.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "G"})
    assert gone.code == ResponseCode.CONSUMER_NOT_ONLINE
    assert g1.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    foreign = g1.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields, connection=FakeConnection())
    assert foreign.code == ResponseCode.NO_PERMISSION
    assert offset_of(g1, "G", "TopicTest", 1) == (0, "9")


@pytest.mark.parametrize("oneway", [True, False])
def test_nobody_moves_the_offset_of_a_group_that_he_did_not_join(g1: Asker, oneway: bool) -> None:
    fields = {"consumerGroup": "CG_TAG", "topic": "TopicTest", "queueId": "1", "commitOffset": "9"}
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("CG_TAG")))
    stranger = FakeConnection()
    assert g1.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields, connection=stranger, oneway=oneway).code == (
        0 if oneway else ResponseCode.NO_PERMISSION
    )
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c2", consumer("Another")), connection=stranger)
    assert offset_of(g1, "CG_TAG", "TopicTest", 1) == (0, "2")


def test_groups_that_consume_here_are_listed_as_a_broker_would_make_them(g1: Asker) -> None:
    before = g1.value(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
    g1.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("New"), consumer("CG_SQL")))
    listed = g1.value(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"]
    assert listed == before | {"New": before["CG_SQL"] | {"groupName": "New"}}
    statistics = g1.value(RequestCode.GET_BROKER_CONSUME_STATS, {"isOrder": "false"})["consumeStatsList"]
    assert {name for groups in statistics for name in groups} == {*listed}
    assert "%RETRY%New" in g1.value(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)["topicList"]
    g1.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "c1", "consumerGroup": "New"})
    assert g1.value(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)["subscriptionGroupTable"] == before


def test_a_subscription_is_checked_by_compiling_it_unless_it_is_by_tags(g1: Asker) -> None:
    failed = ResponseCode.SUBSCRIPTION_PARSE_FAILED
    cases = ("||", "TAG", 0), ("a > 1", "SQL92", 0), ("a >", "SQL92", failed), ("x", "tag", failed)
    for expression, kind, code in cases:
        data = {"clientId": "c1", "group": "G", "subscriptionData": subscription("TopicTest", expression, kind=kind)}
        answer = g1.ask(RequestCode.CHECK_CLIENT_CONFIG, body=json.dumps(data).encode())
        assert (answer.code, answer.remark is None) == (code, code == 0)


def test_what_a_group_commits_is_what_it_has_consumed_lately(g1_store) -> None:
    asker = Asker(g1_store)

    def stats(name: str, key: str) -> dict[str, dict[str, float]]:
        return asker.value(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": name, "statsKey": key})

    asker.ask(RequestCode.HEART_BEAT, {}, heartbeat("c", consumer("CG_TAG", subscription("TopicTest"))))
    for offset in ("5", "9"):  # the store has 2 on record
        fields = {"consumerGroup": "CG_TAG", "topic": "TopicTest", "queueId": "0", "commitOffset": offset}
        assert asker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields).code == 0
    found = stats("GROUP_GET_NUMS", "TopicTest@CG_TAG")
    assert {name: item["sum"] for name, item in found.items()} == {"statsMinute": 7, "statsHour": 7, "statsDay": 7}
    assert 0 < found["statsMinute"]["tps"] <= 7
    assert asker.value(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "CG_TAG"})["consumeTps"] > 0
    assert stats("GROUP_GET_SIZE", "TopicTest@CG_TAG")["statsDay"]["sum"] == 0
    for name, count in (("BROKER_GET_NUMS", 7), ("BROKER_PUT_NUMS", 0)):
        assert stats(name, "DefaultCluster")["statsDay"]["sum"] == count


HOT_0 = "7F00000100002A9F00000000000019B5"
"""A message of g1; the id ends in its physical offset."""


@asynccontextmanager
async def asked_of_a_member(root, timeout_seconds=10):
    store = await asyncio.to_thread(MessageStore.open, root)
    service = replace(service_of(store), calls=ClientCalls(timeout_seconds=timeout_seconds))
    async with serving(service) as server, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(server.addresses[0])) for _ in range(3)]
        await clients[0].ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("TopicTest"))))
        assert (await clients[0].push()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
        yield clients[0], clients[1], clients[2]


async def test_a_message_is_given_to_the_member_that_is_named_and_how_it_fared_comes_back(g1_store) -> None:
    async with asked_of_a_member(g1_store) as (member, admin, stranger):
        fields = {"consumerGroup": "G", "clientId": "c1", "msgId": HOT_0, "topic": "TopicTest"}
        admin.send(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
        call = await member.push()
        assert ext_fields_of(call) == fields | {"brokerName": "broker-a"}
        assert decode_message(memoryview(call.body)).body == b"hot 0"
        stranger.reply(call, b"forged")
        await stranger.ask(RequestCode.GET_MAX_OFFSET, {"topic": "TopicTest", "queueId": "0"})
        for remark in ("told", "told twice"):
            member.reply(call, b'{"consumeResult":"CR_LATER"}', remark=remark)
        answer = await admin.answer()
        assert (answer.code, answer.remark, answer.body) == (0, "told", b'{"consumeResult":"CR_LATER"}')


async def test_what_cannot_be_asked_is_refused_with_a_word(g1_store) -> None:
    info, consume = RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY
    failed, lost = ResponseCode.SYSTEM_ERROR, "7F00000100002A9F00000000000FFFFF"
    async with asked_of_a_member(g1_store, 0.05) as (_, admin, _):
        for code, fields, expected, remark in (
            (info, {"clientId": "c2"}, failed, "The Consumer <G> <c2> not online"),
            (info, {"consumerGroup": "Other", "clientId": "c1"}, failed, "The Consumer <Other> <c1> not online"),
            (info, {}, failed, "clientId is missing"),
            (consume, {"clientId": "c2", "msgId": HOT_0}, failed, "The Consumer <G> <c2> not online"),
            (consume, {"clientId": "c1"}, failed, "message id '': length 0"),
            (consume, {"clientId": "c1", "msgId": lost}, failed, "can not find message by the offset"),
            (info, {"clientId": "c1"}, ResponseCode.CONSUME_MSG_TIMEOUT, "consumer <G> <c1> Timeout"),
        ):
            answer = await admin.ask(code, {"consumerGroup": "G"} | fields)
            assert answer.code == expected
            assert answer.remark.startswith(remark)


async def test_a_member_that_goes_while_it_is_asked_keeps_nobody_waiting(g1_store) -> None:
    async with asked_of_a_member(g1_store, 1000) as (member, admin, _):
        opaque = admin.send(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "G", "clientId": "c1"})
        await member.push()
        member.writer.close()
        answer = await admin.answer()
        assert (answer.opaque, answer.code) == (opaque, ResponseCode.CONSUME_MSG_TIMEOUT)


QUERY_ASSIGNMENT = 400
QUESTION = {"clientId": "c1", "consumerGroup": "G", "messageModel": "CLUSTERING", "strategyName": "AVG"}
QUESTION["topic"] = "TopicTest"


def join(asker: Asker, *client_ids: str) -> None:
    for client_id in client_ids:
        told = heartbeat(client_id, consumer("G", subscription("TopicTest")))
        asker.ask(RequestCode.HEART_BEAT, body=told, connection=FakeConnection())


def assigned(asker: Asker, **changes: str | None) -> list[int] | None:
    answer = asker.ask(QUERY_ASSIGNMENT, body=json.dumps(QUESTION | changes).encode())
    assert (answer.code, answer.remark) == (0, None)
    body = json.loads(bytes(answer.body))
    if body == {}:
        return None
    topic = changes.get("topic", "TopicTest")
    for one in body["messageQueueAssignments"]:
        assert one.keys() == {"messageQueue", "mode"}
        assert one["mode"] == "PULL"
        assert (one["messageQueue"]["brokerName"], one["messageQueue"]["topic"]) == ("broker-a", topic)
    return [one["messageQueue"]["queueId"] for one in body["messageQueueAssignments"]]


def test_a_member_alone_is_answered_as_by_a_broker(g1: Asker) -> None:
    join(g1, "c1")
    everywhere: dict[str, str | None] = {"messageModel": "BROADCASTING"}
    answers: list[tuple[dict[str, str | None], list[int] | None]] = [
        ({}, [0, 1, 2, 3]),
        ({"strategyName": "AVG_BY_CIRCLE"}, [0, 1, 2, 3]),
        ({"clientId": "unknown"}, []),
        ({"consumerGroup": "CG_off"}, None),
        ({"topic": "NoSuch"}, None),
        ({"strategyName": "FOO"}, None),
        ({"strategyName": None}, None),
        ({"clientId": None}, None),
        ({"clientId": ""}, None),
        (everywhere, [0, 1, 2, 3]),
        (everywhere | {"clientId": "unknown", "consumerGroup": "CG_off"}, [0, 1, 2, 3]),
        (everywhere | {"topic": "NoSuch"}, None),
        ({"topic": "%RETRY%G"}, [0]),
        ({"topic": "%RETRY%CG_off", "consumerGroup": "CG_off"}, None),
    ]
    for changes, expected in answers:
        assert assigned(g1, **changes) == expected, changes


def test_members_share_by_the_order_of_their_names(g1: Asker) -> None:
    join(g1, "c3", "c1", "c2", "c1")
    for strategy, expected in (("AVG", [[0, 1], [2], [3]]), ("AVG_BY_CIRCLE", [[0, 3], [1], [2]])):
        assert [assigned(g1, strategyName=strategy, clientId=name) for name in ("c1", "c2", "c3")] == expected


NUMBERS = st.integers(1, 40)


def averagely_by_formula(queues: int, members: int, place: int) -> list[int]:
    rest = queues % members
    is_larger = rest > 0 and place < rest
    share = 1 if queues <= members else queues // members + is_larger
    begin = place * share if is_larger else place * share + rest
    return [(begin + number) % queues for number in range(min(share, queues - begin))]


def by_circle_by_formula(queues: int, members: int, place: int) -> list[int]:
    return [number for number in range(place, queues) if number % members == place]


@given(NUMBERS, NUMBERS, st.data())
def test_a_share_is_what_a_broker_assigns(queues: int, members: int, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, members - 1))
    assert list(averagely(queues, members, place)) == averagely_by_formula(queues, members, place)
    assert list(by_circle(queues, members, place)) == by_circle_by_formula(queues, members, place)
