"""What all calls have in common: who calls, threads, deadlines, rights, errors, counting and the audit log.

A method of a service is a coroutine of a `Call` and its request. What it raises becomes the status of its answer. Bytes
that are no request are answered INVALID_ARGUMENT by gRPC, and a method whose answer has no status PERMISSION_DENIED.
What is not served at all is UNIMPLEMENTED, with the reason.
"""

import asyncio
import ipaddress
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError, Message
from grpc.aio import ServicerContext

from broker.endpoint import Endpoint
from broker.grpc.messages.definition_pb2 import Code
from broker.grpc.open_calls import OpenCall, OpenCalls
from broker.grpc.signature import signature_of
from broker.grpc.statuses import CallRefused, CallUnserved, status_of
from broker.metrics.metrics_meter import Meter
from broker.metrics.metrics_rows import MetricsRows
from broker.security.accounts import Account, Accounts
from broker.security.audit_log import AuditLog
from broker.security.logins import LoginRefused, Logins
from broker.security.watched_files import Watched
from broker.service.broker_service import BrokerService
from broker.service.dispatcher import ClientConnection, Dispatcher
from broker.service.pending_reply import PendingReply
from broker.web.api.answer_threads import AnswerThreads
from broker.web.api.errors import ApiError
from broker.web.api.looks import AuditedClient
from broker.web.api.request_context import RequestContext
from protocol.codes import OwnRequestCode, RequestCode, ResponseCode
from protocol.command import Command, Response
from storage.files.waiting import Unfinished

Result = TypeVar("Result")

PACKAGE: Final = "apache.rocketmq.v2"
CANCELLED: Final = "CANCELLED"

ASK_SECONDS: Final = 10.0
"""How long worker 0 may take to answer, and a client that is asked on behalf of another."""

METADATA: Final = ("x-mq-client-id", "x-mq-namespace", "x-mq-language", "x-mq-client-version", "x-mq-request-id")
"""What clients say of themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalledMethod:
    """A method, `SERVICE/METHOD`, as an audit log has it; `shows` None: no message of a store is shown."""

    name: str
    shows: object = None

    @property
    def request(self) -> str:
        """What was asked."""
        return f"gRPC {self.name}"


class CallConnection:
    """A client's connection as the processors of the broker's port see it; nothing is pushed to it."""

    def __init__(self, local_address: Endpoint, peer_address: Endpoint) -> None:
        self.local_address, self.peer_address = local_address, peer_address
        self.is_open = True

    def push(self, frame: bytes) -> None:
        """Leave it out."""


@dataclass(frozen=True, slots=True)
class ServedStores:
    """The stores of this process: their services, the tables that answer request codes, and the figures of all.

    `connection` stands for all tools: worker 0 is told when a client's connection ends, and theirs never does. Its
    local address is that of the first broker's port.
    """

    services: Sequence[BrokerService]
    dispatchers: Sequence[Dispatcher]
    rows: MetricsRows
    connection: CallConnection

    async def ask(
        self,
        service: BrokerService,
        code: RequestCode | OwnRequestCode,
        fields: Mapping[str, str],
        connection: ClientConnection,
        body: bytes = b"",
        seconds: float = ASK_SECONDS,
        language: str | None = None,
    ) -> Response:
        """Have a request answered as at the port of a store's broker, by worker 0 if it is about groups or offsets.

        Rights are to be checked before. Raises `CallRefused` where there is no answer in time.
        """
        dispatcher = self.dispatchers[list(self.services).index(service)]
        command = Command(code=int(code), language=language, ext_fields=dict(fields), body=body)
        answer = dispatcher.dispatch(command, connection)
        try:
            async with asyncio.timeout(seconds):
                if isinstance(answer, Unfinished):
                    answer = await dispatcher.finish_in_pool(command, connection, answer)
                return answer if isinstance(answer, Response) else await answer
        except TimeoutError:
            raise CallRefused(Code.PROXY_TIMEOUT, f"{code.name} was not answered within {seconds:g} s") from None
        finally:
            if isinstance(answer, PendingReply):
                answer.give_up()  # nobody waits any more


@dataclass(slots=True, eq=False)
class Call:
    """One call: `account` None: everything may be seen. `client` is its address for logs, `address` a known IP.

    `peer` is that address as processors of the broker's port see it.
    """

    method: CalledMethod
    account: Account | None
    address: str | None
    client: str
    peer: Endpoint
    metadata: Mapping[str, str]
    stores: ServedStores
    threads: AnswerThreads
    audit_log: AuditLog | None
    servicer: "ServicerContext[Any, Any]"

    @property
    def looker(self) -> AuditedClient:
        """The client, as the audit log names it."""
        return AuditedClient(self.client, self.audit_log)

    def context(self, service: BrokerService | None = None) -> RequestContext:
        """What this call may see of a store, by default of the first."""
        return RequestContext(self.stores.services[0] if service is None else service, self.account)

    async def run(self, context: RequestContext, work: Callable[[], Result]) -> Result:
        """Have a thread do the work until the call's deadline. Raises `ApiError`."""
        seconds = self.servicer.time_remaining()
        return await self.threads.run(self.address, context, work, seconds=seconds)

    async def ask(
        self,
        service: BrokerService,
        code: RequestCode | OwnRequestCode,
        fields: Mapping[str, str],
        body: bytes = b"",
        accepted: Sequence[ResponseCode] = (),
        connection: ClientConnection | None = None,
        seconds: float = ASK_SECONDS,
    ) -> Response:
        """As :meth:`ServedStores.ask`, by default for a tool.

        Raises `CallRefused` unless the answer is SUCCESS or one of the `accepted`.
        """
        language = self.metadata.get("x-mq-language")
        asking = self.stores.connection if connection is None else connection
        answer = await self.stores.ask(service, code, fields, asking, body, seconds, language)
        if answer.code != ResponseCode.SUCCESS and answer.code not in accepted:
            raise CallRefused(_ANSWERS.get(answer.code, Code.INTERNAL_SERVER_ERROR), answer.remark or "no answer")
        return answer


