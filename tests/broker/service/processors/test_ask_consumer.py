"""Questions that a live consumer answers: handed on to it, and back."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from broker.service.consumers.client_calls import ClientCalls
from broker_harness import connected, service_of, serving
from heartbeats import consumer, heartbeat, subscription
from protocol.codes import RequestCode, ResponseCode
from protocol.command import ext_fields_of
from protocol.message import decode_message
from storage.store.message_store import MessageStore

pytestmark = pytest.mark.asyncio

HOT_0 = "7F00000100002A9F00000000000019B5"
"""A message of g1; the id ends in its physical offset."""


@pytest.fixture(scope="module")
def store(g1_store: Path) -> MessageStore:
    return MessageStore.open(g1_store)


async def test_a_message_is_given_to_the_member_that_is_named_and_how_it_fared_comes_back(store: MessageStore) -> None:
    async with (
        serving(service_of(store)) as server,
        connected(server.addresses[0]) as member,
        connected(server.addresses[0]) as admin,
    ):
        await member.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("TopicTest"))))
        fields = {"consumerGroup": "G", "clientId": "c1", "msgId": HOT_0, "topic": "TopicTest"}
        admin.send(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
        while (call := await member.push()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            pass
        assert ext_fields_of(call) == fields | {"brokerName": "broker-a"}
        assert decode_message(memoryview(call.body)).body == b"hot 0"
        member.reply(call, b'{"consumeResult":"CR_LATER"}', remark="told")
        answer = await admin.answer()
        assert (answer.code, answer.remark, answer.body) == (0, "told", b'{"consumeResult":"CR_LATER"}')


async def test_what_cannot_be_asked_is_refused_with_a_word(store: MessageStore) -> None:
    info, consume = RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY
    failed, lost = ResponseCode.SYSTEM_ERROR, "7F00000100002A9F00000000000FFFFF"
    service = replace(service_of(store), calls=ClientCalls(timeout_seconds=0.05))
    async with (
        serving(service) as server,
        connected(server.addresses[0]) as member,
        connected(server.addresses[0]) as admin,
    ):
        await member.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("TopicTest"))))
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
            assert (answer.remark or "").startswith(remark)


async def test_a_member_that_goes_while_it_is_asked_keeps_nobody_waiting(store: MessageStore) -> None:
    async with serving(service_of(store)) as server, connected(server.addresses[0]) as admin:
        async with connected(server.addresses[0]) as member:
            await member.ask(RequestCode.HEART_BEAT, body=heartbeat("c1", consumer("G", subscription("TopicTest"))))
            opaque = admin.send(RequestCode.GET_CONSUMER_RUNNING_INFO, {"consumerGroup": "G", "clientId": "c1"})
            while (await member.push()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
                pass
        # Not the ten seconds that a member may take.
        async with asyncio.timeout(60):
            answer = await admin.answer()
        assert (answer.opaque, answer.code) == (opaque, ResponseCode.CONSUME_MSG_TIMEOUT)
