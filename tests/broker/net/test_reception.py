"""TLS and PROXY headers on the port, beside plain clients: on both loops, over any split of the first bytes."""

import asyncio
import shutil
import socket
import ssl
from ipaddress import ip_network
from pathlib import Path

import pytest

from broker.config import TlsOptions
from broker.endpoint import Endpoint
from broker.limits import Limits
from broker.server import Server
from broker.service.dispatcher import Request, handles
from broker_harness import FakeStore, RawClient, connected, service_of, serving, until
from certificates import Authority
from protocol.codes import RequestCode
from protocol.command import Response, encode_request
from protocol.errors import ConfigError
from protocol.headers import ViewMessageRequestHeader

pytestmark = pytest.mark.asyncio

VIEW = RequestCode.VIEW_MESSAGE_BY_ID
LOOPBACK_PROXY: dict[str, object] = {"proxies": (ip_network("127.0.0.0/8"),)}
LINE = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 10911\r\n"


class Who:
    """Answers with as many bytes as asked for, and with the addresses in the remark."""

    @handles(VIEW, ViewMessageRequestHeader)
    def view(self, header: ViewMessageRequestHeader, request: Request) -> Response:
        remark = f"{request.connection.peer_address} {request.connection.local_address}"
        return Response(remark=remark, body=bytes(header.offset))


@pytest.fixture(scope="session")
def pair(authority: Authority) -> tuple[Path, Path]:
    return authority.sign("server")


def tls(pair: tuple[Path, Path], mode: str = "permissive", **options: object) -> TlsOptions:
    return TlsOptions(mode, *pair, **options)  # type: ignore[arg-type]


async def test_tls_and_plain_clients_share_a_permissive_port(authority: Authority, pair: tuple[Path, Path]) -> None:
    async with serving(service_of(FakeStore(), tls=tls(pair)), [Who()]) as server:
        async with (
            connected(server.addresses[0], authority.client_context()) as secret,
            connected(server.addresses[0]) as plain,
        ):
            for size in (1, 3_000_000, 70_000, 5):
                for client in (secret, plain):
                    assert len((await client.ask(VIEW, {"offset": str(size)})).body) == size
            peer = secret.writer.get_extra_info("sockname")
            answer = await secret.ask(VIEW, {"offset": "0"})
            assert answer.remark == f"{Endpoint(*peer)} {server.addresses[0]}"
            secret.writer.write(b"".join(encode_request(VIEW, {"offset": "9"}, opaque=n) for n in range(300)))
            assert [(await secret.answer()).opaque for _ in range(300)] == list(range(300))
        await until(lambda: not server.connections)


@pytest.mark.parametrize("mode", ["optional", "required"])
async def test_an_enforcing_port_closes_plain_clients_and_checks_certificates(
    authority: Authority, pair: tuple[Path, Path], mode: str, tmp_path: Path
) -> None:
    stranger = Authority.make(tmp_path / "other", "other")
    options = tls(pair, "enforcing", client_ca=authority.certificate, client_auth=mode)
    async with serving(service_of(FakeStore(), tls=options), [Who()]) as server:
        async with connected(server.addresses[0]) as plain:
            plain.send(VIEW, {"offset": "1"})
            assert await plain.is_closed_by_the_server()
        known = authority.client_context(authority.sign(f"client-{mode}"))
        async with connected(server.addresses[0], known) as client:
            assert (await client.ask(VIEW, {"offset": "1"})).body == b"\0"
        forged = authority.client_context(stranger.sign("client"))
        assert not await _is_served(server, forged)
        assert await _is_served(server, authority.client_context()) == (mode == "optional")


async def _is_served(server: Server, context: ssl.SSLContext) -> bool:
    """Whether a request is answered; in TLS 1.3 a client hears of its refusal only after its own handshake."""
    try:
        async with connected(server.addresses[0], context) as client:
            return bool((await client.ask(VIEW, {"offset": "1"})).body)
    except (OSError, EOFError):
        return False


async def test_a_certificate_that_changes_is_used_for_new_connections(authority: Authority, tmp_path: Path) -> None:
    for name in ("first", "second"):
        authority.sign(name)
    pair = (tmp_path / "live.pem", tmp_path / "live.key")
    for source, target in zip(("first.pem", "first.key"), pair, strict=True):
        shutil.copy(authority.folder / source, target)
    async with (
        serving(service_of(FakeStore(), tls=tls(pair)), [Who()]) as server,
        connected(server.addresses[0], authority.client_context()) as old,
    ):
        assert _common_name(old) == "first"
        # The certificate comes before its key: the pair does not fit for a moment.
        shutil.copy(authority.folder / "second.pem", pair[0])
        (context,) = server._watched
        context.refresh()
        async with connected(server.addresses[0], authority.client_context()) as between:
            assert _common_name(between) == "first"
        shutil.copy(authority.folder / "second.key", pair[1])
        await until_renamed(server, authority)
        assert (await old.ask(VIEW, {"offset": "1"})).body == b"\0"


