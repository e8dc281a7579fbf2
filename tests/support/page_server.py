"""A page over stores, served on a thread beside a test."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

from starlette.routing import Route

from broker.config import ASK_ON_THE_PAGE, HttpAuth
from broker.metrics.metrics_rows import MetricsRows
from broker.net.listeners import bind_listeners, close_listeners
from broker.security.accounts import watched_accounts
from broker.service.broker_service import BrokerService
from broker.web.api.access import Access
from broker.web.api.application import Api
from broker.web.port import WebPort
from broker.web.site import Site
from broker_harness import LOOPBACK, in_a_thread


@contextlib.asynccontextmanager
async def _page(
    services: Sequence[BrokerService],
    accounts: Path | None,
    port: int,
    auth: HttpAuth,
    more: Callable[[Api], Sequence[Route]],
) -> AsyncIterator[str]:
    (listener,) = bind_listeners([LOOPBACK._replace(port=port)])
    api = Api(services, Access(accounts=None if accounts is None else watched_accounts(accounts), auth=auth))
    site = Site(MetricsRows(), lambda _accept: (b"", "text/plain"), api, more=more(api))
    web = WebPort(site, [listener])
    loop = asyncio.get_running_loop()
    try:
        for service in services:
            service.polls.start(lambda work: loop.run_in_executor(None, work))
        await web.start()
        yield f"http://127.0.0.1:{listener.endpoint.port}"
    finally:
        await web.stop()
        for service in services:
            service.polls.stop()
        close_listeners([listener])


@contextlib.contextmanager
def serving_page(
    services: Sequence[BrokerService],
    accounts: Path | None = None,
    port: int = 0,
    auth: HttpAuth = ASK_ON_THE_PAGE,
    more: Callable[[Api], Sequence[Route]] = lambda _api: (),
) -> Iterator[str]:
    """The origin of a page over stores, served on a thread; on a free port, or on one that was free before."""
    with in_a_thread(lambda: _page(services, accounts, port, auth, more)) as origin:
        yield origin
