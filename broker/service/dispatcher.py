"""From a decoded command to the method that answers it.

A processor is a plain object; each of its methods under `@handles(code, HeaderType)` answers one request code. The
dispatcher collects them into one table, so that a request costs a dict look-up, a typed header and a call. A method
returns a `Response`, or an awaitable of one when it must wait; only then the connection makes a Task.

Only this module turns an error into a response: a `RocketLensError` is answered with its own sentence, by SYSTEM_BUSY
where clients are to ask again (:func:`failure_code`), anything else is logged with its traceback and answered without
inner details. `Cold` alone passes through: storage raises it on the event loop instead of waiting, and the connection
runs the same request again with `dispatch_in_pool`.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from broker.endpoint import Endpoint
from broker.limits import DEFAULT_LIMITS
from broker.service.long_work import LONG_UNITS, PARSED_BODIES, LongParse
from broker.service.lookup_pool import LookupPool
from broker.service.refusals import refusal
from broker.service.registry_budget import BudgetSpent
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, Response, decode_header
from protocol.errors import BeingSearched, ProtocolError, RocketLensError, StoreError
from protocol.headers import EmptyRequestHeader
from storage.files.residency import Cold

logger = logging.getLogger(__name__)

Answer: TypeAlias = Response | Awaitable[Response]
Method = TypeVar("Method", bound=Callable[..., Answer])
Result = TypeVar("Result")

PULLS = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))

BUSY = "[OVERLOAD]system busy, start flow control for a while"
INTERNAL_ERROR = "internal error, the broker's log says more"

WAITING_LIMIT = 1024
"""Requests that may wait for a thread of the pool, all connections together; more are answered SYSTEM_BUSY."""


class ClientConnection(Protocol):
    """What a processor may know of the connection that asks."""

    @property
    def local_address(self) -> Endpoint:
        """Our address as this client reached it, for answers to name (the main port, also on the VIP port)."""

    @property
    def peer_address(self) -> Endpoint:
        """The client's own address."""

    @property
    def is_open(self) -> bool:
        """Whether the client is still there."""

    def push(self, frame: bytes) -> None:
        """Send the client a frame that it did not ask for; nothing happens when it is gone. The event loop's alone."""


class Warming(Protocol):
    """Brings in what a request has to wait for: the `Cold` that was raised, or an object that times it."""

    @property
    def origin(self) -> Cold | None:
        """The `Cold` that was raised; None where no thread is to wait for anything."""

    def warm(self) -> None:
        """Bring in what was missing; waits for the disk."""


class Request(msgspec.Struct):
    """One request as a processor method sees it that declares a second parameter."""

    command: Command
    connection: ClientConnection


class Handler(NamedTuple):
    """One row of the dispatcher's table: a bound method, the type of its header, whether it takes the `Request` too."""

    method: Callable[..., Answer]
    header_type: type[Any]
    wants_request: bool


def handles(code: RequestCode, header_type: type[Any]) -> Callable[[Method], Method]:
    """Mark a processor method as the one that answers `code`; its header arrives decoded as `header_type`.

    The method takes `(self, header)` or `(self, header, request)` and returns a `Response` or an awaitable of one. It
    may bear the decorator several times, for codes that share one answer.
    """

    def mark(method: Method) -> Method:
        rows: list[tuple[RequestCode, type[Any]]] = method.__dict__.setdefault("handled_codes", [])
        rows.append((code, header_type))
        return method

    return mark


def handled_methods(processor: type[Any]) -> Iterator[tuple[RequestCode, type[Any], str]]:
    """Yield (code, header type, method name) for each `@handles` of a processor class."""
    for name, member in inspect.getmembers(processor, inspect.isfunction):
        for code, header_type in getattr(member, "handled_codes", ()):
            yield code, header_type, name


def check_families(processors: Iterable[type[Any]]) -> None:
    """Raise `TypeError` when two methods answer one code; called where the families are listed, so at import."""
    owners: dict[int, str] = {}
    for processor in processors:
        for code, _, name in handled_methods(processor):
            owner = f"{processor.__name__}.{name}"
            if owners.setdefault(code, owner) != owner:
                raise TypeError(f"request code {code} has two handlers: {owners[code]} and {owner}")


def is_better_unanswered(code: int, response_code: int) -> bool:
    """Whether a client does the right thing without an answer alone: it waits some seconds, and asks again later.

    Java clients up to 4.9 take every error that answers QUERY_CONSUMER_OFFSET for *no offset*. They start at one end of
    the queue then and commit that, so that the group has lost its place for good. Without an answer clients of all
    versions leave the queue alone until they get an offset.
    """
    return code == RequestCode.QUERY_CONSUMER_OFFSET and response_code == ResponseCode.SYSTEM_BUSY


def failure_code(code: int, error: BaseException) -> ResponseCode:
    """The code that tells a client of an error: SYSTEM_BUSY where it is to ask again for the same, some seconds later.

    So it is while something else is done first, and where a store cannot tell what a queue holds: consumers take other
    errors of a pull for an offset that is out of range, and leave their place.
    """
    if isinstance(error, BudgetSpent | BeingSearched) or (isinstance(error, StoreError) and code in PULLS):
        return ResponseCode.SYSTEM_BUSY
    is_withheld = is_better_unanswered(code, ResponseCode.SYSTEM_BUSY) and not isinstance(error, ProtocolError)
    return ResponseCode.SYSTEM_BUSY if is_withheld else ResponseCode.SYSTEM_ERROR


