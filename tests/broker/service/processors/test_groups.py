"""Consumer groups: members, configuration, offsets, queues that are assigned, and queues that cannot be listed."""

import asyncio
import contextlib
import errno
import json
import os
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asking import Asker, FakeConnection
from broker.service.consumers.client_calls import ClientCalls
from broker.service.consumers.queue_allocation import averagely, by_circle
from broker_harness import connected, service_of, serving
from draining import pull_of
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode, ResponseCode
from protocol.command import ext_fields_of
from protocol.message import decode_message
from storage.store.message_store import MessageStore
from store_writer import StoreWriter, appended, closed_store


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


MESSAGES = 5
TOPIC, GROUP, COMMITTED = "Orders", "Billing", 3
UNCONFIGURED = "Archived"
"""A topic that has queues, and no entry in topics.json."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    writer = StoreWriter(tmp_path / "store")
    for number in range(MESSAGES):
        writer.append(TOPIC, b"%d" % number)
        writer.append(UNCONFIGURED, b"%d" % number)
    writer.topic_attributes.pop(UNCONFIGURED)
    writer.close()
    return writer.root


def refusing(number, *names):
    """Listing a directory of that name, or one of the queues in it, fails with this error of the operating system."""

    @contextlib.contextmanager
    def hide(root, monkeypatch):
        listed = os.scandir

        def scandir(path: "str | os.PathLike[str]") -> object:
            if Path(path).name in names:
                raise OSError(number, os.strerror(number), os.fspath(path))
            return listed(path)

        with monkeypatch.context() as patched:
            patched.setattr(os, "scandir", scandir)
            yield os.strerror(number)

    return hide


def no_directory(*names):
    """The directories of that name are replaced by a file, or by a link whose target is not mounted."""

    @contextlib.contextmanager
    def hide(root, _):
        (root / "consumequeue" / "Another").mkdir(exist_ok=True)  # so that not all queues are missed
        places = [path for path in (root / "consumequeue").rglob("*") if path.is_dir() and path.name in names]
        for number, path in enumerate(places):
            path.rename(root / f"aside{number}")
            if number:
                path.symlink_to(root / "not mounted")
            else:
                path.write_bytes(b"no directory")
        yield "is no directory"
        for number, path in enumerate(places):
            path.unlink()
            (root / f"aside{number}").rename(path)

    return hide


WAYS = {
    "no descriptor left": refusing(errno.EMFILE, "consumequeue"),
    "may not be read": refusing(errno.EACCES, "consumequeue"),
    "a topic that may not be read": refusing(errno.EACCES, TOPIC, UNCONFIGURED),
    "a queue that may not be read": refusing(errno.EACCES, "0"),
    "a topic that may not be told from a file": no_directory(TOPIC, UNCONFIGURED),
}


def fields(topic: str) -> dict[str, str]:
    more = {"timestamp": "1", "offset": "0", "index": "0", "count": "1", "group": "G", "boundaryType": "LOWER"}
    return pull_of(topic, 0, 3) | more


PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
OFFSETS = (
    RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP,
    RequestCode.GET_EARLIEST_MSG_STORETIME, RequestCode.GET_TOPIC_STATS_INFO, RequestCode.QUERY_CONSUME_QUEUE,
    RequestCode.QUERY_CONSUME_TIME_SPAN
)  # fmt: skip


@pytest.mark.parametrize("topic", [TOPIC, UNCONFIGURED])
@pytest.mark.parametrize("hide", WAYS.values(), ids=WAYS)
def test_queues_that_cannot_be_listed_are_not_answered_as_empty(hide, topic, root, monkeypatch) -> None:
    with hide(root, monkeypatch) as reason:
        asker = Asker(root)
        for code in PULLS:
            answer = asker.ask(code, fields(topic))
            assert answer.code == ResponseCode.SYSTEM_BUSY
            assert reason in answer.remark
            assert not answer.ext_fields
        for code in OFFSETS:
            answer = asker.ask(code, fields(topic))
            assert answer.code == ResponseCode.SYSTEM_ERROR, code.name
            assert reason in answer.remark, code.name
    asker.store.renew()
    for code in PULLS:
        answer = asker.ask(code, fields(topic))
        assert (answer.code, answer.ext_fields and answer.ext_fields["nextBeginOffset"]) == (0, str(MESSAGES))
    assert asker.ask(RequestCode.GET_MAX_OFFSET, fields(topic)).ext_fields["offset"] == str(MESSAGES)


@pytest.mark.parametrize("number", [0, 1, -1])
def test_messages_of_a_segment_that_cannot_be_read_are_not_passed_over(number, tmp_path, monkeypatch) -> None:
    writer = StoreWriter(tmp_path / "store", segment_size=512)
    written = [writer.append(TOPIC, b"%d" % each) for each in range(20)]
    writer.close()
    path, opened = sorted((writer.root / "commitlog").iterdir())[number], os.open
    start = int(path.name)
    before = [each for each in range(20) if written[each].physical_offset < start]
    lost = [each for each in range(20) if start <= written[each].physical_offset < start + 512]

    def refuse(name: "str | os.PathLike[str]", *arguments: int, **more: int) -> int:
        if Path(name) == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(name))
        return opened(name, *arguments, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        asker = Asker(writer.root)
        if before:
            answer = asker.ask(RequestCode.PULL_MESSAGE, fields(TOPIC) | {"queueOffset": "0"})
            assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (0, str(lost[0]))
        for offset in lost[:2]:
            answer = asker.ask(RequestCode.PULL_MESSAGE, fields(TOPIC) | {"queueOffset": str(offset)})
            if number != -1 or offset != lost[0]:  # a queue may well end there: that pull waits
                assert answer.code == ResponseCode.SYSTEM_BUSY
                assert str(path) in answer.remark
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET, RequestCode.GET_TOPIC_STATS_INFO):
            assert asker.ask(code, fields(TOPIC)).code == (0 if number == 1 else ResponseCode.SYSTEM_ERROR)
        asker.store.renew()
    asker.store.renew()
    answer = asker.ask(RequestCode.PULL_MESSAGE, fields(TOPIC) | {"queueOffset": str(lost[0])})
    assert answer.code == ResponseCode.SUCCESS
    assert asker.ask(RequestCode.GET_MAX_OFFSET, fields(TOPIC)).ext_fields["offset"] == "20"


OFFSETS_FILE = "consumerOffset.json"
DAMAGE = {"empty": 0, "without its end": -2}

QUERY = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
BOTH = {"consumerGroup": GROUP, "topic": TOPIC, "group": GROUP}
WITH_BOTH = ("GET_CONSUME_STATS", "QUERY_TOPIC_CONSUME_BY_WHO", "QUERY_TOPICS_BY_CONSUMER", "QUERY_CONSUME_TIME_SPAN")
PROGRESS = {RequestCode[name]: BOTH for name in WITH_BOTH} | {RequestCode.GET_ALL_CONSUMER_OFFSET: {}}
PROGRESS[RequestCode.GET_BROKER_CONSUME_STATS] = {"isOrder": "false"}


@pytest.fixture
def consumed(root: Path) -> Path:
    """The store, of which a group has consumed."""
    config = {"consumerOffset.json": {"offsetTable": {f"{TOPIC}@{GROUP}": {0: COMMITTED}}}}
    config["subscriptionGroup.json"] = {"subscriptionGroupTable": {GROUP: {"groupName": GROUP}}}
    for name, table in config.items():
        (root / "config" / name).write_text(json.dumps(table))
    return root


def damage(path: Path, how: str) -> bytes:
    whole = path.read_bytes()
    path.write_bytes(whole[: DAMAGE[how]])
    return whole


@pytest.mark.parametrize("how", DAMAGE)
def test_how_far_groups_have_come_is_an_error_and_no_zero_while_it_is_not_known(how: str, consumed: Path) -> None:
    whole = damage(consumed / "config" / OFFSETS_FILE, how)
    asker = Asker(consumed)
    for code, fields in PROGRESS.items():
        answer = asker.ask(code, fields)
        assert answer.code == ResponseCode.SYSTEM_ERROR, code.name
        assert OFFSETS_FILE in answer.remark, code.name
    (consumed / "config" / OFFSETS_FILE).write_bytes(whole)
    asker.store.renew()
    assert [asker.ask(code, fields).code for code, fields in PROGRESS.items()] == [0] * len(PROGRESS)


@pytest.mark.parametrize("how", DAMAGE)
async def test_nobody_is_answered_an_offset_that_is_not_known(how: str, consumed: Path) -> None:
    path = consumed / "config" / OFFSETS_FILE
    whole = damage(path, how)
    async with serving(service_of(MessageStore.open(consumed))) as server, connected(server.addresses[0]) as client:
        for zero in ({}, {"setZeroIfNotFound": "false"}, {"setZeroIfNotFound": "true"}):
            client.send(RequestCode.QUERY_CONSUMER_OFFSET, QUERY | zero)
        # Answers leave in the order of the requests: this one has overtaken none.
        assert (await client.ask(RequestCode.GET_MAX_OFFSET, QUERY)).code == 0
        assert (await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, {})).code == ResponseCode.SYSTEM_ERROR
        path.write_bytes(whole)
        server._service.store.renew()
        answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, QUERY)
        assert (answer.code, ext_fields_of(answer)["offset"]) == (0, str(COMMITTED))


def test_other_files_that_cannot_be_read_are_named_instead_of_answered_as_empty(consumed: Path) -> None:
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
        (consumed / "config" / name).write_bytes(b'{"topicConfigTable":{"Quiet"')
        asker = Asker(consumed)
        for code, fields in asked.items():
            answer = asker.ask(code, fields)
            assert (answer.code, name in answer.remark) == (ResponseCode.SYSTEM_ERROR, True), code
    # What else the store knows is served.
    assert asker.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": TOPIC}).code == 0
    assert asker.ask(RequestCode.GET_MAX_OFFSET, QUERY).ext_fields == {"offset": "5"}
