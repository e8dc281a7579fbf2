"""The HTTP port, by TLS too and while a store is opened: what it answers and refuses, and no client keeps it."""

import asyncio
import contextlib
import json
import logging
import re
import shutil
import socket
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass

import httpx
import pytest

from broker.config import HttpAuth, TlsOptions
from broker.endpoint import Endpoint
from broker.metrics import metrics_rows as rows
from broker.metrics.metrics_rows import MetricsRows
from broker.net.listeners import bind_listeners, close_listeners
from broker.net.tls import watched_http_context
from broker.web import _http_server
from broker.web import site as site_module
from broker.web.api.access import Access
from broker.web.port import WebPort
from broker.web.site import Site
from broker.web.starting import answering
from broker_harness import DEADLINE_SECONDS, LOOPBACK, until
from certificates import Authority


class Page:
    def __init__(self) -> None:
        self.body = b"figures 1\n"
        self.error: Exception | None = None
        self.release = threading.Event()
        self.release.set()
        self.rendered = 0

    def render(self, accept: str) -> tuple[bytes, str]:
        self.rendered += 1
        assert self.release.wait(DEADLINE_SECONDS)
        if self.error is not None:
            raise self.error
        return self.body, f"text/plain; accept={accept}"


class Web:
    def __init__(self) -> None:
        self.page, self.rows = Page(), MetricsRows()
        (self.listener,) = bind_listeners([LOOPBACK])
        self.published: list[int] = []
        self.site = Site(self.rows, self.page.render, before_render=lambda: self.published.append(1))
        self.port = WebPort(self.site, [self.listener])
        self.address = self.listener.endpoint

    async def ask(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(request)
            async with asyncio.timeout(DEADLINE_SECONDS):
                return await reader.read()
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    async def get(self, path: str, method: str = "GET", headers: str = "") -> tuple[int, str, bytes]:
        host = "" if "Host:" in headers else "Host: 127.0.0.1\r\n"
        request = f"{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n{headers}\r\n".encode()
        head, _, body = (await self.ask(request)).partition(b"\r\n\r\n")
        return int(head.split()[1]), head.decode().lower(), body


@contextlib.asynccontextmanager
async def serving_web():
    web = Web()
    try:
        await web.port.start()
        yield web
    finally:
        web.page.release.set()
        await web.port.stop()
        close_listeners([web.listener])


async def test_ready_is_who_serves_with_all_workers_and_does_not_stop() -> None:
    async with serving_web() as web:
        assert (await web.get("/readyz"))[0] == 503
        row = web.rows.begin(0)
        row[rows.STATE], row[rows.HEARTBEAT] = rows.SERVING, 2**62
        status, _, body = await web.get("/readyz")
        assert (status, json.loads(body)) == (200, {"status": "ready", "workers": 1, "workers_serving": 1})
        row[rows.HOLES], row[rows.SEARCH_LEFT] = 3, 5_000
        details = json.loads((await web.get("/readyz"))[2])
        assert (details["queue_holes_searching"], details["queue_search_left_bytes"]) == (3, 5_000)
        web.site.note_stopping()
        status, _, body = await web.get("/readyz")
        assert (status, json.loads(body)["status"]) == (503, "stopping")
        assert (await web.get("/healthz"))[0] == 200


async def test_a_failure_is_logged_and_answered_without_inner_details(caplog: pytest.LogCaptureFixture) -> None:
    async with serving_web() as web:
        web.page.error = RuntimeError("inner detail")
        with caplog.at_level(logging.ERROR):
            status, _, body = await web.get("/metrics")
        assert (status, body) == (500, b"Internal Server Error")
        assert "inner detail" in caplog.text
        web.page.error = None
        assert (await web.get("/metrics"))[0] == 200


async def test_a_disk_that_hangs_stops_neither_health_nor_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site_module, "RENDER_SECONDS", 0.2)
    async with serving_web() as web:
        web.page.release.clear()
        statuses = [status for status, _, _ in await asyncio.gather(web.get("/metrics"), web.get("/metrics"))]
        assert statuses == [503, 503]
        assert (await web.get("/healthz"))[0] == 200
        # All who asked meanwhile waited for one reading.
        assert web.page.rendered == 1
        assert not web.site.is_idle
        web.page.release.set()
        await until(lambda: web.site.is_idle)
        assert (await web.get("/metrics"))[0] == 200


