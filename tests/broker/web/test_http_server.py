"""The HTTP server by the letter of RFC 9112, and its port, by TLS too: what it answers and refuses; its stop."""

import asyncio
import contextlib
import itertools
import json
import logging
import re
import shutil
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h11
import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.config import HttpAuth, TlsOptions
from broker.endpoint import Endpoint
from broker.metrics import metrics_rows as rows
from broker.metrics.metrics_rows import MetricsRows
from broker.net.listeners import bind_listeners, close_listeners, listen
from broker.net.tls import watched_http_context
from broker.web import _http_server
from broker.web import site as site_module
from broker.web._http_server import HttpConnection, HttpServer
from broker.web._strict_requests import StrictRequests
from broker.web.api.access import Access
from broker.web.port import WebPort
from broker.web.site import Site
from broker.web.starting import answering
from broker_harness import DEADLINE_SECONDS, LOOPBACK, until
from certificates import Authority

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


GET = b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n"


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def read(self) -> bytes:
        async with asyncio.timeout(DEADLINE_SECONDS):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b"cut off"


@contextlib.asynccontextmanager
async def serving(application):
    (listener,) = bind_listeners([LOOPBACK])
    listen(listener)
    server = HttpServer(application)
    server.start([listener.socket])
    reader, writer = await asyncio.open_connection(*listener.endpoint, limit=1024)
    try:
        yield server, Client(reader, writer)
    finally:
        writer.transport.abort()
        await server.stop()
        close_listeners([listener])


async def echo(scope: "Scope", receive: "Receive", send: "Send") -> None:
    assert await receive() == {"type": "http.request", "body": b"", "more_body": False}
    await asyncio.sleep(0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"x-path", scope["raw_path"])]})
    await send({"type": "http.response.body", "body": scope["raw_path"][:1], "more_body": True})
    await send({"type": "http.response.body", "body": scope["raw_path"][1:]})


