"""The HTTP port: what it answers, what it refuses, and that no client can keep it for himself."""

import asyncio
import contextlib
import json
import logging
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from broker.metrics import metrics_rows as rows
from broker.metrics.metrics_rows import MetricsRows
from broker.net.listeners import bind_listeners, close_listeners
from broker.web import _http_server
from broker.web import site as site_module
from broker.web._http_server import HttpConnection
from broker.web._strict_requests import HEADER_BYTES
from broker.web.port import WebPort
from broker.web.site import Site
from broker_harness import DEADLINE_SECONDS, LOOPBACK, until

pytestmark = pytest.mark.asyncio


class Page:
    """Renders a fixed text, fails, or waits, as told."""

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
    """A port that serves a page."""

    def __init__(self) -> None:
        self.page, self.rows = Page(), MetricsRows()
        (self.listener,) = bind_listeners([LOOPBACK])
        self.published: list[int] = []
        self.site = Site(self.rows, self.page.render, before_render=lambda: self.published.append(1))
        self.port = WebPort(self.site, [self.listener])
        self.address = self.listener.endpoint

    async def ask(self, request: bytes) -> bytes:
        """All that comes back on a connection of its own until it is closed."""
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
        """Status, headers and body of an answer."""
        host = "" if "Host:" in headers else "Host: 127.0.0.1\r\n"
        request = f"{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n{headers}\r\n".encode()
        head, _, body = (await self.ask(request)).partition(b"\r\n\r\n")
        return int(head.split()[1]), head.decode().lower(), body


@contextlib.asynccontextmanager
async def serving_web() -> AsyncIterator[Web]:
    web = Web()
    try:
        await web.port.start()
        yield web
    finally:
        web.page.release.set()
        await web.port.stop()
        close_listeners([web.listener])


async def test_figures_are_answered_in_the_form_asked_for() -> None:
    async with serving_web() as web:
        status, head, body = await web.get("/metrics")
        assert (status, body) == (200, b"figures 1\n")
        assert "cache-control: no-store" in head
        assert "server:" not in head
        _, head, _ = await web.get("/metrics", headers="Accept: application/openmetrics-text; version=1.0.0\r\n")
        assert "accept=application/openmetrics-text" in head
        assert web.published == [1, 1]


async def test_head_is_answered_without_a_body_and_other_methods_are_refused() -> None:
    async with serving_web() as web:
        assert (await web.get("/healthz", "HEAD"))[::2] == (200, b"")
        for path in ("/metrics", "/healthz", "/readyz"):
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE"):
                status, _, body = await web.get(path, method)
                assert (status, body) == (405, b"Method Not Allowed")
        assert (await web.get("/../etc/passwd"))[0] == 404
        assert not web.page.rendered


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
    "body": b"Content-Length: %d\r\n\r\n" % len(SECOND),
    "body to come": b"Content-Length: 9\r\n\r\n",
    "two equal lengths": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\n12345",
    "two lengths": b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(SECOND),
    "list of lengths": b"Content-Length: 5, 5\r\n\r\n12345",
    "signed length": b"Content-Length: +0\r\n\r\n",
    "length and encoding": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "no length and encoding": b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks": b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "odd chunk size": b"Transfer-Encoding: chunked\r\n\r\n0x0;a\r\n\r\n",
    "chunk that ends with a line feed": b"Transfer-Encoding: chunked\r\n\r\n1;\nx\n0\n\n",
    "unknown encoding": b"Transfer-Encoding: xchunked\r\n\r\n",
    "two encodings": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "hidden encoding": b"X: 1\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "folded header": b"X: 1\r\n\t2\r\n\r\n",
    "blank before the colon": b"Content-Length : 0\r\n\r\n",
    "line feeds alone": b"X: 1\nY: 2\r\n\r\n",
    "line feeds at the end": b"X: 1\n\n",
    "carriage return alone": b"X: 1\rContent-Length: 5\r\n\r\n12345",
    "second host": b"Host: 127.0.0.1\r\n\r\n",
    "zero byte": b"X: \x00\r\n\r\n",
}
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


async def test_what_is_no_request_or_may_be_read_otherwise_by_a_proxy_is_refused_with_all_that_follows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving_web() as web:
        for name, sent in NO_REQUESTS.items():
            answer = await web.ask(sent)
            assert answer.startswith(b"HTTP/1.1 400 "), name
            assert answer.count(b"HTTP/1.1 ") == 1, name
        assert not web.page.rendered
        assert not caplog.records
        assert (await web.get("/healthz"))[0] == 200


async def _slow_request(web: Web) -> None:
    """A request that never ends."""
    assert await web.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n") == b""