_ANSWERS: Final[Mapping[int, "Code"]] = {
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.CONSUMER_NOT_ONLINE: Code.NOT_FOUND,
    ResponseCode.QUERY_NOT_FOUND: Code.NOT_FOUND,
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.UNSUPPORTED,
    ResponseCode.INVALID_PARAMETER: Code.BAD_REQUEST,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
}

Answer = Callable[[Call, Any], Awaitable[Any]]
"""Answers a request by a message; that of a stream by some, of which the first has the status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedMethod(CalledMethod):
    """A method with one request and one answer, or a stream of them."""

    request_type: type[Message]
    response_type: type[Message]
    answer: Answer
    is_stream: bool

    @property
    def has_status(self) -> bool:
        """Whether its answers have room for a status."""
        return "status" in self.response_type.DESCRIPTOR.fields_by_name

    async def answers(self, call: Call, data: bytes) -> Sequence[Any]:
        """The answers to a request. Raises `DecodeError`, and what the method raises."""
        request = self.request_type.FromString(data)
        answer = await self.answer(call, request)
        return answer if self.is_stream else (answer,)


async def refuse_write(call: Call, _request: Message) -> NoReturn:
    """Refuse what would change something."""
    raise CallRefused(
        Code.FORBIDDEN, f"this server only reads: {call.method.name.partition('/')[2]} is not possible here"
    )


class CallRunner:
    """Runs the calls of all services; all methods are the event loop's."""

    def __init__(
        self,
        stores: ServedStores,
        accounts: Watched[Accounts] | None,
        audit_log: AuditLog | None,
        meter: Meter | None,
    ) -> None:
        self.stores = stores
        limits = stores.services[0].options.limits
        self._open = OpenCalls(limits)
        self.request_seconds = limits.frame_seconds
        """How long the first request of a call may take to come."""
        self.threads = AnswerThreads(stores.services, needs_keys=accounts is not None)
        broker = stores.services[0].broker_name
        self._logins = None if accounts is None else Logins("gRPC", accounts, audit_log, broker)
        self._audit_log, self._meter = audit_log, meter
        self.stopped: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the server stops: what stays open by itself is to end."""

    def note_stopping(self) -> None:
        """End what stays open by itself."""
        if not self.stopped.done():
            self.stopped.set_result(None)

    def handlers(
        self, module: Any, service: str, answers: Mapping[str, Answer], shows: Collection[str] = ()
    ) -> "dict[str, grpc.RpcMethodHandler[Any, Any]]":
        """The handlers of methods of a service of generated messages by their names; some show messages."""
        found: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        for name, answer in answers.items():
            described = module.DESCRIPTOR.services_by_name[service].methods_by_name[name]
            method = ServedMethod(
                name=f"{service}/{name}",
                shows=True if name in shows else None,
                request_type=getattr(module, described.input_type.name),
                response_type=getattr(module, described.output_type.name),
                answer=answer,
                is_stream=described.server_streaming,
            )
            # Requests are read here, whatever their number: one that does not come must not keep its call open.
            if method.is_stream:
                found[name] = grpc.stream_stream_rpc_method_handler(partial(self._stream, method))
            else:
                found[name] = grpc.stream_unary_rpc_method_handler(partial(self._unary, method))
        return found

    def begin(self, method: CalledMethod, servicer: "ServicerContext[Any, Any]") -> Call:
        """Admit a call. Raises `LoginRefused`, `TooManyLogins`, and `AuditError` for what cannot be written down."""
        pairs = servicer.invocation_metadata() or ()
        metadata = {key: value for key, value in pairs if isinstance(value, str)}
        address, client = _address_of(servicer.peer())
        looker = AuditedClient(client, self._audit_log)
        try:
            account = self._account_of(method, address, client, metadata)
        except LoginRefused as error:
            if not error.is_noted:
                refused = ApiError(401, "unauthorized", str(error))
                looker.note_refused(method, self.stores.services[0].broker_name, refused)
            raise
        peer = Endpoint(client, _port_of(servicer.peer()))
        return Call(
            method, account, address, client, peer, metadata, self.stores, self.threads, self._audit_log, servicer
        )

    def count(self, name: str, result: str, started: int) -> None:
        """Count a call that began at `started` (ns of perf_counter) and has ended."""
        if self._meter is not None:
            self._meter.called(name, result, time.perf_counter_ns() - started)

    def _account_of(
        self, method: CalledMethod, address: str | None, client: str, metadata: Mapping[str, str]
    ) -> Account | None:
        if self._logins is None or self._logins.is_white(address):
            return None
        signed = signature_of(metadata)
        if not signed.access_key:
            raise LoginRefused("this server asks for calls that are signed by an access key", is_noted=False)
        return self._logins.log_in(address, client, method.request, signed.access_key, signed.signature, signed.prove)

    async def admit(self, servicer: "ServicerContext[Any, Any]") -> OpenCall:
        """Count a call until it is over; one too many of its address is aborted."""
        try:
            return self._open.begin(servicer)
        except CallRefused as error:
            await servicer.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))

    async def _unary(self, method: ServedMethod, _requests: object, servicer: "ServicerContext[Any, Any]") -> bytes:
        (answer,) = await self._answered(method, servicer)
        return answer

    async def _stream(self, method: ServedMethod, _requests: object, servicer: "ServicerContext[Any, Any]") -> None:
        for answer in await self._answered(method, servicer):
            await servicer.write(answer)

    async def _answered(self, method: ServedMethod, servicer: "ServicerContext[Any, Any]") -> Sequence[bytes]:
        started, result = time.perf_counter_ns(), CANCELLED
        try:
            opened = await self.admit(servicer)
            data = await self._request(servicer)
            try:
                responses = await method.answers(self.begin(method, servicer), data)
                answers = [each.SerializeToString() for each in responses]
                opened.hold(sum(map(len, answers)))
            except DecodeError:
                result = "BAD_REQUEST"
                text = f"this is no {method.request_type.DESCRIPTOR.name}"
                await servicer.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
            except CallUnserved as error:
                result = "NOT_IMPLEMENTED"
                await servicer.abort(grpc.StatusCode.UNIMPLEMENTED, str(error))
            except Exception as error:
                status = status_of(error)
                if not method.has_status:
                    result = "FORBIDDEN"
                    await servicer.abort(grpc.StatusCode.PERMISSION_DENIED, status.message)
                responses = (method.response_type(status=status),)
                answers = [responses[0].SerializeToString()]
            result = Code.Name(responses[0].status.code) if method.has_status else "OK"
            return answers
        finally:
            self.count(method.name, result, started)

    async def _request(self, servicer: "ServicerContext[Any, Any]") -> bytes:
        """The one request of a call; a call without one is aborted."""
        try:
            async with asyncio.timeout(self.request_seconds):
                data = await servicer.read()
        except TimeoutError:
            await servicer.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no request within {self.request_seconds} s")
        if not isinstance(data, bytes):
            await servicer.abort(grpc.StatusCode.INVALID_ARGUMENT, "the request is missing")
        return data


def _address_of(peer: str) -> tuple[str | None, str]:
    """The IP address in `ipv4:127.0.0.1:5000` or `ipv6:%5B::1%5D:5000`, None where there is none; and what to log."""
    kind, _, rest = peer.partition(":")
    host = unquote(rest).rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        return (str(ipaddress.ip_address(host)), host) if kind in ("ipv4", "ipv6") else (None, peer)
    except ValueError:
        return None, peer


def _port_of(peer: str) -> int:
    """The port in `ipv4:127.0.0.1:5000`, 0 where there is none."""
    port = peer.rpartition(":")[2]
    return int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
