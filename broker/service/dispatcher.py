"""Calls, for a decoded command, the method that answers it.

A processor is a plain object; each of its methods under `@handles(code, HeaderType)` answers one request code. The
dispatcher collects them into one table, so that a request costs a dict look-up, a typed header and a call. A method
returns one of three things: a `Response`; an awaitable of one, where it waits for another client, and only then the
connection makes a Task; or a look-up of either (:mod:`storage.files.waiting`), where it may have to wait for the disk.
The dispatcher runs a look-up on the event loop until it has to wait. An unfinished one is returned to the connection,
which has it finished in the thread pool, with `finish_in_pool`.

Only this module turns an error into a response. The text of a `RocketLensError` is sent to the client, with SYSTEM_BUSY
where clients are to ask again (:func:`failure_code`). Any other error is logged with its traceback, and the client gets
no details of it.
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
from broker.service._refusals import refusal
from broker.service.long_work import LONG_UNITS, PARSED_BODIES, Parsing, begin_on_loop, go_on_on_loop
from broker.service.lookup_pool import LookupPool
from broker.service.registry_budget import BudgetSpent
from protocol.codes import OwnRequestCode, RequestCode, ResponseCode
from protocol.command import Command, Response, decode_header
from protocol.errors import BeingSearched, ProtocolError, RocketLensError, StoreError
from protocol.headers import EmptyRequestHeader
from storage.files.waiting import Lookup, Unfinished

logger = logging.getLogger(__name__)

Answer: TypeAlias = Response | Awaitable[Response]
Step: TypeAlias = Answer | Unfinished[Answer]
"""The result of a request on the event loop: its answer, or a look-up that has to wait."""
Handling: TypeAlias = Answer | Lookup[Answer]
"""The result of a processor's method: the answer, or the look-up that returns it."""
Method = TypeVar("Method", bound=Callable[..., Handling])
Result = TypeVar("Result")

PULLS = frozenset((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE))

BUSY = "[OVERLOAD]system busy, start flow control for a while"
INTERNAL_ERROR = "internal error, the broker's log says more"

WAITING_LIMIT = 1024
"""Most requests of all connections that wait for a thread of the pool; further ones are answered SYSTEM_BUSY."""


class ClientConnection(Protocol):
    """The connection of a client, as far as processors use it."""

    @property
    def local_address(self) -> Endpoint:
        """Our address as this client reached it, for use in answers; the main port even where it used the VIP port."""

    @property
    def peer_address(self) -> Endpoint:
        """The client's own address."""

    @property
    def is_open(self) -> bool:
        """Whether the connection is still open."""

    def push(self, frame: bytes) -> None:
        """Send the client a frame that it did not ask for, unless it is gone. Called on the event loop only."""


class Request(msgspec.Struct):
    """One request with its connection, for processor methods with a second parameter."""

    command: Command
    connection: ClientConnection


class Handler(NamedTuple):
    """One row of the dispatcher's table: a bound method, its header type, and whether it takes the `Request` too."""

    method: Callable[..., Handling]
    header_type: type[Any]
    wants_request: bool


def handles(code: RequestCode | OwnRequestCode, header_type: type[Any]) -> Callable[[Method], Method]:
    """Mark a processor method as the one that answers `code`; its header arrives decoded as `header_type`.

    The method takes `(self, header)` or `(self, header, request)` and returns a `Response`, an awaitable of one, or a
    look-up of either. A method that answers several codes has the decorator several times.
    """

    def mark(method: Method) -> Method:
        rows: list[tuple[RequestCode | OwnRequestCode, type[Any]]] = method.__dict__.setdefault("handled_codes", [])
        rows.append((code, header_type))
        return method

    return mark


_HANDLED: dict[type[Any], tuple[tuple[RequestCode | OwnRequestCode, type[Any], str], ...]] = {}
"""By processor class: a class is looked through once, however many stores are served."""


def handled_methods(processor: type[Any]) -> tuple[tuple[RequestCode | OwnRequestCode, type[Any], str], ...]:
    """(code, header type, method name) for each `@handles` of a processor class."""
    if processor not in _HANDLED:
        _HANDLED[processor] = tuple(
            (code, header_type, name)
            for name, member in inspect.getmembers(processor, inspect.isfunction)
            for code, header_type in getattr(member, "handled_codes", ())
        )
    return _HANDLED[processor]


def check_families(processors: Iterable[type[Any]]) -> None:
    """Raise `TypeError` when two methods answer one code; called at import by the module that lists the families."""
    owners: dict[int, str] = {}
    for processor in processors:
        for code, _, name in handled_methods(processor):
            owner = f"{processor.__name__}.{name}"
            if owners.setdefault(code, owner) != owner:
                raise TypeError(f"request code {code} has two handlers: {owners[code]} and {owner}")


