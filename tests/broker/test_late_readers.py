"""Answers belong to who asked: a client that reads late gets what was written for him, whatever came meanwhile."""

import asyncio
from pathlib import Path

import pytest

from broker.config import TlsOptions
from broker_harness import connected, service_of, serving, until
from certificates import Authority
from lane_requests import LaneConnections, pull
from storage.store.message_store import MessageStore
from store_writer import StoreWriter


@pytest.mark.parametrize("is_secured", [False, True], ids=["plain", "TLS"])
@pytest.mark.asyncio
async def test_who_reads_late_gets_what_was_written_for_him(
    is_secured: bool, tmp_path: Path, lane_is_off: bool
) -> None:
    """Two clients pull different messages, 200 KB each time; one reads only when the other has all of his."""
    authority = Authority.make(tmp_path)
    tls = TlsOptions("permissive", *authority.sign("server"))
    context = authority.client_context() if is_secured else None
    writer = StoreWriter(tmp_path / "store", segment_size=1 << 22)
    for number in range(40):
        writer.append("T", bytes([number]) * 50_000)
    writer.close()
    service = service_of(MessageStore.open(writer.root), tls=tls)
    frames = [pull("T", 0, number, maxMsgNums=4) for number in range(36)]
    plain = LaneConnections(service, has_lane=False)
    expected = [(await plain.answer([frame]))[0] for frame in frames]
    async with (
        serving(service) as server,
        connected(server.addresses[0], context) as late,
        connected(server.addresses[0], context) as quick,
    ):
        late.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(20):
            late.writer.write(b"".join(frames[:18]))
        await until(lambda: any(connection.session.is_held for connection in server.connections))
        for _ in range(10):
            quick.writer.write(b"".join(frames[18:]))
            for wanted in expected[18:]:
                assert await quick.reader.readexactly(len(wanted)) == wanted
        late.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(20):
            for wanted in expected[:18]:
                assert await asyncio.wait_for(late.reader.readexactly(len(wanted)), 60) == wanted
        if not lane_is_off:
            assert server.lane is not None
            assert sum(server.lane.answered.values()) > 400
