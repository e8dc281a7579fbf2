"""An account gets no message of a topic that it may not read, no matter under which topic the message is stored."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from acl_file import signed_fields, write_accounts
from asking import FakeConnection
from broker.security.accounts import watched_accounts
from broker.security.answer_rights import AnswerRights
from broker.security.guard import Guard
from broker_harness import RawClient, connected, service_of, serving, until
from draining import pull_of
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, Response, decode_command, encode_request
from protocol.frame import FrameDecoder
from storage.life.origins import Origins
from storage.store.message_store import MessageStore
from store_writer import StoreWriter
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


@dataclass
class Copies:
    """A store with a copy of a secret message and of an open one under each topic of the broker's own."""

    root: Path
    secret: dict[str, int]
    open: dict[str, int]


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Copies:
    writer = StoreWriter(tmp_path_factory.mktemp("copies") / "store")
    made = Copies(writer.root, {}, {})
    for queue_id, origin, places in ((0, "Open", made.open), (1, "Secret", made.secret)):
        for topic in COPIES:
            named = "RETRY_TOPIC" if topic.startswith("%") else "REAL_TOPIC"
            written = writer.append(
                topic,
                f"a body of {origin}".encode(),
                queue_id=queue_id,
                unique_key=f"KEY{origin}",
                tags="TagA",
                properties={named: origin, "colour": "red"},
            )
            places[topic] = written.physical_offset
        writer.append(origin, f"a body of {origin}".encode(), unique_key=f"KEY{origin}")
    writer.close()
    return made


@asynccontextmanager
async def guarded(copies: Copies, tmp_path: Path) -> AsyncIterator[RawClient]:
    acl = write_accounts(tmp_path / "plain_acl.yml", ACCOUNTS)
    service = service_of(await asyncio.to_thread(MessageStore.open, copies.root), acl=acl)
    async with serving(service) as server, connected(server.addresses[0]) as client:
        yield client


async def ask(client: RawClient, code: int, fields: dict[str, str], who: tuple[str, str], body: bytes = b"") -> Command:
    return await client.ask(code, signed_fields(fields, *who, body), body=body)


def requests_for(topic: str, queue_id: int, offset: int, origin: str) -> Iterator[tuple[int, dict[str, str]]]:
    yield RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(offset)}
    yield (
        RequestCode.QUERY_MESSAGE,
        {"topic": topic, "key": f"KEY{origin}", "maxNum": "8", "beginTimestamp": "0", "endTimestamp": "9" * 18},
    )
    yield RequestCode.PULL_MESSAGE, pull_of(topic, queue_id)
    yield RequestCode.LITE_PULL_MESSAGE, pull_of(topic, queue_id, subscription="colour = 'red'", expressionType="SQL92")


@pytest.mark.asyncio
@pytest.mark.parametrize("topic", COPIES)
async def test_a_copy_is_shown_to_whom_its_message_may_be_shown(copies: Copies, topic: str, tmp_path: Path) -> None:
    async with guarded(copies, tmp_path) as client:
        for code, fields in requests_for(topic, 0, copies.open[topic], "Open"):
            answer = await ask(client, code, fields, READER)
            assert (answer.code, b"a body of Open" in bytes(answer.body)) == (0, True), (code, answer.remark)
        for code, fields in requests_for(topic, 1, copies.secret[topic], "Secret"):
            answer = await ask(client, code, fields, READER)
            assert (answer.code, bytes(answer.body)) == (ResponseCode.NO_PERMISSION, b""), code
            assert "no permission to access" in (answer.remark or "")
            assert "Secret" not in (answer.remark or ""), "what the request does not name is not named"
            assert b"a body of Secret" in bytes((await ask(client, code, fields, OWNER)).body), code


@pytest.mark.asyncio
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


