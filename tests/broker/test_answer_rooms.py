"""Answers lie where they were written until they are sent, and nobody else writes there."""

import asyncio
import contextlib
import ctypes
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from broker.answer_rooms import MOST_ROOMS, SHORTEST_HANDED_ON, AnswerRooms
from broker.endpoint import Endpoint
from broker.security.tls import TlsOptions
from broker_harness import RawClient, connected, service_of, serving, until
from certificates import Authority
from lane_requests import Road, pull
from storage.message_store import MessageStore
from store_writer import StoreWriter

SIZE = SHORTEST_HANDED_ON + 1


def write(rooms: AnswerRooms, byte: int, length: int = SHORTEST_HANDED_ON) -> bytes | memoryview:
    """Some answers, all of one byte."""
    ctypes.memset(rooms.address(), byte, length)
    return rooms.take(length)


def test_short_answers_are_copied_and_the_room_is_used_again() -> None:
    rooms = AnswerRooms(SIZE)
    first, second = write(rooms, 1, 5), write(rooms, 2, SHORTEST_HANDED_ON - 1)
    assert (first, second) == (b"\1" * 5, b"\2" * (SHORTEST_HANDED_ON - 1))
    assert isinstance(first, bytes)
    assert isinstance(second, bytes)
    assert len(rooms) == 1


def test_long_answers_are_handed_on_as_they_lie() -> None:
    rooms = AnswerRooms(SIZE)
    address = rooms.address()
    answers = write(rooms, 3)
    assert isinstance(answers, memoryview)
    assert ctypes.string_at(address, SHORTEST_HANDED_ON) == answers
    ctypes.memset(address, 4, 1)
    assert answers[0] == 4


def test_a_room_is_not_written_to_while_anybody_has_a_part_of_it() -> None:
    rooms = AnswerRooms(SIZE)
    first = write(rooms, 1)
    rest = memoryview(first)[100:].cast("b")
    del first
    second = write(rooms, 2)
    assert bytes(rest) == b"\1" * (SHORTEST_HANDED_ON - 100)
    assert bytes(second) == b"\2" * SHORTEST_HANDED_ON
    assert len(rooms) == 2


def test_a_room_whose_answers_are_sent_is_used_again() -> None:
    rooms = AnswerRooms(SIZE)
    addresses = set()
    for byte in range(50):
        addresses.add(rooms.address())
        assert write(rooms, byte)[0] == byte
    assert len(addresses) == len(rooms) == 1


def test_when_all_rooms_wait_to_be_sent_answers_are_copied() -> None:
    rooms = AnswerRooms(SIZE)
    waiting = [write(rooms, byte) for byte in range(2 * MOST_ROOMS)]
    assert len(rooms) == MOST_ROOMS
    assert [bytes(answers) for answers in waiting] == [bytes([n]) * SHORTEST_HANDED_ON for n in range(2 * MOST_ROOMS)]
    assert [type(answers) for answers in waiting].count(bytes) == MOST_ROOMS + 1
    waiting.clear()
    assert isinstance(write(rooms, 1), (memoryview, bytes))
    assert len(rooms) == MOST_ROOMS


@contextlib.asynccontextmanager
async def secured(endpoint: Endpoint, authority: Authority) -> AsyncIterator[RawClient]:
    context = authority.client_context()
    reader, writer = await asyncio.open_connection(*endpoint, ssl=context, server_hostname="localhost")
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("is_secured", [False, True], ids=["plain", "TLS"])
@pytest.mark.asyncio
async def test_who_reads_late_gets_what_was_written_for_him(is_secured: bool, tmp_path: Path) -> None:
    """Two clients pull different messages, 200 KB each time; one reads only when the other has all of his."""
    authority = Authority.make(tmp_path)
    tls = TlsOptions("permissive", *authority.sign("server"))
    writer = StoreWriter(tmp_path / "store", segment_size=1 << 22)
    for number in range(40):
        writer.append("T", bytes([number]) * 50_000)
    writer.close()
    service = service_of(MessageStore.open(writer.root), tls=tls)
    frames = [pull("T", 0, number, maxMsgNums=4) for number in range(36)]
    plain = Road(service, has_lane=False)
    expected = [(await plain.answer([frame]))[0] for frame in frames]
    async with (
        serving(service) as server,
        secured(server.addresses[0], authority) if is_secured else connected(server.addresses[0]) as late,
        secured(server.addresses[0], authority) if is_secured else connected(server.addresses[0]) as quick,
    ):
        settings = server._settings
        late.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(20):
            late.writer.write(b"".join(frames[:18]))
        await until(lambda: any(connection.is_held for connection in settings.open))
        for _ in range(10):
            quick.writer.write(b"".join(frames[18:]))
            for wanted in expected[18:]:
                assert await quick.reader.readexactly(len(wanted)) == wanted
        late.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(20):
            for wanted in expected[:18]:
                assert await asyncio.wait_for(late.reader.readexactly(len(wanted)), 20) == wanted
        assert settings.fast_lane is not None
        assert sum(settings.fast_lane.answered.values()) > 400