class Dispatcher:
    """The table of all request codes, and the thread pool for the requests that would make the event loop wait."""

    def __init__(
        self, processors: Iterable[object], lookup_threads: int = 4, body_limit: int = DEFAULT_LIMITS.body_bytes
    ) -> None:
        """Collect the methods of `processors`; `lookup_threads` at most, started when first needed.

        Bodies that are read have `body_limit` bytes at most.
        """
        processors = list(processors)
        check_families([type(processor) for processor in processors])
        self._handlers = dict(_rows_of(processors))
        self._pool = LookupPool(lookup_threads)
        # Apart, so that what is parsed keeps no look-up waiting, nor what takes long to parse what does not.
        self._parsers = {is_long: LookupPool(1, "parse") for is_long in (False, True)}
        self._body_limit = body_limit

    def forward(self, codes: Iterable[int], method: Callable[..., Answer]) -> None:
        """Have `method` answer these codes instead of their handlers; it gets an empty header and the request."""
        for code in codes:
            self._handlers[code] = Handler(method, EmptyRequestHeader, True)

    @property
    def codes(self) -> frozenset[int]:
        """The request codes that have a handler."""
        return frozenset(self._handlers)

    @property
    def pool_work(self) -> int:
        """Look-ups that are on a thread or wait for one."""
        return len(self._pool) + sum(map(len, self._parsers.values()))

    @property
    def is_idle(self) -> bool:
        """Whether no thread of the pools is at work and nothing waits for one."""
        return self.pool_work == 0

    def is_unread(self, code: int, body_length: int) -> bool:
        """Whether a request is refused for the length of its body, which nobody will look at."""
        return body_length > self._body_limit and code in PARSED_BODIES

    def dispatch(self, command: Command, connection: ClientConnection) -> Answer:
        """Answer one request; raises `Cold` alone, and only on a thread that may not wait."""
        handler = self._handlers.get(command.code)
        if handler is None:
            return refusal(command.code)
        if command.body and self.is_unread(command.code, len(command.body)):
            return self.unread(command)
        method, header_type, wants_request = handler
        try:
            header = decode_header(command, header_type)
            if wants_request:
                return method(header, Request(command, connection))
            return method(header)
        except Cold:
            raise
        except Exception as error:
            return self.failure(command, error)

    def dispatch_in_pool(
        self, command: Command, connection: ClientConnection, cold: Warming
    ) -> "asyncio.Future[Answer]":
        """Answer a request that was `cold` on a thread that may wait; the result is what `dispatch` returns there."""
        origin = cold.origin
        pool = self._parsers[origin.units >= LONG_UNITS] if isinstance(origin, LongParse) else self._pool
        if len(pool) >= WAITING_LIMIT:
            refused: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            refused.set_result(Response(ResponseCode.SYSTEM_BUSY, remark=BUSY))
            return refused
        if isinstance(origin, LongParse) and origin.is_part:
            return asyncio.ensure_future(self._dispatch_after(pool.run(connection, cold.warm), command, connection))
        return pool.run(connection, partial(self._dispatch_patiently, command, connection, cold))

    async def _dispatch_after(
        self, parsed: "asyncio.Future[None]", command: Command, connection: ClientConnection
    ) -> Answer:
        """Answer a request once what it needs is parsed: here, or where its look-ups may wait."""
        await parsed
        try:
            return self.dispatch(command, connection)
        except Cold as cold:
            return await self.dispatch_in_pool(command, connection, cold.without_frames())

    def unread(self, command: Command) -> Response:
        """The refusal of a request whose body is too long to be read."""
        length, limit = len(command.body), self._body_limit
        what = f"the body of request code {command.code}"
        remark = f"{what} has {length} bytes, more than the limit of {limit} (body_bytes)"
        return Response(ResponseCode.SYSTEM_ERROR, remark)

    def run_in_pool(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Have `work` done on a thread of the pool, however many wait for one."""
        return self._pool.run(None, work)

    def _dispatch_patiently(self, command: Command, connection: ClientConnection, cold: Warming) -> Answer:
        cold.warm()
        return self.dispatch(command, connection)

    def failure(self, command: Command, error: BaseException) -> Response:
        """Turn an error of a handler into its answer; what is not ours is logged with its traceback."""
        remark, code = str(error), failure_code(command.code, error)
        if not isinstance(error, RocketLensError):
            logger.error("request code %d failed", command.code, exc_info=error)
            remark = INTERNAL_ERROR
        return Response(code, remark=remark)

    def close(self) -> None:
        """Start no further look-up in the pools; those under way end by themselves."""
        for pool in (self._pool, *self._parsers.values()):
            pool.close()


def _rows_of(processors: Iterable[object]) -> Iterator[tuple[int, Handler]]:
    for processor in processors:
        for code, header_type, name in handled_methods(type(processor)):
            method = getattr(processor, name)
            yield int(code), Handler(method, header_type, len(inspect.signature(method).parameters) > 1)
