"""One answer for many waiting requests: each connection gets it in one call, for all requests of its own."""

import asyncio

import pytest

from broker.service.pending_reply import Outcome, PendingReply, QueuedReplies, ReplyReceiver, answer_all
from protocol.codes import RequestCode, SerializeType
from protocol.command import Command, Response, encode_response
from protocol.errors import BadCommand

FOUND = Response(0, None, {"nextBeginOffset": "4"}, b"a message")
TOO_LONG = Response(0, None, {"x" * 40_000: "y"})
"""The binary form has two bytes for the length of a field's name."""


class FakeConnection:
    def __init__(self) -> None:
        self.told: list[tuple[list[int], Outcome]] = []

    def send_replies(self, deferred: list[PendingReply], outcome: Outcome) -> None:
        self.told.append(([each.opaque for each in deferred], outcome))


def asked(asker: ReplyReceiver, opaque: int, form: int = SerializeType.JSON) -> PendingReply:
    deferred = PendingReply()
    deferred.deliver_to(asker, Command(code=RequestCode.PULL_MESSAGE, opaque=opaque, serialize_type=form))
    return deferred


def test_each_connection_is_told_once_of_all_its_requests() -> None:
    first, second = FakeConnection(), FakeConnection()
    answer_all([asked(first, 1), asked(second, 2), asked(first, 3)], FOUND)
    assert (first.told, second.told) == ([([1, 3], FOUND)], [([2], FOUND)])


def test_an_answer_that_comes_before_its_connection_is_known_is_not_lost() -> None:
    deferred, connection = PendingReply(), FakeConnection()
    answer_all([deferred], FOUND)
    deferred.deliver_to(connection, Command(code=RequestCode.PULL_MESSAGE, opaque=5))
    assert connection.told == [([5], FOUND)]


@pytest.mark.asyncio
async def test_who_awaits_an_answer_is_told_of_an_error_and_once() -> None:
    deferred = PendingReply()
    waiting = asyncio.ensure_future(deferred)
    await asyncio.sleep(0)
    answer_all([deferred, deferred], ValueError("odd"))
    with pytest.raises(ValueError, match="odd"):
        await waiting
    deferred.answer(FOUND)


class TestDueAnswers:
    @pytest.mark.parametrize("limit", [1, 300, 700, 1 << 20])
    def test_pieces_are_the_answers_in_their_order(self, limit: int) -> None:
        connection = FakeConnection()
        forms = [SerializeType.JSON, SerializeType.ROCKETMQ]
        requests = [asked(connection, 10**number, forms[number % 2]) for number in range(9)]
        due, written, is_all = QueuedReplies(requests, FOUND), b"", False
        while not is_all:
            output, size, is_all = due.piece(limit)
            assert size >= sum(map(len, output))
            assert size < limit + 400
            written += b"".join(output)
        commands = [
            Command(code=RequestCode.PULL_MESSAGE, opaque=each.opaque, serialize_type=each.serialize_type)
            for each in requests
        ]
        assert written == b"".join(encode_response(command, FOUND) + bytes(FOUND.body) for command in commands)

    def test_what_a_form_cannot_hold_is_said_before_anything_is_written(self) -> None:
        with pytest.raises(BadCommand):
            QueuedReplies([asked(FakeConnection(), 3), asked(FakeConnection(), 4, SerializeType.ROCKETMQ)], TOO_LONG)
