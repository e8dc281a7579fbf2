"""Questions to the API without a socket, its application over a store; and the page, served on a thread."""

import asyncio
import atexit
import base64
import contextlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx

from blocking_client import eventually
from broker.config import ASK_ON_THE_PAGE
from broker.metrics.metrics_rows import MetricsRows
from broker.net.listeners import bind_listeners, close_listeners
from broker.security.accounts import watched_accounts
from broker.web.api.access import Access
from broker.web.api.application import Api
from broker.web.port import WebPort
from broker.web.site import Site
from broker_harness import DEADLINE_SECONDS, LOOPBACK, in_a_thread, service_of
from storage.store.message_store import MessageStore, StoreOptions

PLACE = "http://127.0.0.1"


@cache
def _runner() -> asyncio.Runner:
    """The loop of all questions: to make one for each, with threads of its own, costs more than most answers."""
    runner = asyncio.Runner()
    atexit.register(runner.close)
    return runner


def answer_of(application, method, path, peer="127.0.0.1", scheme="http", **given) -> httpx.Response:
    """What an application answers without a socket."""

    async def answer() -> httpx.Response:
        how = {"transport": httpx.ASGITransport(application, client=(peer, 4711)), "timeout": DEADLINE_SECONDS}
        async with httpx.AsyncClient(base_url=f"{scheme}://127.0.0.1", **how) as client:
            return await client.request(method, path, **given)

    return _runner().run(answer())


@dataclass
class Answer:
    """Status, headers and body of an answer; `json` is its body where it is JSON."""

    status: int
    headers: dict[str, str]
    content: bytes
    json: Any

    @property
    def error(self) -> dict[str, str]:
        return dict(self.json["error"])


class ApiOf:
    """The API over a store; all questions of a process on one event loop, which runs while it is asked."""

    def __init__(self, root, accounts=None, audit_log=None, **options) -> None:
        self.store = MessageStore.open(root, StoreOptions(tier=options.get("tier")))
        self.service = service_of(self.store, **options)
        watched = None if accounts is None else watched_accounts(accounts)
        given = self.service.options
        broker = self.service.broker_name
        access = Access(given.http_hosts, given.http_proxies, watched, given.http_auth, audit_log, broker)
        self.api = Api([self.service], access, audit_log)
        self.application = self.api.application()

    def ask(self, path, *, method="GET", headers=None, peer="127.0.0.1", **given):
        """Ask a path from an address with query parameters, a trailing underscore of whose names is left out."""
        asked = {name.rstrip("_"): value for name, value in given.items() if value is not None}
        answer = answer_of(self.application, method, path, peer, params=asked, headers=headers)
        is_json = answer.headers.get("content-type", "").startswith("application/json") and answer.content
        return Answer(answer.status_code, dict(answer.headers), answer.content, answer.json() if is_json else None)

    def get(self, path: str, **parameters: Any) -> Any:
        """The JSON of an answer that must be a success."""
        answer = self.ask(path, **parameters)
        assert answer.status == 200, answer.content
        return answer.json

    def done(self, path: str, **parameters: Any) -> Any:
        """The answer to a question about the whole store, once the work for it is done."""

        def look() -> Any:
            answer = self.get(path, **parameters)
            return None if answer["state"] == "running" else answer

        return eventually(look)

    def pages(self, path: str, **parameters: Any) -> list[Any]:
        found = [self.get(path, **parameters)]
        while found[-1]["cursor"] is not None:
            assert len(found) < 500
            found.append(self.get(path, **{**parameters, "cursor": found[-1]["cursor"]}))
        return found


def keys(access_key: str, secret: str) -> dict[str, str]:
    """The header with which a client says who it is."""
    return {"Authorization": "Basic " + base64.b64encode(f"{access_key}:{secret}".encode()).decode()}


@contextlib.asynccontextmanager
async def _page(services, accounts, port, auth, more):
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
def serving_page(services, accounts=None, port=0, auth=ASK_ON_THE_PAGE, more=lambda _api: ()):
    """The origin of a page over stores, served on a thread; on a free port, or on one that was free before."""
    with in_a_thread(lambda: _page(services, accounts, port, auth, more)) as origin:
        yield origin