def is_better_unanswered(code: int, response_code: int) -> bool:
    """Whether a request is better left unanswered, because the error would make clients lose their offset.

    Java clients up to 4.9 treat every error in answer to QUERY_CONSUMER_OFFSET as *no offset*. They start at the
    beginning or end of the queue then and commit that, so that the group's offset is lost. Without an answer, clients
    of all versions do not consume the queue, and ask again some seconds later.
    """
    return code == RequestCode.QUERY_CONSUMER_OFFSET and response_code == ResponseCode.SYSTEM_BUSY


def failure_code(code: int, error: BaseException) -> ResponseCode:
    """The response code for an error: SYSTEM_BUSY where the client is to repeat the request some seconds later.

    It is used when the budget of registries is spent or the log is being searched, and when a pull meets a damaged
    store: consumers treat other errors of a pull as an offset that is out of range, and change their offset.
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
        """Collect the methods of `processors`; at most `lookup_threads` threads are started, when first needed.

        A request with a body of more than `body_limit` bytes, where the body would be parsed, is refused.
        """
        processors = list(processors)
        check_families([type(processor) for processor in processors])
        self._handlers = dict(_rows_of(processors))
        self._pool = LookupPool(lookup_threads)
        # Parsing has threads of its own, so that it delays no look-up; long parsing has one too, so that it delays
        # no short parsing.
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
        """The number of requests that are on a thread of the pools or wait for one."""
        return len(self._pool) + sum(map(len, self._parsers.values()))

    @property
    def is_idle(self) -> bool:
        """Whether no thread of the pools is at work and nothing waits for one."""
        return self.pool_work == 0

    def is_unread(self, code: int, body_length: int) -> bool:
        """Whether a request is refused because its body is too long; the body is not parsed then."""
        return body_length > self._body_limit and code in PARSED_BODIES

    def dispatch(self, command: Command, connection: ClientConnection) -> Step:
        """Answer one request on the event loop; a request that has to wait is returned as an unfinished look-up."""
        try:
            handling = self.handle(command, connection)
            return begin_on_loop(handling) if isinstance(handling, GeneratorType) else cast(Answer, handling)
        except Exception as error:
            return self.failure(command, error)

    def handle(self, command: Command, connection: ClientConnection) -> Handling:
        """Call the method of a request's code; returns what the method returns, and raises what it raises."""
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
        """Finish the look-up of a request on a thread of the pool, which may wait; the future's result is the answer.

        `warm`, if given, is called on that thread instead of the look-up's own `warm`, and has to call that one.
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
        """Go on with a request when its parsing is done: on the event loop, or on a thread if it has to wait again."""
        await parsed
        try:
            step = go_on_on_loop(unfinished)
        except Exception as error:
            return self.failure(command, error)
        return await self.finish_in_pool(command, connection, step) if isinstance(step, Unfinished) else step

    def _finish(self, command: Command, unfinished: Unfinished[Answer], warm: Callable[[], None]) -> Answer:
        """Wait for what the look-up needs, then finish it. Called on a thread of the pool."""
        try:
            warm()
            return unfinished.resume()
        except Exception as error:
            return self.failure(command, error)

    def unread(self, command: Command) -> Response:
        """Return the error response to a request whose body is too long."""
        length, limit = len(command.body), self._body_limit
        what = f"the body of request code {command.code}"
        remark = f"{what} has {length} bytes, more than the limit of {limit} (body_bytes)"
        return Response(ResponseCode.SYSTEM_ERROR, remark)

    def run_in_pool(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Have `work` done on a thread of the pool, without a limit to how many requests wait for one."""
        return self._pool.run(None, work)

    def failure(self, command: Command, error: BaseException) -> Response:
        """Turn an error of a handler into its answer; one that is no `RocketLensError` is logged with its traceback."""
        remark, code = str(error), failure_code(command.code, error)
        if not isinstance(error, RocketLensError):
            logger.error("request code %d failed", command.code, exc_info=error)
            remark = INTERNAL_ERROR
        return Response(code, remark=remark)

    def close(self) -> None:
        """Start no further work in the pools; what has begun ends by itself."""
        for pool in (self._pool, *self._parsers.values()):
            pool.close()


def _rows_of(processors: Iterable[object]) -> Iterator[tuple[int, Handler]]:
    for processor in processors:
        for code, header_type, name in handled_methods(type(processor)):
            method = getattr(processor, name)
            yield int(code), Handler(method, header_type, len(inspect.signature(method).parameters) > 1)
