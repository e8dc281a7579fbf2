"""What the HTTP port says while a store is being opened."""

import re
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from broker.endpoint import Endpoint
from broker.net.listeners import Listener, bind_listeners, close_listeners
from broker.web.starting import answering

PATIENCE_SECONDS = 60.0


@pytest.fixture
def listeners() -> Iterator[list[Listener]]:
    bound = bind_listeners([Endpoint("127.0.0.1", 0)])
    yield bound
    close_listeners(bound)


def asked(listeners: list[Listener], path: str, method: str = "GET") -> tuple[int, str]:
    port = listeners[0].endpoint.port
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_it_lives_and_is_not_ready(listeners: list[Listener]) -> None:
    with answering(listeners):
        for path, method, status in (
            ("/healthz", "GET", 200), ("/healthz?x=1", "HEAD", 200), ("/readyz", "GET", 503), ("/metrics", "GET", 503),
            ("/", "GET", 503), ("/healthz", "POST", 405),
        ):  # fmt: skip
            code, text = asked(listeners, path, method)
            assert code == status
            assert re.fullmatch("" if method == "HEAD" else r"starting: opening the store, \d+ s so far\n", text)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\n", b"x" * 20_000, b"\x00\xff" * 10])
def test_a_client_that_sends_no_request_holds_up_the_next_one_for_a_moment_only(
    listeners: list[Listener], sent: bytes
) -> None:
    with answering(listeners), socket.create_connection(listeners[0].endpoint, PATIENCE_SECONDS) as silent:
        silent.sendall(sent)
        assert asked(listeners, "/healthz")[0] == 200


def test_connections_that_come_when_it_ends_wait_for_what_comes_next(listeners: list[Listener]) -> None:
    with answering(listeners):
        pass
    with socket.create_connection(listeners[0].endpoint, PATIENCE_SECONDS) as client, answering(listeners):
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200 OK\r\n")
