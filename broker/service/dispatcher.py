"""From a decoded command to the method that answers it.

A processor is a plain object; each of its methods under `@handles(code, HeaderType)` answers one request code. The
dispatcher collects them into one table, so that a request costs a dict look-up, a typed header and a call. A method
returns a `Response`; an awaitable of one where it must wait for somebody else, and only then the connection makes a
Task; or a look-up of either (:mod:`storage.files.waiting`) where it may have to wait for the disk. The dispatcher takes
a look-up as far as it comes on the event loop. What is unfinished then is handed back, and the connection has the very
same look-up go on in the pool, with `finish_in_pool`.

Only this module turns an error into a response: a `RocketLensError` is answered with its own sentence, by SYSTEM_BUSY
where clients are to ask again (:func:`failure_code`), anything else is logged with its traceback and answered without
inner details.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from types import GeneratorType
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast

import msgspec

from broker.endpoint import Endpoint
from broker.limits import DEFAULT_LIMITS
from broker.service.long_work import LONG_UNITS, PARSED_BODIES, Parsing, begin_on_loop, go_on_on_loop
from broker.service.lookup_pool import LookupPool
from broker.service.refusals import refusal
from broker.service.registry_budget import BudgetSpent
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, Response, decode_header
from protocol.errors import BeingSearched, ProtocolError, RocketLensError, StoreError
from protocol.headers import EmptyRequestHeader
from storage.files.waiting import Lookup, Unfinished

logger = logging.getLogger(__name__)

Answer: TypeAlias = Response | Awaitable[Response]
Step: TypeAlias = Answer | Unfinished[Answer]
"""What a request has come to on the event loop: its answer, or a look-up that has to wait."""
Handling: TypeAlias = Answer | Lookup[Answer]
"""What a method makes of a request: its answer, or the look-up that ends with it."""
Method = TypeVar("Method", bound=Callable[..., Handling])
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


class Request(msgspec.Struct):
    """One request as a processor method sees it that declares a second parameter."""

    command: Command
    connection: ClientConnection


class Handler(NamedTuple):
    """One row of the dispatcher's table: a bound method, the type of its header, whether it takes the `Request` too."""

    method: Callable[..., Handling]
    header_type: type[Any]
    wants_request: bool


def handles(code: RequestCode, header_type: type[Any]) -> Callable[[Method], Method]:
    """Mark a processor method as the one that answers `code`; its header arrives decoded as `header_type`.

    The method takes `(self, header)` or `(self, header, request)` and returns a `Response`, an awaitable of one, or a
    look-up of either. It may bear the decorator several times, for codes that share one answer.
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

    def dispatch(self, command: Command, connection: ClientConnection) -> Step:
        """Answer one request on the event loop, or take it as far as it comes there without waiting."""
        try:
            handling = self.handle(command, connection)
            return begin_on_loop(handling) if isinstance(handling, GeneratorType) else cast(Answer, handling)
        except Exception as error:
            return self.failure(command, error)

    def handle(self, command: Command, connection: ClientConnection) -> Handling:
        """What the method of a request's code makes of it; raises what that raises."""
        handler = self._handlers.get(command.code)
        if handler is None:
            return refusal(command.code)
        if command.body and self.is_unread(command.code, len(command.body)):
            return self.unread(command)
        method, header_type, wants_request = handler
        header = decode_header(command, header_type)
        if wants_request:
            return method(header, Request(command, connection))
        return method(header)

    def finish_in_pool(
        self,
        command: Command,
        connection: ClientConnection,
        unfinished: Unfinished[Answer],
        warm: Callable[[], None] | None = None,
    ) -> "asyncio.Future[Answer]":
        """Have the look-up of a request go on on a thread that may wait; the result is its answer.

        `warm` is called there in the place of the look-up's own, and is to call that.
        """
        wait = unfinished.wait
        warm = wait.warm if warm is None else warm
        pool = self._parsers[wait.units >= LONG_UNITS] if isinstance(wait, Parsing) else self._pool
        if len(pool) >= WAITING_LIMIT:
            refused: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            refused.set_result(Response(ResponseCode.SYSTEM_BUSY, remark=BUSY))
            return refused
        if isinstance(wait, Parsing) and wait.is_part:
            parsed = pool.run(connection, warm)
            return asyncio.ensure_future(self._go_on_after(parsed, command, connection, unfinished))
        return pool.run(connection, partial(self._finish, command, unfinished, warm))

    async def _go_on_after(
        self,
        parsed: "asyncio.Future[None]",
        command: Command,
        connection: ClientConnection,
        unfinished: Unfinished[Answer],
    ) -> Answer:
        """Go on with a request once what it needs is parsed: here, or where its look-ups may wait."""
        await parsed
        try:
            step = go_on_on_loop(unfinished)
        except Exception as error:
            return self.failure(command, error)
        return await self.finish_in_pool(command, connection, step) if isinstance(step, Unfinished) else step

    def _finish(self, command: Command, unfinished: Unfinished[Answer], warm: Callable[[], None]) -> Answer:
        """Wait for what is missing, then go on to the end."""
        try:
            warm()
            return unfinished.resume()
        except Exception as error:
            return self.failure(command, error)

    def unread(self, command: Command) -> Response:
        """The refusal of a request whose body is too long to be read."""
        length, limit = len(command.body), self._body_limit
        what = f"the body of request code {command.code}"
        remark = f"{what} has {length} bytes, more than the limit of {limit} (body_bytes)"
        return Response(ResponseCode.SYSTEM_ERROR, remark)

    def run_in_pool(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Have `work` done on a thread of the pool, however many wait for one."""
        return self._pool.run(None, work)

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