@pytest.mark.asyncio
async def test_what_a_consumer_says_of_its_queues_needs_a_right_to_their_topics(copies: Copies, tmp_path: Path) -> None:
    acl = write_accounts(tmp_path / "plain_acl.yml", ACCOUNTS)
    service = service_of(await asyncio.to_thread(MessageStore.open, copies.root), acl=acl)
    said = b'{"jstack":"","mqTable":{{"brokerName":"b","queueId":0,"topic":"Secret"}:{"commitOffset":7}}}'
    body = heartbeat("c1", consumer("G", subscription("Open", "*")))
    async with serving(service) as server, connected(server.addresses[0]) as client:
        assert (await ask(client, RequestCode.HEART_BEAT, {}, OWNER, body)).code == 0
        for who, code, text in ((READER, ResponseCode.NO_PERMISSION, b""), (OWNER, 0, said)):
            asked = signed_fields({"consumerGroup": "G", "clientId": "c1", "jstackEnable": "false"}, *who)
            client.send(RequestCode.GET_CONSUMER_RUNNING_INFO, asked)
            call = await client.push()
            while call.code != RequestCode.GET_CONSUMER_RUNNING_INFO:
                call = await client.push()
            client.reply(call, said)
            answer = await client.answer()
            assert (answer.code, bytes(answer.body)) == (code, text)


@pytest.mark.asyncio
async def test_who_may_not_read_a_message_has_no_consumer_be_given_it(copies: Copies, tmp_path: Path) -> None:
    is_admin = "\n    admin: true\n    defaultTopicPerm"
    accounts = write_accounts(tmp_path / "plain_acl.yml", ACCOUNTS.replace("\n    defaultTopicPerm", is_admin))
    path = tmp_path / "audit.jsonl"
    service = service_of(await asyncio.to_thread(MessageStore.open, copies.root), acl=accounts, audit_log=path)
    body = heartbeat("c1", consumer("G", subscription("Open", "*")))
    async with serving(service) as server, connected(server.addresses[0]) as client:
        assert (await ask(client, RequestCode.HEART_BEAT, {}, READER, body)).code == 0
        for who, offset, code in (
            (READER, copies.secret["%RETRY%G"], ResponseCode.NO_PERMISSION),
            (OWNER, copies.secret["%RETRY%G"], 0),
            (READER, copies.open["%RETRY%G"], 0),
        ):
            fields = {"consumerGroup": "G", "clientId": "c1", "msgId": f"7F00000100002A9F{offset:016X}"}
            client.send(RequestCode.CONSUME_MESSAGE_DIRECTLY, signed_fields(fields, *who))
            if not code:
                call = await client.push()
                while call.code != RequestCode.CONSUME_MESSAGE_DIRECTLY:
                    call = await client.push()
                client.reply(call, b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":1}')
            answer = await client.answer()
            assert answer.code == code, answer.remark
        assert not [call for call in client.pushed if call.code == RequestCode.CONSUME_MESSAGE_DIRECTLY], (
            "nobody was given the message"
        )
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["result"] for line in lines] == ["NO_PERMISSION", "SUCCESS", "SUCCESS"]
    assert not any(line["offsets"] for line in lines), "the answer is how it fared, and no record"


@pytest.mark.asyncio
async def test_an_account_that_is_gone_when_its_answer_is_made_is_shown_nothing(copies: Copies, tmp_path: Path) -> None:
    store = await asyncio.to_thread(MessageStore.open, copies.root)
    guard = Guard(watched_accounts(write_accounts(tmp_path / "plain_acl.yml", ACCOUNTS)))
    rights = AnswerRights(guard, lambda _offset: None, Origins(store))
    record = bytes(store.record_at(copies.open["%DLQ%G"]) or b"")
    for name, code in ((READER[0], 0), ("nobody-key", ResponseCode.NO_PERMISSION), ("", ResponseCode.NO_PERMISSION)):
        (frame,) = FrameDecoder().feed(
            encode_request(
                RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "0"} | ({"AccessKey": name} if name else {}), opaque=1
            )
        )
        answer = rights.check(decode_command(frame), FakeConnection(), Response(body=record))
        assert (answer.code, bool(answer.body)) == (code, not code), name


def test_the_page_shows_a_copy_to_whom_its_message_may_be_shown(copies: Copies, tmp_path: Path) -> None:
    api = ApiOf(copies.root, write_accounts(tmp_path / "plain_acl.yml", ACCOUNTS))
    reader, owner = keys(*READER), keys(*OWNER)

    def count(path: str, headers: dict[str, str], member: str, **question: Any) -> Any:
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
