"""From a command to its answer: the table, the refusals, the errors."""

import asyncio
import logging
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from broker.endpoint import Endpoint
from broker.service.dispatcher import Dispatcher, Request, check_families, handles
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, Response, decode_command, encode_request
from protocol.errors import BadHeader, BeingSearched, CorruptRecord
from protocol.frame import FrameDecoder
from protocol.header_fields import I32
from protocol.headers import EmptyRequestHeader, RequestHeader, ViewMessageRequestHeader
from storage.files.waiting import Lookup, Unfinished, Wait


class Peer:
    """A connection as processors see it."""

    local_address = Endpoint("127.0.0.1", 10911)
    peer_address = Endpoint("127.0.0.1", 40000)
    is_open = True


PEER = Peer()


def command_of(code: int, **fields: str) -> Command:
    (frame,) = FrameDecoder().feed(encode_request(code, fields, opaque=7))
    return decode_command(frame)


class Viewer:
    """Answers by what the offset asks for."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.warmed = 0

    @handles(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader)
    def view(self, header: ViewMessageRequestHeader) -> Lookup[Response]:
        self.threads.append(threading.get_ident())
        if header.offset == 1:
            raise CorruptRecord(Path("/store/commitlog/00000000000000000000"), 1, 0xDAA320A7, 0, "magic")
        if header.offset == 2:
            raise ZeroDivisionError("a secret of /etc/passwd")
        if header.offset >= 3:
            yield Wait("page", self.warm)
            self.threads.append(threading.get_ident())
        if header.offset == 5:
            raise ZeroDivisionError("a secret of /etc/passwd")
        return Response(body=b"%d" % header.offset)

    def warm(self) -> None:
        self.warmed += 1


class Greeter:
    """Wants the whole request."""

    @handles(RequestCode.HEART_BEAT, EmptyRequestHeader)
    @handles(RequestCode.UNREGISTER_CLIENT, EmptyRequestHeader)
    def greet(self, header: EmptyRequestHeader, request: Request) -> Response:
        return Response(remark=f"{request.command.code} from {request.connection.peer_address}")


def answer(code: int, processors: list[object] | None = None, **fields: str) -> Response:
    response = Dispatcher(processors or [Viewer(), Greeter()]).dispatch(command_of(code, **fields), PEER)
    assert isinstance(response, Response)
    return response


@pytest.mark.parametrize("code", [0, -1, 999, 32767])
def test_an_unknown_code_is_refused_in_a_brokers_words(code: int) -> None:
    assert answer(code) == Response(
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {code} not supported"
    )


def test_a_store_error_is_answered_with_its_sentence() -> None:
    response = answer(RequestCode.VIEW_MESSAGE_BY_ID, offset="1")
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert response.remark == "00000000000000000000 at physical offset 1: magic 0x00000000, expected 0xdaa320a7"


def test_any_other_error_is_logged_with_its_trace_and_answered_without(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        response = answer(RequestCode.VIEW_MESSAGE_BY_ID, offset="2")
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "secret" not in (response.remark or "")
    assert "ZeroDivisionError: a secret" in caplog.text


def test_two_handlers_of_one_code_are_refused() -> None:
    class Second:
        @handles(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader)
        def see(self, header: ViewMessageRequestHeader) -> Response:
            return Response()

    with pytest.raises(TypeError, match=r"33 has two handlers: Viewer.view and Second.see"):
        check_families([Viewer, Second])
    with pytest.raises(TypeError, match="two handlers"):
        Dispatcher([Viewer(), Second()])


def unfinished(dispatcher: Dispatcher, command: Command) -> "Unfinished[Any]":
    step = dispatcher.dispatch(command, PEER)
    assert isinstance(step, Unfinished)
    return step


@pytest.mark.asyncio
async def test_a_look_up_that_has_to_wait_goes_on_on_a_thread_that_may() -> None:
    viewer = Viewer()
    dispatcher = Dispatcher([viewer])
    command = command_of(RequestCode.VIEW_MESSAGE_BY_ID, offset="3")
    step = unfinished(dispatcher, command)
    assert not viewer.warmed
    future = dispatcher.finish_in_pool(command, PEER, step)
    assert not dispatcher.is_idle
    assert await future == Response(body=b"3")
    dispatcher.close()
    assert viewer.warmed == 1
    assert viewer.threads[0] == threading.get_ident() != viewer.threads[1]
    assert len(viewer.threads) == 2, "it was begun once"
    assert dispatcher.is_idle


@pytest.mark.parametrize("code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.QUERY_MESSAGE])
def test_who_asks_for_what_cannot_be_told_now_is_to_ask_again(code: RequestCode) -> None:
    """Pulls also where the store cannot tell what a queue holds: in the request's turn, and after they were held."""
    dispatcher = Dispatcher([])
    is_pull = code != RequestCode.QUERY_MESSAGE
    unreadable = CorruptRecord(Path("00000000000000000000"), 4096)
    answers = [dispatcher.failure(Command(code=code), error) for error in (BeingSearched("half of it"), unreadable)]
    assert [answer.code == ResponseCode.SYSTEM_BUSY for answer in answers] == [True, is_pull]
    assert [answer.remark for answer in answers] == ["half of it", str(unreadable)]
    wrong = dispatcher.failure(Command(code=code), BadHeader("queueOffset", "is missing"))
    assert wrong.code == ResponseCode.SYSTEM_ERROR


@pytest.mark.asyncio
async def test_more_requests_than_may_wait_are_answered_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.service.dispatcher.WAITING_LIMIT", 1)
    held = threading.Event()
    dispatcher = Dispatcher([Viewer()])
    command = command_of(RequestCode.VIEW_MESSAGE_BY_ID, offset="4")
    first = dispatcher.finish_in_pool(command, PEER, unfinished(dispatcher, command), lambda: held.wait(60) and None)
    refused = await dispatcher.finish_in_pool(command, PEER, unfinished(dispatcher, command))
    held.set()
    assert isinstance(refused, Response)
    assert refused.code == ResponseCode.SYSTEM_BUSY
    assert await first == Response(body=b"4")
    await asyncio.sleep(0)
    assert await dispatcher.finish_in_pool(command, PEER, unfinished(dispatcher, command)) == Response(body=b"4")
    dispatcher.close()


def test_a_processor_that_follows_the_contributing_guide_answers() -> None:
    guide = (Path(__file__).parents[3] / "CONTRIBUTING.md").read_text()
    (block,) = re.findall(r"^```python$(.*?)^```$", guide, re.M | re.S)
    names: dict[str, Any] = {**globals(), "I32": I32, "RequestHeader": RequestHeader}
    exec(compile(block, "CONTRIBUTING.md", "exec"), names)
    command = command_of(RequestCode.QUERY_BROKER_OFFSET, topic="Orders", queueId="3")
    dispatcher = Dispatcher([names["QueryBrokerOffsetProcessor"]()])
    assert unfinished(dispatcher, command).resume() == Response(remark="Orders 3: nothing for 127.0.0.1:40000")
    assert answer(RequestCode.QUERY_BROKER_OFFSET, [names["QueryBrokerOffsetProcessor"]()], topic="Orders").code == 1