class Wire(asyncio.Transport):
    """A transport without a network: keeps what is written, and holds back what is not to be read yet."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = self.is_paused = False

    def write_eof(self) -> None:
        self.is_closed = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


async def _answers_to(pieces) -> Wire:
    wire = Wire()
    connection = HttpConnection(HttpServer(echo))
    connection.connection_made(wire)
    for piece in [*pieces, b""]:
        await until(lambda: not wire.is_paused and (bool(piece) or wire.is_closed))  # noqa: B023 - called at once
        if piece:
            connection.data_received(piece)
    connection.connection_lost(None)
    return wire


@given(
    methods=st.lists(st.sampled_from([b"GET", b"HEAD", b"POST"]), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 300), max_size=4),
)
@example([b"GET", b"HEAD", b"GET"], [])
def test_requests_that_come_together_or_in_pieces_are_answered_in_their_order(methods, cuts) -> None:
    lasts = [b""] * (len(methods) - 1) + [b"Connection: close\r\n"]
    requests = [
        b"%s /%d HTTP/1.1\r\nHost: x\r\n%s\r\n" % (method, number, last)
        for number, (method, last) in enumerate(zip(methods, lasts, strict=True))
    ]
    data = b"".join(requests)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(places) if end > start]
    wire = asyncio.run(_answers_to(pieces))
    client = h11.Connection(h11.CLIENT)
    client.receive_data(wire.written)
    for number, method in enumerate(methods):
        client.send(h11.Request(method=method, target=b"/%d" % number, headers=[(b"Host", b"x")]))
        client.send(h11.EndOfMessage())
        answer = client.next_event()
        assert isinstance(answer, h11.Response)
        assert dict(answer.headers)[b"x-path"] == b"/%d" % number
        body = b""
        while isinstance(event := client.next_event(), h11.Data):
            body += event.data
        assert body == (b"" if method == b"HEAD" else b"/%d" % number)
        assert isinstance(event, h11.EndOfMessage)
        if number < len(methods) - 1:
            client.start_next_cycle()
    assert not client.trailing_data[0]


async def _return(_scope: "Scope", _receive: "Receive", _send: "Send") -> None:
    """Answer nothing."""


async def _begin(_scope: "Scope", _receive: "Receive", send: "Send") -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"a", "more_body": True})


async def _fail(scope: "Scope", receive: "Receive", send: "Send") -> None:
    await _begin(scope, receive, send)
    raise ValueError("inner detail")


@pytest.mark.parametrize("method", [b"GET", b"HEAD"])
@pytest.mark.parametrize("application", [_return, _begin, _fail])
async def test_an_answer_without_an_end_is_never_taken_for_a_whole_one(application: "ASGIApp", method: bytes) -> None:
    async with serving(application) as (_, client):
        client.writer.write(method + b" / HTTP/1.1\r\nHost: x\r\n\r\n" + GET % b"second")
        answer = await client.read()
        head, _, body = answer.partition(b"\r\n\r\n")
        if application is _return:
            assert head.startswith(b"HTTP/1.1 500 ")
            assert body == (b"" if method == b"HEAD" else b"Internal Server Error")
        else:
            assert body in (b"", b"a")
        assert b"inner detail" not in answer


@pytest.mark.parametrize("ends", [True, False])
async def test_a_stop_waits_for_answers_but_not_for_ever(ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_http_server, "STOP_SECONDS", DEADLINE_SECONDS if ends else 0.1)
    release, begun, gone = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def waiting(scope: "Scope", receive: "Receive", send: "Send") -> None:
        begun.set()
        try:
            await release.wait()
            await echo(scope, receive, send)
            assert await receive() == {"type": "http.disconnect"}
        finally:
            gone.set()

    async with serving(waiting) as (server, client):
        client.writer.write(GET % b"a" + GET % b"b")
        await begun.wait()
        stop = asyncio.ensure_future(server.stop())
        if ends:
            await asyncio.sleep(0)  # the stop has begun
            release.set()
        answer = await client.read()
        await stop
        assert answer.count(b"HTTP/1.1 200 OK") == ends
        assert (b"connection: close" in answer) == ends
        assert gone.is_set()
        assert not server.connections


SECOND = b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+ (/[\x21-\x7e]*) HTTP/1\.[01]")
FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00\r\n]*?)[ \t]*")


def strict_end(data: bytes) -> int | None:
    head, ended, _ = data.partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    found = [FIELD.fullmatch(each) for each in fields]
    if not ended or LINE.fullmatch(line) is None or not all(found):
        return None
    lengths = [each[2] for each in found if each is not None and each[1].lower() == b"content-length"]
    names = [each[1].lower() for each in found if each is not None]
    if lengths not in ([], [b"0"]) or b"transfer-encoding" in names:
        return None
    return len(head) + 4


LINES = [b"GET / HTTP/1.1"] * 6
LINES += [b"POST /a?b HTTP/1.0", b"GET //x HTTP/1.1", b"GET http://b/ HTTP/1.1", b" GET / HTTP/1.1"]
ENDS = st.sampled_from(
    [b"\r\n"] * 12 + [b"\n", b"\r", b"\r\r\n", b"\n\r\n", b"\r\n ", b"\r\n\t", b" \r\n", b"\x0b\r\n", b""]
)
HEADS = st.lists(
    st.tuples(
        st.sampled_from(
            [b"X: 1", b"x:1", b"Content-Length: 0", b"content-length:0", b"Content-Length: 3", b"Content-Length: 0, 0",
             b"Transfer-Encoding: chunked", b"Transfer-Encoding:\x0bchunked", b"Connection: close", b"Host: b",
             b"A b: 1", b": 1", b"X", b"X: \xe6", b"Expect: 100-continue"]
        ),
        ENDS,
    ),
    max_size=4,
)  # fmt: skip


@given(
    line=st.sampled_from(LINES),
    end=ENDS,
    fields=HEADS,
    last=ENDS,
    rest=st.sampled_from([b"", b"0\r\n\r\n", b"abc", SECOND]),
)  # fmt: skip
@example(LINES[0], b"\r\n", [(b"Content-Length: 0, 0", b"\r\n")], b"\r\n", SECOND)
@example(LINES[0], b"\r\n", [(b"Content-Length: 0", b"\r\n")] * 2, b"\r\n", SECOND)
def test_what_is_taken_is_a_request_without_a_body_by_the_letter_of_the_standard(line, end, fields, last, rest) -> None:
    """RFC 9112: a server that is lenient where a proxy is not can be had by a smuggled request."""
    data = line + end + b"Host: a\r\n" + b"".join(field + ended for field, ended in fields) + last + rest
    requests = StrictRequests()
    requests.receive_data(data)
    try:
        event = requests.next_event()
    except h11.RemoteProtocolError:
        return
    if isinstance(event, h11.Request):
        assert strict_end(data) == len(data) - len(requests.trailing_data[0])
        assert type(requests.next_event()) is h11.EndOfMessage


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
    answer = httpx.request(method, f"http://127.0.0.1:{listeners[0].endpoint.port}{path}", timeout=PATIENCE_SECONDS)
    return answer.status_code, answer.text


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
