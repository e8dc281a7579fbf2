"""What the server asks a client, and whose answers count."""

import asyncio

import pytest

from asking import FakeConnection
from broker.service.consumers.client_calls import ClientCalls
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, Response, decode_command, encode_response, ext_fields_of
from protocol.frame import FrameDecoder

pytestmark = pytest.mark.asyncio

INFO = RequestCode.GET_CONSUMER_RUNNING_INFO


def asked_of(connection: FakeConnection) -> Command:
    (frame,) = FrameDecoder().feed(connection.pushed.pop(0))
    return decode_command(frame)


def reply_to(call: Command, response: Response) -> Command:
    (frame,) = FrameDecoder().feed(encode_response(call, response) + bytes(response.body))
    return decode_command(frame)


async def test_a_clients_answer_comes_back_whole() -> None:
    calls, connection = ClientCalls(), FakeConnection()
    asking = asyncio.ensure_future(calls.ask(connection, INFO, {"clientId": "c"}, b"body"))
    await asyncio.sleep(0)
    call = asked_of(connection)
    assert (call.code, call.is_response, ext_fields_of(call), call.body) == (
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        False,
        {"clientId": "c"},
        b"body",
    )
    calls.answered(connection, reply_to(call, Response(ResponseCode.SYSTEM_ERROR, "no such group", {"a": "b"}, b"{}")))
    assert await asking == Response(ResponseCode.SYSTEM_ERROR, "no such group", {"a": "b"}, b"{}")


async def test_what_another_client_answers_is_dropped_and_so_is_what_nobody_asked_or_asked_long_ago() -> None:
    calls, connection, stranger = ClientCalls(), FakeConnection(), FakeConnection()
    asking = asyncio.ensure_future(calls.ask(connection, INFO, {}))
    await asyncio.sleep(0)
    call = asked_of(connection)
    calls.answered(stranger, reply_to(call, Response(body=b"forged")))
    calls.answered(connection, Command(code=0, flag=1, opaque=4711))
    calls.answered(connection, reply_to(call, Response(body=b"true")))
    calls.answered(connection, reply_to(call, Response(body=b"twice")))
    answer = await asking
    assert answer is not None
    assert answer.body == b"true"
    calls.answered(connection, reply_to(call, Response(body=b"late")))


async def test_a_client_that_does_not_answer_is_not_waited_for_for_ever() -> None:
    calls, connection = ClientCalls(timeout_seconds=0.01), FakeConnection()
    assert await calls.ask(connection, INFO, {}) is None
    calls.answered(connection, reply_to(asked_of(connection), Response()))


async def test_a_client_that_is_gone_is_not_waited_for() -> None:
    calls, connection, other = ClientCalls(), FakeConnection(), FakeConnection()
    asking = asyncio.ensure_future(calls.ask(connection, INFO, {}))
    others = asyncio.ensure_future(calls.ask(other, INFO, {}))
    await asyncio.sleep(0)
    calls.connection_lost(connection)
    assert await asking is None
    calls.answered(other, reply_to(asked_of(other), Response(body=b"still there")))
    answer = await others
    assert answer is not None
    assert answer.body == b"still there"
