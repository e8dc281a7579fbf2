"""A client of our own for any broker or name server: messages by offset, key and queue, topics, groups, and the route.

Requests of one connection are matched to their answers by `opaque`, so that many may be in flight. Every failure is a
`ClientError` of one sentence that names the address.
"""

import asyncio
import contextlib
import itertools
import os
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar, cast

from broker.config import FRAME_LIMIT
from broker.endpoint import Endpoint
from protocol.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerOffsetTable,
    GroupList,
    KVTable,
    SubscriptionGroupTable,
    TopicConfigTable,
    TopicList,
    TopicOffset,
    TopicOffsets,
    TopicQueues,
    TopicRouteData,
    decode_json,
)
from protocol.codes import OwnRequestCode, RequestCode, ResponseCode
from protocol.command import RESPONSE_FLAG, Command, decode_response, encode_request, ext_fields_of
from protocol.errors import ConfigError, ProtocolError, RocketLensError, StoreError, quote
from protocol.frame import FrameDecoder
from protocol.message import Message, decode_messages
from protocol.question import Question

if TYPE_CHECKING:  # commands that ask a server in plain text do without it
    import ssl

Body = TypeVar("Body")
Thing = TypeVar("Thing")
Result = TypeVar("Result")

SUSPENDS: Final = 2
"""The bit of a pull's sysFlag that says that the broker may hold the pull until there is a message."""
SUBSCRIBES: Final = 4
"""The bit of a pull's sysFlag that says that the subscription is in the request."""

TOOLS_GROUP: Final = "TOOLS_CONSUMER"
"""The consumer group of RocketMQ's own tools, which every broker knows: a pull makes no new group there."""

PULL_ANSWERS: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
NOTHING_BUT_SUCCESS: Final = (ResponseCode.SUCCESS,)


MOST_OF_A_UNIQUE_KEY: Final = 32
"""Messages of one unique key that a broker gives."""

MOST_QUEUES: Final = 65_536
"""Queues of one topic on one broker that are asked or sent to, whatever a server says."""

AGAIN_SECONDS: Final = 0.1
"""Seconds between two questions for an answer that is being made; the server waits a quarter of a second itself."""


class ClientError(RocketLensError):
    """A server cannot be reached, does not answer in time, or sends an answer that cannot be read."""


class NotConnected(ClientError):
    """No connection to a server could be made: what was asked was not sent."""


ACL_EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException"
"""How the remark begins by which a broker 4.x refuses what an account may not do; it has not looked at the request."""


class ResponseError(ClientError):
    """A server answered with an error: `code` and `remark` are its own."""

    def __init__(self, endpoint: Endpoint, code: int, remark: str | None) -> None:
        super().__init__(endpoint, code, remark)
        self.endpoint = endpoint
        self.code = code
        self.remark = remark or ""

    @property
    def is_denied(self) -> bool:
        """Whether an account lacks the right: brokers 4.x say it as an error of their own, of a class for that."""
        is_of_acl = self.code == ResponseCode.SYSTEM_ERROR and self.remark.startswith(ACL_EXCEPTION)
        return is_of_acl or self.code == ResponseCode.NO_PERMISSION

    def __str__(self) -> str:
        known = ResponseCode._value2member_map_.get(self.code)
        name = known.name if known is not None else "unknown code"
        return f"{self.endpoint} answered {self.code} ({name}): {self.remark.strip() or 'without a reason'}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """An access key and its secret, which sign requests for brokers with ACL."""

    access_key: str
    secret_key: str

    def sign(self, fields: Mapping[str, str], body: bytes) -> dict[str, str]:
        """Return a request's header fields with access key and signature."""
        # Few clients sign, and the others start without hashlib and hmac.
        from broker.security.signature import ACCESS_KEY, SIGNATURE, signature_of

        signed = {**fields, ACCESS_KEY: self.access_key}
        return {**signed, SIGNATURE: signature_of(signed, body, self.secret_key.encode()).decode()}

    def __repr__(self) -> str:
        return f"<Credentials of {self.access_key}>"


@dataclass(frozen=True, slots=True)
class QueueQuestion:
    """Which messages of a queue are wanted, by which consumer group; `expression_type` is TAG or SQL92.

    Where there is none yet the broker may hold the answer for `suspended_milliseconds`.
    """

    topic: str
    queue_id: int
    queue_offset: int
    maximum: int
    group: str = TOOLS_GROUP
    expression: str = "*"
    expression_type: str = "TAG"
    suspended_milliseconds: int = 0

    def ext_fields(self) -> dict[str, str]:
        """The request's header fields: nothing is committed."""
        return {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.queue_offset),
            "maxMsgNums": str(self.maximum),
            "sysFlag": str(SUBSCRIBES | (SUSPENDS if self.suspended_milliseconds else 0)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(self.suspended_milliseconds),
            "subscription": self.expression,
            "subVersion": "0",
            "expressionType": self.expression_type,
        }