SECOND = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
AMBIGUOUS = {
    "body": b"Content-Length: %d\r\n\r\n" % len(SECOND), "body to come": b"Content-Length: 9\r\n\r\n",
    "two equal lengths": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n12345",
    "two lengths": b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(SECOND),
    "list of lengths": b"Content-Length: 5, 5\r\n\r\n12345", "signed length": b"Content-Length: +0\r\n\r\n",
    "length and encoding": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "no length and encoding": b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "odd chunk size": b"Transfer-Encoding: chunked\r\n\r\n0x0;a\r\n\r\n",
    "chunk that ends with a line feed": b"Transfer-Encoding: chunked\r\n\r\n1;\nx\n0\n\n",
    "unknown encoding": b"Transfer-Encoding: xchunked\r\n\r\n",
    "two encodings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "hidden encoding": b"X: 1\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "folded header": b"X: 1\r\n\t2\r\n\r\n", "blank before the colon": b"Content-Length : 0\r\n\r\n",
    "line feeds alone": b"X: 1\nY: 2\r\n\r\n", "line feeds at the end": b"X: 1\n\n",
    "carriage return alone": b"X: 1\rContent-Length: 5\r\n\r\n12345", "second host": b"Host: 127.0.0.1\r\n\r\n",
    "zero byte": b"X: \x00\r\n\r\n"
}  # fmt: skip
"""What follows request line and host: each has been read by some proxy as another request than by its server."""

NO_REQUESTS = {
    "endless header": b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 20_000,
    "endless target": b"GET /" + b"a" * 20_000,
    "remoting frame": b"\x00\x00\x00\x20\x00\x00\x00\x1cnot http at all\r\n\r\n\r\n",
    **{
        line.decode("latin-1"): line + b"\r\nHost: 127.0.0.1\r\n\r\n" + SECOND
        for line in (
            b"GET http://127.0.0.1/healthz HTTP/1.1", b"OPTIONS * HTTP/1.1", b"CONNECT 127.0.0.1:80 HTTP/1.1",
            b"GET healthz HTTP/1.1", b"GET  /healthz HTTP/1.1", b"GET /healthz HTTP/2.0", b"GET /healthz HTTP/0.9",
            b"GET /healthz HTTP/1.2", b"GET /healthz", b"GET /heal\xffthz HTTP/1.1"
        )
    },
    **{
        f"{method.decode()} {name}": method + b" /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + rest + SECOND
        for name, rest in AMBIGUOUS.items()
        for method in (b"GET", b"HEAD", b"POST")
    },
}  # fmt: skip


async def test_what_is_no_request_or_may_be_read_otherwise_by_a_proxy_is_refused_with_all_that_follows(caplog) -> None:
    async with serving_web() as web:
        for name, sent in NO_REQUESTS.items():
            answer = await web.ask(sent)
            assert answer.startswith(b"HTTP/1.1 400 "), name
            assert answer.count(b"HTTP/1.1 ") == 1, name
        assert not web.page.rendered
        assert not caplog.records
        assert (await web.get("/healthz"))[0] == 200


async def _slow_request(web: Web) -> None:
    assert await web.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n") == b""


