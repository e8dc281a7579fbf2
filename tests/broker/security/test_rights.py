"""Accounts get no message and name no topic that they may not read; each look at messages leaves a line."""

import asyncio
import json
import logging
import os
import shutil
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acl_file import READER as KEY
from acl_file import READER_SECRET, signed_fields, signed_request, write_accounts
from asking import FakeConnection
from broker.security.accounts import Account, Permission, watched_accounts
from broker.security.answer_rights import AnswerRights
from broker.security.audit_log import AuditError, AuditLog, Look, now
from broker.security.guard import Guard
from broker.security.topic_rights import may_read, permits_topic
from broker_harness import connected, service_of, serving, until
from draining import pull_of
from golden_store import CASES, unpack
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response, decode_command, encode_request
from protocol.frame import FrameDecoder
from protocol.message import decode_message, decode_messages
from protocol.system_topics import RETRY_PREFIX
from storage.files.waiting import finish
from storage.life.origins import Origins
from storage.store.message_store import MessageStore
from store_writer import StoreWriter, appended, closed_store
from web_questions import ApiOf, keys

READER, OWNER = ("reader-key", "reader-secret"), ("owner-key", "owner-secret")
ACCOUNTS = f"""accounts:
  - accessKey: {READER[0]}
    secretKey: {READER[1]}
    defaultTopicPerm: SUB
    defaultGroupPerm: SUB
    topicPerms:
      - Secret=DENY
  - accessKey: {OWNER[0]}
    secretKey: {OWNER[1]}
    defaultTopicPerm: SUB
    defaultGroupPerm: SUB
"""
"""A reader of everything but one topic, and one of that too."""

NOTE = "messages that this account may not read are left out"

COPIES = ("%RETRY%G", "%DLQ%G", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC")
"""Topics under which a broker keeps copies of messages of others."""


class Copies(NamedTuple):
    """A store with a copy of a secret message and of an open one under each topic of the broker's own."""

    root: Path
    secret: dict[str, int]
    open: dict[str, int]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    writer = StoreWriter(tmp_path_factory.mktemp("copies") / "store")
    made = Copies(writer.root, {}, {})
    for queue_id, origin, places in ((0, "Open", made.open), (1, "Secret", made.secret)):
        body, key = f"a body of {origin}".encode(), f"KEY{origin}"
        for topic in COPIES:
            more = {"RETRY_TOPIC" if topic.startswith("%") else "REAL_TOPIC": origin, "colour": "red"}
            written = writer.append(topic, body, queue_id=queue_id, unique_key=key, tags="TagA", properties=more)
            places[topic] = written.physical_offset
        writer.append(origin, body, unique_key=key)
    writer.close()
    return made


@asynccontextmanager
async def guarded(root, tmp_path, accounts=ACCOUNTS, **options):
    acl = write_accounts(tmp_path / "plain_acl.yml", accounts)
    service = service_of(await asyncio.to_thread(MessageStore.open, root), acl=acl, **options)
    async with serving(service) as server, connected(server.addresses[0]) as client:
        yield client


async def ask(client, code, fields, who, body=b""):
    return await client.ask(code, signed_fields(dict(fields), *who, body), body=body)


def requests_for(topic, queue_id, offset, origin):
    yield RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)}
    times = {"beginTimestamp": "0", "endTimestamp": "9" * 18}
    yield RequestCode.QUERY_MESSAGE, {"topic": topic, "key": f"KEY{origin}", "maxNum": "8", **times}
    yield RequestCode.PULL_MESSAGE, pull_of(topic, queue_id)
    yield RequestCode.LITE_PULL_MESSAGE, pull_of(topic, queue_id, subscription="colour = 'red'", expressionType="SQL92")