@dataclass(frozen=True, slots=True)
class PullAnswer:
    """Records of a queue one after the other, and queue offsets: where to go on, the first, and behind the last."""

    records: bytes
    remark: str
    next_offset: int
    min_offset: int
    max_offset: int

    @property
    def lost(self) -> str:
        """Which messages a RocketLens server says are lost, which it went past; empty where it says nothing."""
        status, _, lost = self.remark.partition(": ")
        return lost if status.isupper() else ""


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a `Question`: records one after the other, and what the server says about them.

    `cursor` is where the next page begins, None without one or if the server does not page; `remark` is its
    explanation, `incomplete` what may be missing.
    """

    records: bytes
    remark: str = ""
    cursor: int | None = None
    incomplete: str = ""


class _Channel(asyncio.Protocol):
    """One connection: sends requests, and gives each answer to the call that waits for it."""

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

    async def call(self, code: int, fields: dict[str, str], body: bytes, timeout_seconds: float) -> Command:
        """Send a request and wait for its answer."""
        if self._transport is None:
            raise ClientError(f"{self.endpoint} closed the connection")
        opaque = next(self._opaques)
        future: asyncio.Future[Command] = asyncio.get_running_loop().create_future()
        self._waiting[opaque] = future
        try:
            self._transport.write(encode_request(code, fields, opaque=opaque, body=body))
            async with asyncio.timeout(timeout_seconds):
                return await future
        except TimeoutError as error:
            raise ClientError(f"{self.endpoint} did not answer within {timeout_seconds:g} s") from error
        finally:
            del self._waiting[opaque]

    def close(self) -> None:
        """Begin to close the connection; calls that still wait end with an error."""
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

    An async context manager: leaving it closes all connections. Times in seconds. `tls` is the context of connections
    with TLS, and `credentials` sign every request.
    """

    def __init__(
        self,
        *,
        connect_timeout_seconds: float = 3.0,
        timeout_seconds: float = 15.0,
        frame_limit: int = FRAME_LIMIT,
        tls: "ssl.SSLContext | None" = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._connect_timeout_seconds = connect_timeout_seconds
        self._timeout_seconds = timeout_seconds
        self._frame_limit = frame_limit
        self._tls = tls
        self._credentials = credentials
        self._is_closed = False
        self._channels: dict[Endpoint, _Channel] = {}
        self._connecting: dict[Endpoint, asyncio.Lock] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()
        for channel in self._channels.values():
            await channel.wait_closed()
        self._channels.clear()

    async def call(
        self,
        endpoint: Endpoint,
        code: int,
        fields: Mapping[str, str],
        body: bytes = b"",
        *,
        expected: Collection[int] = NOTHING_BUT_SUCCESS,
    ) -> Command:
        """Ask one server; raises `ResponseError` for a code that is not expected, `ClientError` without an answer."""
        channel = await self._channel(endpoint)
        signed = dict(fields) if self._credentials is None else self._credentials.sign(fields, body)
        answer = await channel.call(code, signed, body, self._timeout_seconds)
        if answer.code not in expected:
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

    async def query(self, endpoint: Endpoint, question: Question) -> Page:
        """The newest matches that a broker has; an empty page, with the reason in its remark, when it has none."""
        expected = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = await self.call(endpoint, RequestCode.QUERY_MESSAGE, question.ext_fields(), expected=expected)
        try:
            fields = ext_fields_of(answer)
        except ProtocolError as error:
            raise ClientError(f"{endpoint} answered what cannot be read: {error}") from error
        cursor = fields.get("rocketlensCursor", "")
        return Page(
            bytes(answer.body),
            answer.remark or "",
            int(cursor) if re.fullmatch(r"[0-9]{1,19}", cursor, re.ASCII) else None,
            fields.get("rocketlensIncomplete", ""),
        )

    async def ask_store(
        self, endpoint: Endpoint, fields: Mapping[str, str], report: Callable[[int], None] = lambda _done: None
    ) -> bytes:
        """What a RocketLens server answers about its whole store, as :mod:`broker.service.store_answers` encodes it.

        Asks again while the answer is being made, and `report` gets how far that is. Raises `ResponseError`
        REQUEST_CODE_NOT_SUPPORTED for other brokers.
        """
        # Few clients ask this, and the others start without what the answers are made of.
        from broker.service.store_answers import UNDER_WAY

        while True:
            answer = await self.call(endpoint, OwnRequestCode.ASK_STORE, fields)
            done = ext_fields_of(answer).get(UNDER_WAY)
            if done is None:
                return bytes(answer.body)
            if re.fullmatch(r"[0-9]{1,19}", done, re.ASCII):
                report(int(done))
            await asyncio.sleep(AGAIN_SECONDS)

    async def brokers_of(self, endpoint: Endpoint, topic: str) -> dict[str, Endpoint] | None:
        """Ask a name server which brokers have a topic: broker name → address, masters before slaves.

        None when `endpoint` is no name server but a broker. Raises `ResponseError` TOPIC_NOT_EXIST for no route.
        """
        route = await self.route(endpoint, topic)
        return None if route is None else addresses(endpoint, route.broker_datas)

    async def route(self, endpoint: Endpoint, topic: str) -> TopicRouteData | None:
        """The route of a topic, as a name server knows it; None and errors as `brokers_of`."""
        # Name servers before 4.9.4 leave integer keys bare whatever we ask; our reader takes both.
        fields = {"topic": topic, "acceptStandardJsonOnly": "true"}
        try:
            answer = await self.call(endpoint, RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        except ResponseError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        return self._decoded(endpoint, answer, TopicRouteData)

    async def brokers(self, endpoint: Endpoint) -> dict[str, Endpoint] | None:
        """Ask a name server for all its brokers, as `brokers_of` does; None when `endpoint` is none."""
        found = await self.clusters(endpoint)
        return None if found is None else addresses(endpoint, found.broker_addr_table.values())

    async def clusters(self, endpoint: Endpoint) -> ClusterInfo | None:
        """Ask a name server for its clusters and their brokers; None when `endpoint` is none."""
        try:
            answer = await self.call(endpoint, RequestCode.GET_BROKER_CLUSTER_INFO, {})
        except ResponseError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            raise
        return self._decoded(endpoint, answer, ClusterInfo)

    async def pull(self, endpoint: Endpoint, question: QueueQuestion) -> PullAnswer:
        """The messages of a queue from an offset on, perhaps none."""
        answer = await self.call(endpoint, RequestCode.PULL_MESSAGE, question.ext_fields(), expected=PULL_ANSWERS)
        body = bytes(answer.body) if answer.code == ResponseCode.SUCCESS else b""
        numbers = [_number(endpoint, answer, name) for name in ("nextBeginOffset", "minOffset", "maxOffset")]
        return PullAnswer(body, answer.remark or "", *numbers)

    async def offset_at(self, endpoint: Endpoint, topic: str, queue_id: int, timestamp: int) -> int:
        """The queue offset of the first message that was stored at a time (ms) or later."""
        fields = {"topic": topic, "queueId": str(queue_id), "timestamp": str(timestamp)}
        answer = await self.call(endpoint, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
        return _number(endpoint, answer, "offset")

    async def topics(self, endpoint: Endpoint) -> list[str]:
        """All topics that a name server knows, or those of a broker, sorted."""
        try:
            return sorted(await self.topic_queues(endpoint))
        except ResponseError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        return await self.named_topics(endpoint)

    async def named_topics(self, endpoint: Endpoint) -> list[str]:
        """All topics that a name server knows, sorted; one of 4.9 never answers what only brokers are asked."""
        answer = await self.call(endpoint, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {})
        return sorted(set(self._decoded(endpoint, answer, TopicList).topic_list))

    async def topic_queues(self, endpoint: Endpoint) -> dict[str, TopicQueues]:
        """How many queues each topic of a broker has."""
        answer = await self.call(endpoint, RequestCode.GET_ALL_TOPIC_CONFIG, {})
        return self._decoded(endpoint, answer, TopicConfigTable).topic_config_table

    async def consuming_groups(self, endpoint: Endpoint, topic: str) -> list[str]:
        """The consumer groups that a broker knows to consume a topic, sorted."""
        answer = await self.call(endpoint, RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": topic})
        return sorted(self._decoded(endpoint, answer, GroupList).group_list)

    async def broker_config(self, endpoint: Endpoint) -> dict[str, str]:
        """The configuration of a broker by name, as getBrokerConfig prints it."""
        answer = await self.call(endpoint, RequestCode.GET_BROKER_CONFIG, {})
        lines = bytes(answer.body).decode("utf-8", "replace").splitlines()
        return {
            name.strip(): value.strip() for name, equals, value in (line.partition("=") for line in lines) if equals
        }

    async def topic_offsets(self, endpoint: Endpoint, topic: str) -> dict[int, TopicOffset]:
        """The first offset and the end of each queue of a topic, and when its last message was stored, by queue id."""
        answer = await self.call(endpoint, RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})
        try:
            return self._decoded(endpoint, answer, TopicOffsets).by_queue()
        except ProtocolError as error:
            raise ClientError(f"{endpoint} answered what cannot be read: {error}") from error

    async def runtime_figures(self, endpoint: Endpoint) -> dict[str, str]:
        """The figures of a broker by name, as brokerStatus prints them."""
        answer = await self.call(endpoint, RequestCode.GET_BROKER_RUNTIME_INFO, {})
        return self._decoded(endpoint, answer, KVTable).table

    async def groups(self, endpoint: Endpoint) -> Sequence[str]:
        """The consumer groups that a broker is configured for, sorted."""
        answer = await self.call(endpoint, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {})
        return sorted(self._decoded(endpoint, answer, SubscriptionGroupTable).subscription_group_table)

    async def consumer_offsets(self, endpoint: Endpoint) -> dict[str, dict[int, int]]:
        """The queue offsets that groups of a broker have committed, by `topic@group` and queue id."""
        answer = await self.call(endpoint, RequestCode.GET_ALL_CONSUMER_OFFSET, {})
        return self._decoded(endpoint, answer, ConsumerOffsetTable).offset_table

    def _decoded(self, endpoint: Endpoint, answer: Command, kind: type[Body]) -> Body:
        """Read an answer's JSON body."""
        try:
            return decode_json(bytes(answer.body), kind)
        except ProtocolError as error:
            raise ClientError(f"{endpoint} answered what cannot be read: {error}") from error

    async def _channel(self, endpoint: Endpoint) -> _Channel:
        """The open connection to a server, created if missing; one attempt at a time."""
        if self._is_closed:
            raise ClientError(f"the connections are closed, {endpoint} is not asked")
        async with self._connecting.setdefault(endpoint, asyncio.Lock()):
            channel = self._channels.get(endpoint)
            if channel is None or not channel.is_open:
                channel = await self._connect(endpoint)
                self._channels[endpoint] = channel
                if self._is_closed:  # meanwhile
                    channel.close()
            return channel

    async def _connect(self, endpoint: Endpoint) -> _Channel:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_seconds):
                _, channel = await loop.create_connection(
                    lambda: _Channel(endpoint, self._frame_limit), *endpoint, ssl=self._tls
                )
        except TimeoutError as error:
            raise NotConnected(f"cannot connect to {endpoint} within {self._connect_timeout_seconds:g} s") from error
        except OSError as error:
            raise NotConnected(f"cannot connect to {endpoint}: {_reason(error)}") from error
        return channel


async def each_of(things: Sequence[Thing], ask: Callable[[Thing], Awaitable[Result]], at_once: int) -> list[Result]:
    """Ask about each of many things, of which `at_once` wait at the same time; the answers are in their order."""
    answers: list[Result] = []
    for place in range(0, len(things), at_once):
        answers += await asyncio.gather(*map(ask, things[place : place + at_once]))
    return answers


def decoded_records(endpoint: Endpoint, records: bytes) -> list[Message]:
    """The records that a server sent, one after the other; raises `ClientError` for bytes that are none."""
    try:
        return list(decode_messages(records))
    except StoreError as error:
        raise ClientError(f"{endpoint} answered bytes that are not messages: {error}") from error


def addresses(endpoint: Endpoint, brokers: Iterable[BrokerData]) -> dict[str, Endpoint]:
    """The addresses of brokers by name, a master's before a slave's."""
    try:
        return {
            broker.broker_name: Endpoint.parse(broker.broker_addrs[min(broker.broker_addrs, key=_broker_id)])
            for broker in brokers
            if broker.broker_addrs
        }
    except ConfigError as error:
        raise ClientError(f"{endpoint} answered a broker without a usable address: {error}") from error


def _number(endpoint: Endpoint, answer: Command, name: str) -> int:
    """A number among the header fields of an answer."""
    try:
        text = ext_fields_of(answer).get(name, "")
    except ProtocolError as error:
        raise ClientError(f"{endpoint} answered what cannot be read: {error}") from error
    if not re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII):
        raise ClientError(f"{endpoint} answered {quote(text)} as {name}, which is no number")
    return int(text)


def _reason(error: OSError) -> str:
    """Why a connection was not made, in the system's own words where it has any, or in those of TLS."""
    reason = getattr(error, "verify_message", None) or getattr(error, "reason", None)
    if reason:
        return f"TLS: {str(reason).lower().replace('_', ' ')}"
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)


def _broker_id(digits: str) -> tuple[int, str]:
    """The order of broker ids, which are numbers written as digits: the master is 0."""
    return len(digits), digits