async def _slow_reader(web: Web) -> None:
    web.page.body = bytes(16 << 20)
    for last in ("", "Connection: close\r\n"):
        _, writer = await asyncio.open_connection(*web.address, limit=1024)
        writer.write(f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n{last}\r\n".encode())
        await until(lambda: bool(web.port.server.connections))
        await until(lambda: not web.port.server.connections)
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@pytest.mark.parametrize("client", [_slow_request, _slow_reader])
async def test_a_client_that_takes_its_time_is_closed(client, monkeypatch) -> None:
    monkeypatch.setattr(_http_server, "REQUEST_SECONDS", 1.0)
    async with serving_web() as web:
        await client(web)
        await until(lambda: not web.port.server.connections)


HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The beginning of a handshake."""


@pytest.fixture
def options(authority, tmp_path) -> TlsOptions:
    certificate, key = authority.sign("server")
    shutil.copy(certificate, tmp_path / "server.pem")
    shutil.copy(key, tmp_path / "server.key")
    clients = {"client_ca": authority.certificate, "client_auth": "required"}
    return TlsOptions("enforcing", tmp_path / "server.pem", tmp_path / "server.key", **clients)


@dataclass
class Secured:
    port: WebPort
    endpoint: Endpoint
    authority: Authority

    async def get(self, path: str, scheme: str = "https") -> httpx.Response:
        trusted = self.authority.client_context()
        async with httpx.AsyncClient(verify=trusted, timeout=DEADLINE_SECONDS, trust_env=False) as client:
            return await client.get(f"{scheme}://127.0.0.1:{self.endpoint.port}{path}")

    @property
    def waiting(self) -> int:
        reception = self.port.server.reception
        return len(reception.arrivals)


@contextlib.asynccontextmanager
async def secured(options, authority):
    (listener,) = bind_listeners([LOOPBACK])
    site = Site(MetricsRows(), lambda _accept: (b"figures\n", "text/plain"))
    site._access = Access(auth=HttpAuth(needs_tls=True))
    port = WebPort(site, [listener], watched_http_context(options))
    try:
        await port.start()
        yield Secured(port, listener.endpoint, authority)
    finally:
        await port.stop()
        close_listeners([listener])


async def test_tls_gets_everything_and_plain_http_only_health(options: TlsOptions, authority: Authority) -> None:
    async with secured(options, authority) as web:
        for path, plain in (("/healthz", 200), ("/readyz", 503), ("/metrics", 403)):
            by_tls = await web.get(path)
            assert by_tls.status_code == (200 if path == "/metrics" else plain)
            assert (await web.get(path, "http")).status_code == plain
        assert "https://" in (await web.get("/metrics", "http")).text


@pytest.mark.parametrize("beginning", [b"", HELLO], ids=["silent", "half a handshake"])
async def test_connections_that_get_no_further_make_room_for_each_probe(
    options, authority, beginning, monkeypatch
) -> None:
    monkeypatch.setattr(_http_server, "CONNECTIONS", 4)
    async with secured(options, authority) as web, contextlib.AsyncExitStack() as stack:
        for number in range(20):
            _, writer = await asyncio.open_connection(*web.endpoint)
            stack.callback(writer.close)
            writer.write(beginning)
            await until(lambda: 0 < web.waiting <= 4)
            if number % 5 == 4:
                assert (await web.get("/healthz")).status_code == 200
                assert (await web.get("/healthz", "http")).status_code == 200
        assert web.waiting <= 4


PATIENCE_SECONDS = 60.0


@pytest.fixture
def listeners():
    bound = bind_listeners([Endpoint("127.0.0.1", 0)])
    yield bound
    close_listeners(bound)


def asked(listeners, path, method="GET") -> tuple[int, str]:
    port = listeners[0].endpoint.port
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_it_lives_and_is_not_ready(listeners) -> None:
    with answering(listeners):
        for path, method, status in (
            ("/healthz", "GET", 200), ("/healthz?x=1", "HEAD", 200), ("/readyz", "GET", 503), ("/metrics", "GET", 503),
            ("/", "GET", 503), ("/healthz", "POST", 405),
        ):  # fmt: skip
            code, text = asked(listeners, path, method)
            assert code == status
            assert re.fullmatch("" if method == "HEAD" else r"starting: opening the store, \d+ s so far\n", text)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\n", b"x" * 20_000, b"\x00\xff" * 10])
def test_a_client_that_sends_no_request_holds_up_the_next_one_for_a_moment_only(listeners, sent) -> None:
    with answering(listeners), socket.create_connection(listeners[0].endpoint, PATIENCE_SECONDS) as silent:
        silent.sendall(sent)
        assert asked(listeners, "/healthz")[0] == 200
