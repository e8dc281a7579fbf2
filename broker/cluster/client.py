"""A client of our own for any broker or name server: view by offset, query by key, and the route to the brokers.

Requests of one connection are matched to their answers by `opaque`, so that many may be in flight. Every failure is a
`ClientError` of one sentence that names the address.
"""

import asyncio
import contextlib
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TypeVar, cast

from broker.cluster.question import KeyQuestion
from broker.config import FRAME_LIMIT
from broker.endpoint import Endpoint
from protocol.bodies import TopicList, TopicRouteData, decode_json
from protocol.codes import RequestCode, ResponseCode
from protocol.command import RESPONSE_FLAG, Command, decode_response, encode_request, ext_fields_of
from protocol.errors import ConfigError, ProtocolError, RocketLensError
from protocol.frame import FrameDecoder

Body = TypeVar("Body")


class ClientError(RocketLensError):
    """A server cannot be reached, does not answer in time, or answers what is no answer."""


class ResponseError(ClientError):
    """A server answered with an error: `code` and `remark` are its own."""

    def __init__(self, endpoint: Endpoint, code: int, remark: str | None) -> None:
        super().__init__(endpoint, code, remark)
        self.endpoint = endpoint
        self.code = code
        self.remark = remark or ""

    def __str__(self) -> str:
        known = ResponseCode._value2member_map_.get(self.code)
        name = known.name if known is not None else "unknown code"
        return f"{self.endpoint} answered {self.code} ({name}): {self.remark.strip() or 'without a reason'}"


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a `KeyQuestion`: records one after the other, and what the server says about them.

    `cursor` is where the next page begins, None if there is none or the server does not page; `remark` is its
    explanation, `incomplete` what may be missing.
    """

    records: bytes
    remark: str = ""
    cursor: int | None = None
    incomplete: str = ""


class _Channel(asyncio.Protocol):
    """One connection: requests out, answers to whoever waits for them."""

    def __init__(self, endpoint: Endpoint, frame_limit: int) -> None:
        self.endpoint = endpoint
        self._decoder = FrameDecoder(frame_limit)
        self._opaques = itertools.count()
        self._waiting: dict[int, asyncio.Future[Command]] = {}
        self._transport: asyncio.Transport | None = None
        self._lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are no subclass of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(ClientError(f"{self.endpoint} closed the connection"))
        self._transport = None
        self._lost.set()

    def data_received(self, data: bytes) -> None:
        try:
            for command in map(decode_response, self._decoder.feed(data)):
                future = self._waiting.get(command.opaque)
                if command.flag & RESPONSE_FLAG and future is not None and not future.done():
                    future.set_result(command)
        except ProtocolError as error:
            self._fail(ClientError(f"{self.endpoint} does not speak the remoting protocol: {error}"))
            self.close()

    @property
    def is_open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    async def call(self, code: int, fields: Mapping[str, str], body: bytes, timeout_seconds: float) -> Command:
        """Send a request and wait for its answer."""
        if self._transport is None:
            raise ClientError(f"{self.endpoint} closed the connection")
        opaque = next(self._opaques)
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = future
        try:
            self._transport.write(encode_request(code, dict(fields), opaque=opaque, body=body))
            async with asyncio.timeout(timeout_seconds):
                return await future
        except TimeoutError as error:
            raise ClientError(f"{self.endpoint} did not answer within {timeout_seconds:g} s") from error
        finally:
            del self._waiting[opaque]

    def close(self) -> None:
        """Close, soon; who still waits is told."""
        if self._transport is not None:
            self._transport.close()

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        await self._lost.wait()

    def _fail(self, error: ClientError) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)


class Client:
    """Asks servers by address; connections are opened when first needed and shared by later requests.

    An async context manager: leaving it closes all connections. Times in seconds.
    """

    def __init__(
        self,
        *,
        connect_timeout_seconds: float = 3.0,
        timeout_seconds: float = 15.0,
        frame_limit: int = FRAME_LIMIT,
    ) -> None:
        self._connect_timeout_seconds = connect_timeout_seconds
        self._timeout_seconds = timeout_seconds
        self._frame_limit = frame_limit
        self._channels: dict[Endpoint, _Channel] = {}
        self._connecting: dict[Endpoint, asyncio.Lock] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for channel in self._channels.values():
            channel.close()
        for channel in self._channels.values():
            await channel.wait_closed()
        self._channels.clear()

    async def call(self, endpoint: Endpoint, code: int, fields: Mapping[str, str], body: bytes = b"") -> Command:
        """Ask one server; raises `ResponseError` for any code but SUCCESS, `ClientError` when there is no answer."""
        channel = await self._channel(endpoint)
        answer = await channel.call(code, fields, body, self._timeout_seconds)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(endpoint, answer.code, answer.remark)
        return answer

    async def wait_lost(self, endpoint: Endpoint, timeout_seconds: float) -> bool:
        """Wait until the connection to a server is closed, at most so long; whether it is, or was none."""
        channel = self._channels.get(endpoint)
        if channel is None:
            return True
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await channel.wait_closed()
        return not channel.is_open

    async def view(self, endpoint: Endpoint, physical_offset: int, topic: str = "") -> bytes:
        """The bytes a broker has as the record at an offset; a Java broker does not check that one starts there."""
        fields = {"offset": str(physical_offset)} | ({"topic": topic} if topic else {})
        return bytes((await self.call(endpoint, RequestCode.VIEW_MESSAGE_BY_ID, fields)).body)

    async def query(self, endpoint: Endpoint, question: KeyQuestion) -> Page:
        """The newest matches that a broker has; an empty page, with the reason in its remark, when it has none."""
        try:
            answer = await self.call(endpoint, RequestCode.QUERY_MESSAGE, question.ext_fields())
        except ResponseError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return Page(b"", error.remark)
        fields = ext_fields_of(answer)
        cursor = fields.get("rocketlensCursor", "")
        return Page(
            bytes(answer.body),
            answer.remark or "",
            int(cursor) if cursor.isascii() and cursor.isdigit() else None,
            fields.get("rocketlensIncomplete", ""),
        )

    async def brokers_of(self, endpoint: Endpoint, topic: str) -> dict[str, Endpoint] | None:
        """Ask a name server which brokers have a topic: broker name → address, masters before slaves.

        None when `endpoint` is no name server but a broker. Raises `ResponseError` TOPIC_NOT_EXIST for no route.
        """
        # Name servers before 4.9.4 leave integer keys bare whatever we ask; our reader takes both.
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        try:
            answer = await self.call(endpoint, RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        except ResponseError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        route = self._decoded(endpoint, answer, TopicRouteData)
        try:
            return {
                broker.broker_name: Endpoint.parse(broker.broker_addrs[min(broker.broker_addrs, key=_broker_id)])
                for broker in route.broker_datas
                if broker.broker_addrs
            }
        except ConfigError as error:
            raise ClientError(f"{endpoint} answered a route without a usable address: {error}") from error

    async def topics(self, endpoint: Endpoint) -> list[str]:
        """All topics that a name server knows, sorted."""
        answer = await self.call(endpoint, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        return sorted(self._decoded(endpoint, answer, TopicList).topic_list)

    def _decoded(self, endpoint: Endpoint, answer: Command, kind: type[Body]) -> Body:
        """Read an answer's JSON body."""
        try:
            return decode_json(bytes(answer.body), kind)
        except ProtocolError as error:
            raise ClientError(f"{endpoint} answered what cannot be read: {error}") from error

    async def _channel(self, endpoint: Endpoint) -> _Channel:
        """The open connection to a server, made if there is none; one attempt at a time."""
        async with self._connecting.setdefault(endpoint, asyncio.Lock()):
            channel = self._channels.get(endpoint)
            if channel is None or not channel.is_open:
                channel = self._channels[endpoint] = await self._connect(endpoint)
            return channel

    async def _connect(self, endpoint: Endpoint) -> _Channel:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_seconds):
                _, channel = await loop.create_connection(lambda: _Channel(endpoint, self._frame_limit), *endpoint)
        except TimeoutError as error:
            raise ClientError(f"cannot connect to {endpoint} within {self._connect_timeout_seconds:g} s") from error
        except OSError as error:
            raise ClientError(f"cannot connect to {endpoint}: {_reason(error)}") from error
        return channel


def _reason(error: OSError) -> str:
    """Why a connection was not made, in the system's own words where it has any."""
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)


def _broker_id(digits: str) -> tuple[int, str]:
    """The order of broker ids, which are numbers written as digits: the master is 0."""
    return len(digits), digits