async def test_a_copy_is_shown_to_whom_its_message_may_be_shown(copies: Copies, tmp_path: Path) -> None:
    async with guarded(copies.root, tmp_path) as client:
        for topic in COPIES:
            for code, fields in requests_for(topic, 0, copies.open[topic], "Open"):
                answer = await ask(client, code, fields, READER)
                assert (answer.code, b"a body of Open" in bytes(answer.body)) == (0, True), (code, answer.remark)
            for code, fields in requests_for(topic, 1, copies.secret[topic], "Secret"):
                answer = await ask(client, code, fields, READER)
                assert (answer.code, bytes(answer.body)) == (ResponseCode.NO_PERMISSION, b""), code
                assert "no permission to access" in answer.remark
                assert "Secret" not in answer.remark, "what the request does not name is not named"
                assert b"a body of Secret" in bytes((await ask(client, code, fields, OWNER)).body), code


async def test_a_pull_that_waited_is_checked_when_its_message_comes(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path / "store")
    writer.append("%RETRY%G", b"first", properties={"RETRY_TOPIC": "Open"})
    writer.flush()
    acl = write_accounts(tmp_path / "plain_acl.yml", ACCOUNTS)
    store = await asyncio.to_thread(MessageStore.open, writer.root)
    async with serving(service_of(store, acl=acl)) as server, connected(server.addresses[0]) as client:
        waiting = pull_of("%RETRY%G", 0, 1, sysFlag="6", suspendTimeoutMillis="15000")
        opaques = [client.send(RequestCode.PULL_MESSAGE, signed_fields(waiting, *who)) for who in (READER, OWNER)]
        await until(lambda: len(server._service.polls) == 2)
        writer.append("%RETRY%G", b"a body of Secret", properties={"RETRY_TOPIC": "Secret"})
        writer.flush()
        await asyncio.to_thread(store.refresh)
        answers = {answer.opaque: answer for answer in [await client.answer(), await client.answer()]}
        assert [answers[opaque].code for opaque in opaques] == [ResponseCode.NO_PERMISSION, 0]
        assert b"a body of Secret" in bytes(answers[opaques[1]].body)
    writer.close()


async def called(client, code):
    while (call := await client.push()).code != code:
        pass
    return call


async def test_what_a_consumer_says_of_its_queues_needs_a_right_to_their_topics(copies: Copies, tmp_path: Path) -> None:
    said = b'{"jstack":"","mqTable":{{"brokerName":"b","queueId":0,"topic":"Secret"}:{"commitOffset":7}}}'
    body = heartbeat("c1", consumer("G", subscription("Open", "*")))
    async with guarded(copies.root, tmp_path) as client:
        assert (await ask(client, RequestCode.HEART_BEAT, {}, OWNER, body)).code == 0
        for who, code, text in ((READER, ResponseCode.NO_PERMISSION, b""), (OWNER, 0, said)):
            asked = signed_fields({"consumerGroup": "G", "clientId": "c1", "jstackEnable": "false"}, *who)
            client.send(RequestCode.GET_CONSUMER_RUNNING_INFO, asked)
            client.reply(await called(client, RequestCode.GET_CONSUMER_RUNNING_INFO), said)
            answer = await client.answer()
            assert (answer.code, bytes(answer.body)) == (code, text)


async def test_who_may_not_read_a_message_has_no_consumer_be_given_it(copies: Copies, tmp_path: Path) -> None:
    accounts = ACCOUNTS.replace("\n    defaultTopicPerm", "\n    admin: true\n    defaultTopicPerm")
    path, consume = tmp_path / "audit.jsonl", RequestCode.CONSUME_MESSAGE_DIRECTLY
    body = heartbeat("c1", consumer("G", subscription("Open", "*")))
    async with guarded(copies.root, tmp_path, accounts, audit_log=path) as client:
        assert (await ask(client, RequestCode.HEART_BEAT, {}, READER, body)).code == 0
        secret, plain = copies.secret["%RETRY%G"], copies.open["%RETRY%G"]
        for who, offset, code in ((READER, secret, ResponseCode.NO_PERMISSION), (OWNER, secret, 0), (READER, plain, 0)):
            fields = {"consumerGroup": "G", "clientId": "c1", "msgId": f"7F00000100002A9F{offset:016X}"}
            client.send(consume, signed_fields(fields, *who))
            if not code:
                done = b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":1}'
                client.reply(await called(client, consume), done)
            answer = await client.answer()
            assert answer.code == code, answer.remark
        assert not [call for call in client.pushed if call.code == consume], "nobody was given the message"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["result"] for line in lines] == ["NO_PERMISSION", "SUCCESS", "SUCCESS"]
    assert not any(line["offsets"] for line in lines), "the answer is how it fared, and no record"


