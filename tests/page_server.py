"""A page over stores, served on a thread beside a test."""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from broker.broker_service import BrokerService
from broker.listeners import bind_listeners, close_listeners
from broker.metrics_rows import MetricsRows
from broker.security.accounts import watched_accounts
from broker.web.api.application import Api
from broker.web.port import WebPort
from broker.web.site import Site
from broker_harness import DEADLINE_SECONDS, LOOPBACK


@contextlib.contextmanager
def serving_page(services: Sequence[BrokerService], accounts: Path | None = None) -> Iterator[str]:
    """The origin of a page over stores, served on a thread."""
    started: concurrent.futures.Future[str] = concurrent.futures.Future()
    stop = threading.Event()

    async def serve() -> None:
        (listener,) = bind_listeners([LOOPBACK])
        api = Api(services)
        if accounts is not None:
            api.access.accounts = watched_accounts(accounts)
        port = WebPort(Site(MetricsRows(), lambda _accept: (b"", "text/plain"), api), [listener])
        try:
            port.start()
            started.set_result(f"http://127.0.0.1:{listener.endpoint.port}")
            await asyncio.to_thread(stop.wait)
        finally:
            await port.stop()
            close_listeners([listener])

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        yield started.result(DEADLINE_SECONDS)
    finally:
        stop.set()
        thread.join()