async def until_renamed(server: Server, authority: Authority) -> None:
    """Connect until the new certificate is shown: files are looked at every second."""
    async with asyncio.timeout(60):
        while True:
            async with connected(server.addresses[0], authority.client_context()) as new:
                if _common_name(new) == "second":
                    return
            await asyncio.sleep(0.1)


def _common_name(client: RawClient) -> str:
    subject = client.writer.get_extra_info("peercert")["subject"]
    return str(dict(entry[0] for entry in subject)["commonName"])


@pytest.mark.parametrize(
    ("sent", "options"), [(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {}), (LINE[:20], LOOPBACK_PROXY)]
)
async def test_a_handshake_or_a_header_that_never_ends_is_given_up(
    pair: tuple[Path, Path], sent: bytes, options: dict[str, object]
) -> None:
    service = service_of(FakeStore(), tls=tls(pair), limits=Limits(handshake_seconds=1), **options)
    async with serving(service, [Who()]) as server, connected(server.addresses[0]) as client:
        client.writer.write(sent)
        assert await client.is_closed_by_the_server()
        assert server._reception is not None
        await until(lambda: not server._reception.arrivals)


async def test_arrivals_count_as_connections_and_are_closed_with_the_server(pair: tuple[Path, Path]) -> None:
    service = service_of(FakeStore(), tls=tls(pair), limits=Limits(connections=2))
    async with (
        serving(service, [Who()]) as server,
        connected(server.addresses[0]) as silent,
        connected(server.addresses[0]) as plain,
    ):
        assert (await plain.ask(VIEW, {"offset": "1"})).body == b"\0"
        async with connected(server.addresses[0]) as third:
            assert await third.is_closed_by_the_server()
        await server.stop()
        assert await silent.is_closed_by_the_server()


async def test_a_proxy_tells_whose_connection_it_is() -> None:
    data = LINE + encode_request(VIEW, {"offset": "2"}, opaque=1)
    async with serving(service_of(FakeStore(), **LOOPBACK_PROXY), [Who()]) as server:
        for cut in (0, 1, len(LINE) - 1, len(LINE), len(LINE) + 3):
            async with connected(server.addresses[0]) as client:
                client.writer.write(data[:cut])
                await until(lambda cut=cut: cut == 0 or bool(server._reception.arrivals))  # type: ignore[misc, union-attr]
                client.writer.write(data[cut:])
                answer = await client.answer()
                assert (answer.body, answer.remark) == (bytes(2), "192.0.2.7:56324 198.51.100.1:10911")


async def test_tls_may_follow_a_proxy_header(authority: Authority, pair: tuple[Path, Path]) -> None:
    service = service_of(FakeStore(), tls=tls(pair, "enforcing"), **LOOPBACK_PROXY)
    async with serving(service, [Who()]) as server:
        answer = await asyncio.to_thread(_ask_behind_proxy, server.addresses[0], authority.client_context())
        assert b"192.0.2.7:56324" in answer


def _ask_behind_proxy(endpoint: Endpoint, context: ssl.SSLContext) -> bytes:
    with socket.create_connection(endpoint, 20) as connection:
        connection.sendall(LINE)
        with context.wrap_socket(connection, server_hostname="localhost") as secret:
            secret.sendall(encode_request(VIEW, {"offset": "2"}, opaque=1))
            return secret.recv(4096)


async def test_a_proxy_must_send_its_header_and_nobody_else_may() -> None:
    elsewhere: dict[str, object] = {"proxies": (ip_network("10.0.0.0/8"),)}
    for options, data in ((LOOPBACK_PROXY, b""), (elsewhere, LINE)):
        async with serving(service_of(FakeStore(), **options), [Who()]) as server:
            async with connected(server.addresses[0]) as client:
                client.writer.write(data + encode_request(VIEW, {"offset": "2"}, opaque=1))
                assert await client.is_closed_by_the_server()
            assert not server._reception.arrivals  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mode": "permissive"}, "give --tls-cert"),
        ({"certificate": Path("x")}, "give --tls-mode"),
        ({"mode": "enforcing", "certificate": Path("x"), "client_auth": "required"}, "give both or neither"),
        ({"mode": "enforcing", "certificate": Path("x"), "client_ca": Path("y")}, "give both or neither"),
    ],
)
async def test_options_that_contradict_each_other_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        TlsOptions(**options).check()  # type: ignore[arg-type]