def test_the_page_shows_a_copy_to_whom_its_message_may_be_shown(copies: Copies, tmp_path: Path) -> None:
    api = ApiOf(copies.root, write_accounts(tmp_path / "plain_acl.yml", ACCOUNTS))
    reader, owner = keys(*READER), keys(*OWNER)

    def count(path, headers, member, **question):
        return api.get(path, headers=headers, **question)[member]

    for topic in COPIES:
        for path in ("/message", "/message/body"):
            assert api.ask(path, offset=copies.secret[topic], headers=reader).status == 403, (path, topic)
            assert api.ask(path, offset=copies.secret[topic], headers=owner).status == 200
            assert api.ask(path, offset=copies.open[topic], headers=reader).status == 200
        queue = {"topic": topic, "queueId": 1, "queueOffset": 0}
        assert api.ask("/queue/message", headers=reader, **queue).status == 403
        browsed = api.get("/messages", topic=topic, headers=reader)
        assert ([line["topic"] for line in browsed["messages"]], browsed["leftOut"]) == ([topic], 1)
        assert count("/messages", owner, "leftOut", topic=topic) == 0
        assert count("/filter", reader, "passed", topic=topic, sql="colour = 'red'") == 1
        assert count("/filter", owner, "passed", topic=topic, sql="colour = 'red'") == 2
        for text, headers, found in (("a body", reader, 1), ("a body", owner, 2), ("of Secret", reader, 0)):
            searched = api.get("/search", headers=headers, topic=topic, contains=text)
            assert (len(searched["messages"]), searched["notes"][-1:]) == (found, [NOTE])
            assert f", {found} found" in searched["sentence"], "no count says what is in messages that are left out"
        assert not count("/find", reader, "messages", text="KEYSecret", topic=topic)
        assert count("/find", owner, "messages", text="KEYSecret", topic=topic)
    life = api.get("/message/life", uniqueKey="KEYSecret", headers=reader)
    assert (life["events"], life["leftOut"] > 0) == ([], True)
    assert api.get("/message/life", uniqueKey="KEYSecret", headers=owner)["events"]


# ---------------------------------------------------------------------- which topics of copies an account may name

POP = CASES / "A1-A2-B1-pop"
RETRY, DEAD = "%RETRY%g1_orders", "%DLQ%g1"
SECRET = "pass12345678"
CONSUMER, OTHER = ("usergood", SECRET), ("usertest", SECRET)
"""An account with exactly the rights of the consumer g1 of orders; and one to which orders and payments are denied."""

POPPED = {315: "orders", 634: "orders", 3518: RETRY, 3890: RETRY, 9266: RETRY, 10088: DEAD}
"""The messages of orders that g1 failed to consume and their copies, by physical offset: the topic of each."""

ANY_TIME = {"beginTimestamp": "0", "endTimestamp": "9" * 18}


@pytest.fixture(scope="module")
def popped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("store", tmp_path_factory.mktemp("pop"), archives=POP)


async def assert_for_the_consumer_alone(client, code, fields, offsets) -> None:
    answer = await ask(client, code, fields, CONSUMER)
    assert answer.code == 0, answer.remark
    assert [message.physical_offset for message in decode_messages(bytes(answer.body))] == offsets
    refused = await ask(client, code, fields, OTHER)
    assert (refused.code, bytes(refused.body)) == (ResponseCode.NO_PERMISSION, b"")
    assert "topic" in fields or "orders" not in refused.remark


