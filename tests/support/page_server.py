"""A page over stores, served on a thread beside a test."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

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
async def _page(services: Sequence[BrokerService], accounts: Path | None) -> AsyncIterator[str]:
    (listener,) = bind_listeners([LOOPBACK])
    api = Api(services, Access(accounts=None if accounts is None else watched_accounts(accounts)))
    port = WebPort(Site(MetricsRows(), lambda _accept: (b"", "text/plain"), api), [listener])
    try:
        port.start()
        yield f"http://127.0.0.1:{listener.endpoint.port}"
    finally:
        await port.stop()
        close_listeners([listener])


@contextlib.contextmanager
def serving_page(services: Sequence[BrokerService], accounts: Path | None = None) -> Iterator[str]:
    """The origin of a page over stores, served on a thread."""
    with in_a_thread(lambda: _page(services, accounts)) as origin:
        yield origin
