"""Sends a recorded session to a server of ours, connection by connection as it was recorded; collects our answers."""

import asyncio
import json
import struct
from dataclasses import dataclass

from golden_frames import RESPONSE_FLAG, Answer, Exchange, answer_of
from interop.wire import BINARY_HEADER, Frame, FrameSplitter

ANSWER_SECONDS = 30


@dataclass(frozen=True)
class Outcome:
    """One exchange of the session, with our answer and its raw header; both None where none was recorded."""

    exchange: Exchange
    ours: Answer | None
    header: dict[str, object] | None


class ReplayConnection:
    """One TCP connection that asks one thing at a time; what the server asks in turn is kept aside."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._splitter = FrameSplitter()
        self._frames: list[Frame] = []
        self.asked: list[Frame] = []

    async def ask(self, exchange: Exchange) -> Outcome:
        """Send the recorded request and wait for the answer with its opaque."""
        header = exchange.binary
        mark = BINARY_HEADER << 24
        if header is None:
            header, mark = json.dumps(exchange.header, ensure_ascii=False, separators=(",", ":")).encode("utf-8"), 0
        length = 4 + len(header) + len(exchange.body)
        self._writer.write(struct.pack(">iI", length, mark | len(header)) + header + exchange.body)
        if exchange.recorded is None:
            return Outcome(exchange, None, None)
        async with asyncio.timeout(ANSWER_SECONDS):
            frame = await self._answer_to(exchange.header["opaque"])
        return Outcome(exchange, answer_of(frame.header, frame.body), frame.header)

    async def _answer_to(self, opaque: int) -> Frame:
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if frame.header["flag"] & RESPONSE_FLAG and frame.header["opaque"] == opaque:
                    return frame
                self.asked.append(frame)
            chunk = await self._reader.read(1 << 16)
            if not chunk:
                raise ConnectionError(f"the server closed the connection instead of answering request {opaque}")
            self._frames += self._splitter.feed(chunk)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()


async def replay(
    exchanges: list[Exchange], host: str, port: int, asked: list[tuple[tuple[int, int], Frame]] | None = None
) -> list[Outcome]:
    """Play a session in its order; each recorded connection is one of ours, closed after its last request.

    What the server asks in turn goes to `asked`, with the connection.
    """
    last_use = {exchange.connection: exchange.number for exchange in exchanges}
    connections: dict[tuple[int, int], ReplayConnection] = {}
    outcomes = []
    for exchange in exchanges:
        connection = connections.get(exchange.connection)
        if connection is None:
            connection = ReplayConnection(*await asyncio.open_connection(host, port))
            connections[exchange.connection] = connection
        outcomes.append(await connection.ask(exchange))
        if last_use[exchange.connection] == exchange.number:
            ended = connections.pop(exchange.connection)
            await ended.close()
            if asked is not None:
                asked += [(exchange.connection, frame) for frame in ended.asked]
    return outcomes
