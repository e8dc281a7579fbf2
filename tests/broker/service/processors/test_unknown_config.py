"""Configuration that cannot be read is not taken as empty: above all, no group's offset is answered as none or 0."""

from pathlib import Path

import pytest

from asking import Asker
from broker.web.api.messages import MessageQuestion, message
from broker.web.api.request_context import RequestContext
from broker.web.api.topics import TopicQuestion, topic
from broker_harness import connected, service_of, serving
from protocol.codes import RequestCode, ResponseCode
from protocol.command import ext_fields_of
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

TOPIC, GROUP = "Orders", "Billing"
COMMITTED = 3
OFFSETS = "consumerOffset.json"
DAMAGE = {"empty": 0, "without its end": -2}

QUERY = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
PROGRESS = {
    RequestCode.GET_CONSUME_STATS: {"consumerGroup": GROUP, "topic": TOPIC},
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: {"topic": TOPIC},
    RequestCode.QUERY_TOPICS_BY_CONSUMER: {"group": GROUP},
    RequestCode.GET_ALL_CONSUMER_OFFSET: {},
    RequestCode.GET_BROKER_CONSUME_STATS: {"isOrder": "false"},
    RequestCode.QUERY_CONSUME_TIME_SPAN: {"topic": TOPIC, "group": GROUP},
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer = StoreWriter(tmp_path / "store")
    for number in range(5):
        writer.append(TOPIC, b"%d" % number)
    writer.consumer_offsets[f"{TOPIC}@{GROUP}"] = {0: COMMITTED}
    writer.close()
    writer.write_config("subscriptionGroup.json", {"subscriptionGroupTable": {GROUP: {"groupName": GROUP}}})
    return writer.root


def damage(path: Path, how: str) -> bytes:
    whole = path.read_bytes()
    path.write_bytes(whole[: DAMAGE[how]])
    return whole


@pytest.mark.parametrize("how", DAMAGE)
def test_how_far_groups_have_come_is_an_error_and_no_zero_while_it_is_not_known(how: str, root: Path) -> None:
    whole = damage(root / "config" / OFFSETS, how)
    asker = Asker(root)
    for code, fields in PROGRESS.items():
        answer = asker.ask(code, fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR, code.name
        assert OFFSETS in (answer.remark or ""), code.name
    (root / "config" / OFFSETS).write_bytes(whole)
    asker.store.renew()
    assert [asker.ask(code, fields).code for code, fields in PROGRESS.items()] == [0] * len(PROGRESS)


@pytest.mark.asyncio
@pytest.mark.parametrize("how", DAMAGE)
async def test_nobody_is_answered_an_offset_that_is_not_known(how: str, root: Path) -> None:
    path = root / "config" / OFFSETS
    whole = damage(path, how)
    async with serving(service_of(MessageStore.open(root))) as server, connected(server.addresses[0]) as client:
        for zero in ({}, {"setZeroIfNotFound": "false"}, {"setZeroIfNotFound": "true"}):
            client.send(RequestCode.QUERY_CONSUMER_OFFSET, QUERY | zero)
        # Answers leave in the order of the requests: this one has overtaken none.
        assert (await client.ask(RequestCode.GET_MAX_OFFSET, QUERY)).code == 0
        assert (await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, {})).code == ResponseCode.SYSTEM_ERROR
        path.write_bytes(whole)
        server._service.store.renew()
        answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, QUERY)
        assert (answer.code, ext_fields_of(answer)["offset"]) == (0, str(COMMITTED))


def test_other_files_that_cannot_be_read_are_named_instead_of_answered_as_empty(root: Path) -> None:
    for name, asked in {
        "topics.json": {
            RequestCode.GET_ALL_TOPIC_CONFIG: {},
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: {},
            RequestCode.GET_ROUTEINFO_BY_TOPIC: {"topic": "Quiet"},
            RequestCode.GET_TOPIC_CONFIG: {"topic": "Quiet"},
        },
        "subscriptionGroup.json": {
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: {},
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: {"group": GROUP},
            RequestCode.GET_BROKER_CONSUME_STATS: {"isOrder": "false"},
        },
        "delayOffset.json": {RequestCode.GET_ALL_DELAY_OFFSET: {}},
    }.items():
        (root / "config" / name).write_bytes(b'{"topicConfigTable":{"Quiet"')
        asker = Asker(root)
        for code, fields in asked.items():
            answer = asker.ask(code, fields)
            assert (answer.code, name in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True), code
    # What else the store knows is served.
    assert asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}).code == 0
    assert asker.ask(RequestCode.GET_MAX_OFFSET, QUERY).ext_fields == {"offset": "5"}


def test_the_page_shows_what_is_known_and_says_why_groups_are_not(root: Path) -> None:
    damage(root / "config" / OFFSETS, "empty")
    asked = RequestContext(Asker(root).service)
    found = topic(asked, TopicQuestion(topic=TOPIC))
    assert [(queue.min_offset, queue.max_offset) for queue in found.queues] == [(0, 5), *[(0, 0)] * 3]
    assert (found.groups, OFFSETS in (found.groups_problem or "")) == ([], True)
    shown = message(asked, MessageQuestion(offset=0))
    assert (shown.topic, shown.groups, OFFSETS in (shown.groups_problem or "")) == (TOPIC, [], True)
