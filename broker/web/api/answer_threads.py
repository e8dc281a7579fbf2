"""Threads that answer requests about stores: for the JSON API, for assistants and for tools that ask by gRPC.

What reads the store never runs on the event loop. Each client has a line of its own to the threads, and there is an end
to how many may wait. A client that goes away stops the work that was done for it.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar, cast

from broker.security.accounts import Account
from broker.service.broker_service import BrokerService
from broker.service.lookup_pool import LookupPool
from broker.web.api.errors import ApiError, ClientGone, not_found
from broker.web.api.request_context import RequestContext

Result = TypeVar("Result")

THREADS: Final = 3
MOST_WAITING: Final = 32
"""Requests that are answered or wait for a thread; further ones are refused."""
MOST_OF_ONE: Final = 24
"""Those of one client."""

ANSWER_SECONDS: Final = 18.0
"""How long an answer may take at most; the HTTP port closes connections some seconds later."""


class AnswerThreads:
    """The threads of one port, for some stores; all methods are called on the event loop."""

    def __init__(self, services: Sequence[BrokerService], *, needs_keys: bool) -> None:
        """Answer for some stores, the first unless a request names another; `needs_keys`: clients need an account."""
        self._services = {service.broker_name: service for service in services}
        self.first = services[0]
        self._needs_keys = needs_keys
        self._pool = LookupPool(THREADS)
        self._working: set[RequestContext] = set()

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of all brokers whose stores are served."""
        return tuple(self._services)

    @property
    def is_idle(self) -> bool:
        """Whether the threads have nothing to do."""
        return len(self._pool) == 0

    def close(self) -> None:
        """Answer no more; what is under way ends at its next look at the clock."""
        for context in self._working:
            context.gone.set()
        self._pool.close()

    def context(self, broker: str | None, account: Account | None) -> RequestContext:
        """Make the context of a request. Raises `ApiError` for an unknown broker."""
        return RequestContext(self.service_of(broker), account, needs_keys=self._needs_keys, brokers=self.brokers)

    def service_of(self, broker: str | None) -> BrokerService:
        """Return the service of a broker, by default the first. Raises `ApiError` for an unknown one."""
        if broker is None:
            return self.first
        service = self._services.get(broker)
        if service is None:
            raise not_found(f"no store of a broker {broker} is served here", "broker")
        return service

    async def run(
        self,
        owner: object,
        context: RequestContext,
        work: Callable[[], Result],
        gone: "asyncio.Future[Any] | None" = None,
        seconds: float | None = None,
    ) -> Result:
        """Have a thread do the work, until it is done, the client is `gone`, or `seconds` or `ANSWER_SECONDS` are over.

        Works of one `owner` wait for one another. Raises `ClientGone`, and `ApiError` also where too many wait.
        """
        if len(self._pool) >= MOST_WAITING or self._pool.count(owner) >= MOST_OF_ONE:
            raise ApiError(503, "busy", "many requests are being answered already; ask again in a moment")
        future: asyncio.Future[Any] = self._pool.run(owner, partial(context.uncut, work))
        self._working.add(context)
        seconds = min(ANSWER_SECONDS, seconds or ANSWER_SECONDS)
        waiting = {future} if gone is None else {future, gone}
        try:
            await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if future.done() and not future.cancelled():
                return cast(Result, future.result())
            if future.cancelled():
                raise ApiError(503, "stopping", "the server stops")
            if gone is not None and gone.done():
                raise ClientGone
            raise ApiError(503, "slow", f"there was no answer within {seconds:.0f} s: the disk may hang")
        finally:
            context.gone.set()
            self._working.discard(context)
            if gone is not None:
                gone.cancel()
            future.cancel()
