"""Where a server stands as its clients see it: on the address inside the offset message ids, or elsewhere."""

import contextlib
import socket
from dataclasses import dataclass

import pytest

from benchmarks.server_process import free_port
from interop.proxy import RecordingProxy, recording_proxy
from process import rocketlens_serving

QUERY_MESSAGE = 12
VIEW_MESSAGE_BY_ID = 33
STORE_PORT = 10911
"""The port of the broker that wrote the recorded stores."""


@dataclass(frozen=True)
class Site:
    """A server behind recording proxies; ``name_server`` is the address that clients are configured with."""

    name_server: str
    is_in_ids: bool
    proxies: tuple[RecordingProxy, ...]

    def forget(self) -> None:
        for proxy in self.proxies:
            proxy.forget()

    def lookups(self) -> list[int]:
        return [frame.code for frame in self.lookup_frames()]

    def lookup_frames(self):
        passed = [entry for proxy in self.proxies for entry in proxy.passed]
        passed.sort(key=lambda one: one.timestamp_seconds)
        asked = [entry.frame for entry in passed if entry.to_server and not entry.frame.is_response]
        return [frame for frame in asked if frame.code in (QUERY_MESSAGE, VIEW_MESSAGE_BY_ID)]


@contextlib.contextmanager
def site(store, work, *options, in_ids, hosts=("127.0.0.1",)):
    """A server of ours over ``store``: on the ``hosts`` and port in its ids, or elsewhere with nobody on those."""
    with contextlib.ExitStack() as stack:
        if in_ids:
            proxies = [stack.enter_context(_proxy_in_ids(host)) for host in hosts]
        else:
            for host in hosts:
                _expect_nobody(host)
            proxies = [stack.enter_context(recording_proxy(None, ("127.0.0.1", free_port())))]
        host, port = proxies[0].address
        name_server = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        server = stack.enter_context(rocketlens_serving(store, work, "--advertise", name_server, *options))
        for proxy in proxies:
            proxy.target = server
        yield Site(name_server, in_ids, tuple(proxies))


def expect_free(host: str) -> None:
    """Fails the test with clear words when the address in the recorded ids is taken on this machine."""
    try:
        socket.create_server((host, STORE_PORT), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        pytest.fail(f"{host} port {STORE_PORT}, the address in the recorded ids, must be free for this test: {error}")


def _proxy_in_ids(host: str) -> contextlib.AbstractContextManager[RecordingProxy]:
    expect_free(host)
    return recording_proxy(None, (host, STORE_PORT))


def _expect_nobody(host: str) -> None:
    with contextlib.suppress(ConnectionRefusedError):
        socket.create_connection((host, STORE_PORT), timeout=60).close()
        pytest.fail(
            f"somebody listens on {host} port {STORE_PORT}, the address in the recorded ids: this test needs it dead"
        )
