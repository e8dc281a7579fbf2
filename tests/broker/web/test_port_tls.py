"""The HTTP port by TLS: what is answered with and without, and that no client that lags keeps another out."""

import asyncio
import contextlib
import http.client
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from broker.config import HttpAuth, TlsOptions
from broker.endpoint import Endpoint
from broker.metrics.metrics_rows import MetricsRows
from broker.net.listeners import bind_listeners, close_listeners
from broker.net.tls import http_options, load_context, watched_http_context
from broker.web import _http_server
from broker.web.api.access import Access
from broker.web.port import WebPort
from broker.web.site import Site
from broker.web.starting import answering
from broker_harness import DEADLINE_SECONDS, LOOPBACK, until
from certificates import Authority

HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The beginning of a handshake."""


@pytest.fixture
def options(authority: Authority, tmp_path: Path) -> TlsOptions:
    certificate, key = authority.sign("server")
    shutil.copy(certificate, tmp_path / "server.pem")
    shutil.copy(key, tmp_path / "server.key")
    clients = {"client_ca": authority.certificate, "client_auth": "required"}
    return TlsOptions("enforcing", tmp_path / "server.pem", tmp_path / "server.key", **clients)  # type: ignore[arg-type]


@dataclass
class Secured:
    """A port by TLS."""

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
async def secured(options: TlsOptions, authority: Authority) -> AsyncIterator[Secured]:
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


@pytest.mark.asyncio
async def test_tls_gets_everything_and_plain_http_only_health(options: TlsOptions, authority: Authority) -> None:
    async with secured(options, authority) as web:
        for path, plain in (("/healthz", 200), ("/readyz", 503), ("/metrics", 403)):
            by_tls = await web.get(path)
            assert by_tls.status_code == (200 if path == "/metrics" else plain)
            assert (await web.get(path, "http")).status_code == plain
        assert "https://" in (await web.get("/metrics", "http")).text


@pytest.mark.asyncio
@pytest.mark.parametrize("beginning", [b"", HELLO], ids=["silent", "half a handshake"])
async def test_connections_that_get_no_further_make_room_for_each_probe(
    options: TlsOptions, authority: Authority, beginning: bytes, monkeypatch: pytest.MonkeyPatch
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


def test_while_a_store_is_opened_both_are_answered(options: TlsOptions, authority: Authority) -> None:
    listeners = bind_listeners([LOOPBACK])
    endpoint = listeners[0].endpoint
    with answering(listeners, watched_http_context(options)):
        for connection in (
            http.client.HTTPSConnection(*endpoint, timeout=DEADLINE_SECONDS, context=authority.client_context()),
            http.client.HTTPConnection(*endpoint, timeout=DEADLINE_SECONDS),
        ):
            for path, status in (("/healthz", 200), ("/readyz", 503)):
                connection.request("GET", path)
                answer = connection.getresponse()
                assert (answer.status, answer.read()[:9]) == (status, b"starting:")
                connection.close()
    close_listeners(listeners)


@pytest.mark.parametrize("sent", [b"", HELLO, b"\x16" + b"x" * 20_000])
def test_while_a_store_is_opened_a_handshake_that_does_not_end_holds_nobody_up(
    options: TlsOptions, sent: bytes
) -> None:
    listeners = bind_listeners([LOOPBACK])
    endpoint = listeners[0].endpoint
    with (
        answering(listeners, watched_http_context(options)),
        socket.create_connection(endpoint, DEADLINE_SECONDS) as silent,
    ):
        silent.sendall(sent)
        connection = http.client.HTTPConnection(*endpoint, timeout=DEADLINE_SECONDS)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        connection.close()
    close_listeners(listeners)


def test_clients_of_the_page_need_no_certificate_though_those_of_the_port_do(options: TlsOptions) -> None:
    assert load_context(options).verify_mode == ssl.CERT_REQUIRED
    assert load_context(http_options(options)).verify_mode == ssl.CERT_NONE