async def _slow_reader(web: Web) -> None:
    """Who does not read his answer is cut off, behind the last answer of a connection too."""
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
async def test_a_client_that_takes_its_time_is_closed(
    client: Callable[[Web], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_http_server, "REQUEST_SECONDS", 1.0)
    async with serving_web() as web:
        await client(web)
        await until(lambda: not web.port.server.connections)


async def test_connections_beyond_so_many_that_are_being_answered_are_closed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_http_server, "CONNECTIONS", 3)
    async with serving_web() as web:
        web.page.release.clear()
        answers = [asyncio.ensure_future(web.get("/metrics")) for _ in range(3)]
        await until(lambda: len(_at_work(web)) == 3)
        assert await web.ask(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") == b""
        web.page.release.set()
        assert [(await answer)[0] for answer in answers] == [200] * 3
        await until(lambda: not web.port.server.connections)
        assert (await web.get("/healthz"))[0] == 200


def _at_work(web: Web) -> list[HttpConnection]:
    return [each for each in web.port.server.connections if not each.waits_for_client]


@pytest.mark.parametrize(
    "beginning", [b"", b"G", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"], ids=["none", "byte", "half"]
)
async def test_a_port_full_of_requests_that_do_not_end_answers_each_probe(
    beginning: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest goes, one for each that comes; a connection that is being answered stays."""
    monkeypatch.setattr(_http_server, "CONNECTIONS", 16)
    async with serving_web() as web, contextlib.AsyncExitStack() as stack:
        connections = web.port.server.connections
        web.page.release.clear()
        answer = asyncio.ensure_future(web.get("/metrics"))
        await until(lambda: len(_at_work(web)) == 1)
        # Those that have sent nothing have a place of their own beside the one that is being answered.
        most = 16 if beginning else 17

        def held() -> int:
            return len(connections) + len(web.port.server.reception.arrivals)

        readers = []
        for number in range(26):
            reader, writer = await asyncio.open_connection(*web.address)
            stack.callback(writer.close)
            writer.write(beginning)
            readers.append(reader)
            await until(lambda: held() == min(number + 2, most))  # noqa: B023 - called at once
            if number % 10 == 9:
                assert (await web.get("/healthz"))[0] == 200

        def closed() -> list[bool]:
            return [reader.at_eof() or reader.exception() is not None for reader in readers]

        await until(lambda: sum(closed()) == len(readers) - most + 1)
        assert closed() == sorted(closed(), reverse=True)
        web.page.release.set()
        assert (await answer)[0] == 200


async def test_clients_that_do_not_read_their_answers_keep_no_probe_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http_server, "CONNECTIONS", 3)
    async with serving_web() as web, contextlib.AsyncExitStack() as stack:
        web.page.body = bytes(64 << 20)
        opened = [await asyncio.open_connection(*web.address, limit=1024) for _ in range(3)]
        for _, writer in opened:
            stack.callback(writer.transport.abort)
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        connections = web.port.server.connections
        await until(lambda: sum(each.transport.get_write_buffer_size() > 0 for each in connections) == 3)
        assert (await web.get("/healthz"))[0] == 200


@pytest.mark.parametrize("in_pieces", [False, True])
async def test_headers_over_the_limit_are_answered_400_however_they_come(in_pieces: bool) -> None:
    start, end = b"GET /healthz?", b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    async with serving_web() as web:
        for size, status in ((HEADER_BYTES, 200), (HEADER_BYTES + 1, 400)):
            rest = size - len(start) - len(end) - 2
            for request in (
                start + b"a" * rest + end + b"\r\n",
                start + end + b"X: " + b"a" * (rest - 5) + b"\r\n\r\n",
                start + end + b"X: 1\r\n" * (rest // 6 - 1) + b"X: 1" + b"1" * (rest % 6) + b"\r\n\r\n",
            ):
                assert len(request) == size
                reader, writer = await asyncio.open_connection(*web.address)
                for piece in (request[:5_000], request[5_000:]) if in_pieces else (request,):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0.01 if in_pieces else 0)
                async with asyncio.timeout(DEADLINE_SECONDS):
                    line = await reader.readline()
                assert int(line.split()[1]) == status, request[:40]
                writer.close()


async def test_figures_are_told_under_names_that_are_ours_and_health_under_any() -> None:
    async with serving_web() as web:
        hosts = {"127.0.0.1": 200, "10.1.2.3:9180": 200, "[::1]:9180": 200, "localhost": 200, socket.gethostname(): 200}
        for host, status in {**hosts, "evil.example": 403, "127.0.0.1.evil.example:9180": 403, "": 403}.items():
            rendered = web.page.rendered
            told, _, body = await web.get("/metrics", headers=f"Host: {host}\r\n")
            assert told == status
            assert (web.page.rendered > rendered) == (status == 200)
            assert (b"name it with --http-host, or ask by IP address" in body) == (status == 403)
            for path in ("/healthz", "/readyz"):
                assert (await web.get(path, headers=f"Host: {host}\r\n"))[0] == (200 if path == "/healthz" else 503)