async def test_the_consumer_of_popped_messages_gets_all_its_copies_and_who_lacks_the_right_gets_none(
    popped, tmp_path
) -> None:
    async with guarded(popped, tmp_path, (POP / "plain_acl.yml").read_text()) as client:
        for offset, topic in POPPED.items():
            for named in ({}, {"topic": "orders"}, {"topic": topic}):
                fields = {"offset": str(offset)} | named
                await assert_for_the_consumer_alone(client, RequestCode.VIEW_MESSAGE_BY_ID, fields, [offset])
        for topic, key, copies, wanted in (
            ("orders", "k-given-up", "true", [634, 3890, 9266, 10088]),
            ("orders", "k-given-up", "", [634]),
            (RETRY, "k-given-up", "", [3890, 9266]),
            (DEAD, "k-given-up", "", [10088]),
            (RETRY, "k-retried", "", [3518]),
        ):
            fields = {"topic": topic, "key": key, "maxNum": "32", "rocketlensCopies": copies} | ANY_TIME
            await assert_for_the_consumer_alone(client, RequestCode.QUERY_MESSAGE, fields, wanted)
        for topic, wanted in ((RETRY, [3518, 3890, 9266]), (DEAD, [10088])):
            fields = pull_of(topic, consumerGroup="g1")
            await assert_for_the_consumer_alone(client, RequestCode.PULL_MESSAGE, fields, wanted)


@pytest.mark.parametrize(
    ("topic", "rights", "is_permitted"),
    [
        ("%RETRY%g", {"%RETRY%g": "SUB"}, True),
        ("%DLQ%g", {"%RETRY%g": "SUB"}, True),
        ("%DLQ%g", {"%RETRY%g": "SUB", "%DLQ%g": "DENY"}, False),
        ("%DLQ%g", {"%RETRY%h": "SUB"}, False),
        ("%RETRY%g_T", {"%RETRY%g": "SUB", "T": "SUB"}, True),
        ("%RETRY%g_T", {"%RETRY%g": "SUB"}, False),
        ("%RETRY%g_T", {"T": "SUB"}, False),
        ("%RETRY%g_T", {"%RETRY%g_T": "SUB"}, True),
        ("%RETRY%g+T", {"%RETRY%g": "SUB", "T": "SUB"}, True),
        ("%RETRY%unheard+other", {"%RETRY%unheard": "SUB", "other": "SUB"}, True),
        ("%RETRY%unheard_T", {"%RETRY%unheard": "SUB", "T": "SUB"}, False),
        ("%RETRY%a_b_c", {"%RETRY%a": "SUB", "b_c": "SUB"}, True),
        ("%RETRY%a_b_c", {"%RETRY%a_b": "SUB", "c": "SUB"}, True),
        ("%RETRY%a_b_c", {"%RETRY%a_b": "SUB", "b_c": "SUB"}, False),
    ],
)
def test_the_name_of_a_topic_of_copies_is_permitted_by_its_group_and_its_topic(
    known_store, topic, rights, is_permitted
) -> None:
    assert permits_topic(account_of(rights), topic, [Origins(known_store)]) is is_permitted


NAMES = ("T", "b_c", "c", "g", "a", "a_b", "unheard", "other")


@given(
    st.dictionaries(
        st.sampled_from([*NAMES, *(f"{RETRY_PREFIX}{name}" for name in NAMES)]), st.sampled_from(["SUB", "DENY"])
    ),
    st.sampled_from(["SUB", "DENY"]),
)
def test_whoever_may_read_a_record_may_name_its_topic(known_store, rights, defaults) -> None:
    """So that a consumer with exactly its rights is never refused what it would be given."""
    account, known = account_of(rights | {"defaults": defaults}), Origins(known_store)
    for topic in known_store.queues.topics():
        queue = known_store.queues.queue(topic, 0)
        for entry in queue.entries(0, 10):
            message = decode_message(known_store.record_at(entry.physical_offset) or b"")
            if may_read(account, message, known):
                assert permits_topic(account, topic, [known])
                origin = known.of(message)
                assert origin.topic is None or account.permits(origin.topic, Permission.SUB)


