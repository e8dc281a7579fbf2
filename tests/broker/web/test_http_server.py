"""The HTTP server by itself: requests by the letter of RFC 9112, broken applications, and its stop."""

import asyncio
import contextlib
import itertools
import re
from typing import TYPE_CHECKING

import h11
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker.net.listeners import bind_listeners, close_listeners, listen
from broker.web import _http_server
from broker.web._http_server import HttpConnection, HttpServer
from broker.web._strict_requests import StrictRequests
from broker_harness import DEADLINE_SECONDS, LOOPBACK, until

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