@pytest.fixture(scope="module")
def known_store(tmp_path_factory: pytest.TempPathFactory) -> MessageStore:
    """A store that knows three groups, with a message in topics of each kind of copies, of known groups and others."""
    writer = StoreWriter(tmp_path_factory.mktemp("known") / "store")
    for topic in ("T", "b_c", "c"):
        writer.append(topic, b"x")
    for topic in ("%RETRY%g", "%DLQ%g"):
        writer.append(topic, b"x", properties={"RETRY_TOPIC": "T"})
    for name in ("unheard_T", "unheard+T", "a_b_c", "g_T", "g+T"):
        writer.append(f"{RETRY_PREFIX}{name}", b"x")
    writer.close()
    config = writer.root / "config"
    config.mkdir(exist_ok=True)
    groups = {name: {"groupName": name} for name in ("g", "a", "a_b")}
    (config / "subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups}))
    return MessageStore.open(writer.root)


def account_of(rights) -> Account:
    words = {name: Permission.NONE if word == "DENY" else Permission[word] for name, word in rights.items()}
    default = words.pop("defaults", Permission.NONE)
    return Account("account-key", b"", False, lambda _host: False, default, default, words)


@pytest.fixture(scope="module")
def known(known_store: MessageStore) -> Origins:
    return Origins(known_store)


async def test_an_account_that_is_gone_when_its_answer_is_made_is_shown_nothing(copies: Copies, tmp_path: Path) -> None:
    store = await asyncio.to_thread(MessageStore.open, copies.root)
    guard = Guard(watched_accounts(write_accounts(tmp_path / "plain_acl.yml", ACCOUNTS)))
    rights = AnswerRights(guard, lambda _offset: None, Origins(store))
    record = bytes(store.record_at(copies.open["%DLQ%G"]) or b"")
    for name, code in ((READER[0], 0), ("nobody-key", ResponseCode.NO_PERMISSION), ("", ResponseCode.NO_PERMISSION)):
        fields = {"offset": "0"} | ({"AccessKey": name} if name else {})
        (frame,) = FrameDecoder().feed(encode_request(RequestCode.VIEW_MESSAGE_BY_ID, fields, opaque=1))
        answer = rights.check(decode_command(frame), FakeConnection(), Response(body=record))
        assert (answer.code, bool(answer.body)) == (code, not code), name


def test_a_port_admits_what_the_account_may_ask_any_store_that_is_served(popped: Path, tmp_path: Path) -> None:
    """A route names the queues of all stores, so that a topic of one of them may be asked for at every port."""
    writer = closed_store(tmp_path / "second", appended("other"))
    stores = [MessageStore.open(root) for root in (writer.root, popped)]
    watched = watched_accounts(write_accounts(tmp_path / "plain_acl.yml", (POP / "plain_acl.yml").read_text()))

    def route(guard: Guard, who: tuple[str, str]) -> object:
        (frame,) = FrameDecoder().feed(signed_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": RETRY}, *who))
        return finish(guard.admit(decode_command(frame), FakeConnection()))

    guard = Guard(watched, map(Origins, stores))
    assert isinstance(route(guard, CONSUMER), Account)
    assert isinstance(route(guard, OTHER), Response)
    assert isinstance(route(Guard(watched, [Origins(stores[0])]), CONSUMER), Response)


@pytest.mark.parametrize("topic", ["%RETRY%g_T", "%RETRY%g+T", "%RETRY%unheard_T", "%RETRY%unheard+T"])
def test_an_account_to_which_a_topic_is_denied_may_not_name_copies_that_may_be_of_it(known, topic) -> None:
    everything = {"defaults": "SUB"}
    assert permits_topic(account_of(everything), topic, [known])
    assert not permits_topic(account_of(everything | {"T": "DENY"}), topic, [known])
    assert permits_topic(account_of(everything | {"T": "DENY"}), "%RETRY%fresh_T", [known]), "the store has none such"


QUERY = {"topic": "TopicTest", "key": "hotkey", "maxNum": "3", "beginTimestamp": "0", "endTimestamp": "9" * 18}
PULL = pull_of("TopicTest", 1, consumerGroup="CG_TAG", maxMsgNums=2)


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def a_look(number: int = 0) -> Look:
    asked = {"offset": str(number)}
    return Look(now(), "broker-a", None, "127.0.0.1:1", "VIEW_MESSAGE_BY_ID", "SUCCESS", asked, 1, [7])


async def test_the_port_writes_who_looked_at_which_messages_from_where(g1_store, tmp_path) -> None:
    acl, path = write_accounts(tmp_path / "plain_acl.yml"), tmp_path / "audit.jsonl"
    store = await asyncio.to_thread(MessageStore.open, g1_store)
    view, query, good = RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.QUERY_MESSAGE, (KEY, READER_SECRET)
    looks: list[tuple[RequestCode, dict[str, str], tuple[str, str], ResponseCode, str | None, int]] = [
        (view, {"offset": "0"}, good, ResponseCode.SUCCESS, KEY, 1),
        (query, QUERY, good, ResponseCode.SUCCESS, KEY, 3),
        (RequestCode.PULL_MESSAGE, PULL | {"consumerGroup": "readers"}, good, ResponseCode.SUCCESS, KEY, 2),
        (query, QUERY | {"key": "none"}, good, ResponseCode.QUERY_NOT_FOUND, KEY, 0),
        (view, {"offset": "0"}, (KEY, "a wrong secret"), ResponseCode.NO_PERMISSION, None, 0),
        (view, {"offset": "0"}, ("", ""), ResponseCode.NO_PERMISSION, None, 0),
    ]
    async with serving(service_of(store, acl=acl, audit_log=path)) as server, connected(server.addresses[0]) as client:
        assert server.lane is None
        answers = [await client.ask(code, signed_fields(fields, *who)) for code, fields, who, *_ in looks]
        silent = signed_fields({"topic": "TopicTest", "queueId": "0"}, *good)
        assert (await client.ask(RequestCode.GET_MAX_OFFSET, silent)).code == 0
        host = client.writer.get_extra_info("sockname")
    assert [answer.code for answer in answers] == [look[3] for look in looks]
    lines = lines_of(path)
    assert {line["client"] for line in lines} == {f"{host[0]}:{host[1]}"}
    told = [(line["request"], line["result"], line.get("account"), line["messages"]) for line in lines]
    assert told == [(code.name, result.name, account, count) for code, _, _, result, account, count in looks]
    for line, answer in zip(lines[:3], answers[:3], strict=True):
        assert len(line["offsets"]) == line["messages"]
        for offset in line["offsets"]:
            record = store.record_at(offset)
            assert record is not None
            assert bytes(record) in bytes(answer.body)
    assert lines[1]["asked"]["key"] == "hotkey"
    assert (lines[2]["asked"]["queueId"], lines[2]["asked"]["consumerGroup"]) == ("1", "readers")
    assert READER_SECRET not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_what_cannot_be_written_down_is_not_shown(g1_store, tmp_path, monkeypatch, caplog) -> None:
    path = tmp_path / "audit.jsonl"
    store = await asyncio.to_thread(MessageStore.open, g1_store)
    async with serving(service_of(store, audit_log=path)) as server, connected(server.addresses[0]) as client:
        full = os.open("/dev/full", os.O_WRONLY)
        (audit_log,) = server._watched
        with monkeypatch.context() as patch:
            patch.setattr(audit_log, "_descriptor", full)
            for _ in range(2):
                answer = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"})
                assert (answer.code, bytes(answer.body)) == (ResponseCode.SYSTEM_BUSY, b"")
                assert "No space left on device" in answer.remark
            assert (await client.ask(RequestCode.GET_MAX_OFFSET, {"topic": "TopicTest", "queueId": "0"})).code == 0
        assert (await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"})).code == 0
        os.close(full)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 1
    assert str(path) in errors[0].getMessage()
    assert len(lines_of(path)) == 1


def test_a_line_that_fits_only_in_part_leaves_no_half_of_one(tmp_path, monkeypatch) -> None:
    log = AuditLog(tmp_path / "audit.jsonl")
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr("os.write", lambda descriptor, data: write(descriptor, data[:20]))
        with pytest.raises(AuditError, match="No space left"):
            log.write(a_look())
    log.write(a_look())
    log.close()
    assert json.loads((tmp_path / "audit.jsonl").read_bytes().splitlines()[1])["offsets"] == [7]


def test_a_file_that_was_rotated_away_is_made_anew(tmp_path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    log.write(a_look(1))
    shutil.move(path, tmp_path / "audit.1")
    log.write(a_look(2))
    log.refresh()
    log.refresh()
    log.write(a_look(3))
    path.unlink()
    log.refresh()
    log.write(a_look(4))
    log.close()
    assert [line["asked"]["offset"] for line in lines_of(tmp_path / "audit.1")] == ["1", "2"]
    assert [line["asked"]["offset"] for line in lines_of(path)] == ["4"]


def test_the_page_writes_who_looked_at_which_messages_from_where(g1_store, tmp_path) -> None:
    path = tmp_path / "audit.jsonl"
    audit_log = AuditLog(path)
    api = ApiOf(g1_store, write_accounts(tmp_path / "plain_acl.yml"), audit_log)
    reader = keys(KEY, READER_SECRET)
    browsed = api.get("/messages", topic="TopicTest", limit=3, headers=reader, peer="198.51.100.7")
    api.get("/message", offset=0, headers=reader)
    assert api.ask("/message/body", offset=0, headers=reader).status == 200
    assert api.ask("/messages", topic="TopicBatch", headers=reader).status == 403
    for keys_of_nobody in ({}, keys(KEY, "a wrong secret")):
        assert api.ask("/message", offset=0, headers=keys_of_nobody).status == 401
    assert api.ask("/topics").status == 401
    api.get("/topics", headers=reader)
    lines = lines_of(path)
    assert [(line["request"], line["result"], line["messages"]) for line in lines] == [
        ("GET /api/v1/messages", "SUCCESS", 3),
        ("GET /api/v1/message", "SUCCESS", 1),
        ("GET /api/v1/message/body", "SUCCESS", 1),
        ("GET /api/v1/messages", "FORBIDDEN", 0),
        ("GET /api/v1/message", "UNAUTHORIZED", 0),
        ("GET /api/v1/message", "UNAUTHORIZED", 0),
    ]
    assert lines[-1]["account"] is None
    assert "a wrong secret" not in path.read_text()
    assert lines[0]["offsets"] == [line["physicalOffset"] for line in browsed["messages"]]
    assert (lines[0]["account"], lines[0]["client"]) == (KEY, "198.51.100.7")
    assert lines[0]["asked"].items() >= {"topic": "TopicTest", "limit": 3}.items()
    audit_log._descriptor = os.open("/dev/full", os.O_WRONLY)
    refused = api.ask("/message", offset=0, headers=reader)
    assert refused.status == 503
    assert b"audit log" in refused.content


def test_every_path_that_shows_messages_is_written_down(g1_store) -> None:
    api = ApiOf(g1_store)
    silent = {endpoint.path for endpoint in api.api.endpoints if endpoint.shows is None}
    counted = {"/groups", "/dead-letters", "/light-topics"}  # how many, and how far groups are
    assert silent == {"/store", "/topics", "/topic", "/histogram", "/health"} | counted
