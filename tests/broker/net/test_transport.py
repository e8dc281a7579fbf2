"""From a bound port, TLS and PROXY headers to frames in, answers out, and what one connection may cost."""

import asyncio
import gc
import ipaddress
import shutil
import socket
import struct
import time
import weakref
from ipaddress import ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.server_process import free_port
from broker.config import CannotListen, TlsOptions
from broker.endpoint import Endpoint
from broker.limits import Limits
from broker.net._proxy_protocol import LONGEST_VERSION_2, SIGNATURE, BadProxyHeader, parse_proxy_header
from broker.net.listeners import bind_for_workers, bind_listeners, close_listeners
from broker.net.tls import load_context
from broker.net.writing import LINGER_SECONDS, close_gently
from broker.service.dispatcher import handles
from broker_harness import LOOPBACK, FakeStore, connected, service_of, serving, until
from certificates import Authority
from lane_requests import LaneConnections, pull
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response, encode_request
from protocol.errors import ConfigError
from protocol.headers import EmptyRequestHeader, ViewMessageRequestHeader
from storage.files.waiting import Wait
from storage.store.message_store import MessageStore
from store_writer import appended, closed_store

VIEW = RequestCode.VIEW_MESSAGE_BY_ID
COLD = RequestCode.GET_MAX_OFFSET
BROKEN = RequestCode.UNREGISTER_CLIENT


class Echo:
    """Answers a view with its offset as text, or with as many bytes as a negative offset says; others cannot answer."""

    answered = 0

    @handles(VIEW, ViewMessageRequestHeader)
    def view(self, header: ViewMessageRequestHeader) -> Response:
        self.answered += 1
        return Response(body=memoryview(bytes(-header.offset)) if header.offset < 0 else b"%d" % header.offset)

    @handles(COLD, EmptyRequestHeader)
    def lookup(self, header):
        yield Wait("page")
        return Response(body=b"cold")

    @handles(BROKEN, EmptyRequestHeader)
    def broken(self, header: EmptyRequestHeader) -> Response:
        return Response(body=None)

    @handles(RequestCode.CHECK_CLIENT_CONFIG, EmptyRequestHeader)
    def broken_later(self, header):
        return self._fail()

    async def _fail(self) -> Response:
        await asyncio.sleep(0)
        raise ZeroDivisionError


def view(offset: int, opaque: int = 0, **options: bool) -> bytes:
    return encode_request(VIEW, {"offset": str(offset)}, opaque=opaque, **options)


class Held:
    """Stands for the snapshot that a look-up read from."""


async def test_a_cold_request_leaves_nothing_behind_for_a_collection() -> None:
    held: list[weakref.ref[Held]] = []

    class Reader:
        @handles(COLD, EmptyRequestHeader)
        def lookup(self, header):
            snapshot = Held()
            held.append(weakref.ref(snapshot))
            yield Wait("page")
            return Response()

    gc.collect()
    gc.disable()
    try:
        async with serving(service_of(FakeStore()), [Reader()]) as server, connected(server.addresses[0]) as client:
            await client.ask(COLD)
            await client.ask(COLD)
            assert len(held) == 2, "each went on where it waited"
            assert [snapshot() for snapshot in held] == [None] * 2
    finally:
        gc.enable()


async def test_oneway_requests_are_never_answered() -> None:
    echo = Echo()
    async with serving(service_of(FakeStore()), [echo]) as server, connected(server.addresses[0]) as client:
        for code in (RequestCode.CHECK_CLIENT_CONFIG, COLD, 999, RequestCode.SEND_MESSAGE, BROKEN):
            client.send(code, oneway=True)
        client.send(VIEW, {"offset": "x"}, oneway=True)
        client.send(VIEW, {"offset": "8"}, oneway=True)
        last = client.send(VIEW, {"offset": "9"})
        answer = await client.answer()
        assert (answer.opaque, answer.body) == (last, b"9")
        client.send(VIEW, {"offset": "10"})
        assert (await client.answer()).body == b"10"


@pytest.mark.parametrize("port", [None, 9180])
async def test_a_request_by_http_is_answered_400_with_the_port_that_speaks_it(port: int | None) -> None:
    http = None if port is None else LOOPBACK._replace(port=port)
    service = service_of(FakeStore(), http=http)
    async with serving(service, [Echo()]) as server, connected(server.addresses[0]) as client:
        client.writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + bytes(1_000_000))
        answer = await client.reader.read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert (b"--http" if port is None else b"HTTP is %d\n" % port) in answer


async def test_a_header_that_is_no_command_is_answered_and_the_connection_lives() -> None:
    not_a_command = b'{"code":1,"flag":[],"opaque":-9}'
    headers = {b"": 0, b"[]": 0, b'{"code":"x","opaque":9}': 9, not_a_command: -9, b"[" * 10**5: 0}
    async with serving(service_of(FakeStore()), [Echo()]) as server, connected(server.addresses[0]) as client:
        for header, opaque in headers.items():
            client.writer.write(struct.pack(">ii", 4 + len(header), len(header)) + header)
            answer = await client.answer()
            assert (answer.code, answer.opaque, bool(answer.remark)) == (ResponseCode.SYSTEM_ERROR, opaque, True)
        assert (await client.ask(VIEW, {"offset": "1"})).body == b"1"


async def test_a_client_that_does_not_read_costs_a_bounded_amount() -> None:
    echo = Echo()
    async with serving(service_of(FakeStore()), [echo]) as server, connected(server.addresses[0]) as client:
        client.writer.transport.pause_reading()
        wanted = 80
        client.writer.write(b"".join(view(-500_000, opaque=number) for number in range(wanted)))
        await until(lambda: bool(len(server.connections)))
        (connection,) = list(server.connections)
        await until(lambda: connection.session.is_held)
        # What lies in the two sockets, and one turn beyond the write buffer's limit.
        assert echo.answered < 50
        assert connection._transport.get_write_buffer_size() < 8_000_000
        client.writer.transport.resume_reading()
        for number in range(wanted):
            answer = await client.answer()
            assert (answer.opaque, len(answer.body)) == (number, 500_000)


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_a_request_of_too_many_fields_is_answered_and_the_connection_lives(serialize_type: int) -> None:
    service = service_of(FakeStore(), limits=Limits(ext_fields=40))
    async with serving(service, [Echo()]) as server, connected(server.addresses[0]) as client:
        fields = {"offset": "-1"} | {f"f{number}": "x" for number in range(39)}
        assert (await client.ask(VIEW, fields, serialize_type=serialize_type)).body == b"\0"
        answer = await client.ask(VIEW, fields | {"one more": "x"}, serialize_type=serialize_type)
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "41 fields, more than the limit of 40")
        assert (await client.ask(VIEW, {"offset": "-1"})).body == b"\0"


ANSWER = b"what was asked for" * 100_000
"""More than the client's socket takes, so that its end does not arrive before the client reads."""
UNREAD = bytes(1 << 20)
"""More than a loop reads at once."""


class Closing(asyncio.Protocol):
    """Answers the first bytes, reads nothing further, and closes gently."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._transport.pause_reading()
            self._transport.write(ANSWER)
            asyncio.get_running_loop().call_later(0.2, self._end)

    def _end(self) -> None:
        close_gently(self._transport, may_be_half_closed=True)
        # Another process has the core.
        time.sleep(self._seconds)


@pytest.mark.parametrize("seconds", [0, LINGER_SECONDS + 0.1])
async def test_an_answer_arrives_though_requests_are_left_unread(seconds: float) -> None:
    server = await asyncio.get_running_loop().create_server(lambda: Closing(seconds), "127.0.0.1", 0)

    def ask() -> bytes:
        with socket.create_connection(server.sockets[0].getsockname()) as connection:
            connection.settimeout(60)
            connection.sendall(UNREAD)
            time.sleep(LINGER_SECONDS + 1)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))

    async with server:
        assert await asyncio.to_thread(ask) == ANSWER


async def test_who_reads_late_gets_what_was_written_for_him(tmp_path, lane_is_off) -> None:
    """Two clients pull different messages, 200 KB each time; one reads only when the other has all of his."""
    messages = (appended("T", bytes([number]) * 50_000) for number in range(40))
    writer = closed_store(tmp_path / "store", *messages, segment_size=1 << 22)
    service = service_of(MessageStore.open(writer.root))
    frames = [pull("T", 0, number, maxMsgNums=4) for number in range(36)]
    plain = LaneConnections(service, has_lane=False)
    expected = [(await plain.answer([frame]))[0] for frame in frames]
    async with (
        serving(service) as server,
        connected(server.addresses[0]) as late,
        connected(server.addresses[0]) as quick,
    ):
        late.writer.transport.pause_reading()
        for _ in range(6):
            late.writer.write(b"".join(frames[:18]))
        await until(lambda: any(connection.session.is_held for connection in server.connections))
        for _ in range(4):
            quick.writer.write(b"".join(frames[18:]))
            for wanted in expected[18:]:
                assert await quick.reader.readexactly(len(wanted)) == wanted
        late.writer.transport.resume_reading()
        for _ in range(6):
            for wanted in expected[:18]:
                assert await asyncio.wait_for(late.reader.readexactly(len(wanted)), 60) == wanted
        if not lane_is_off:
            assert sum(server.lane.answered.values()) > 100


LOOPBACK_PROXY: dict[str, object] = {"proxies": (ip_network("127.0.0.0/8"),)}
LINE = b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 10911\r\n"


class Who:
    @handles(VIEW, ViewMessageRequestHeader)
    def view(self, header, request) -> Response:
        remark = f"{request.connection.peer_address} {request.connection.local_address}"
        return Response(remark=remark, body=bytes(header.offset))


@pytest.fixture(scope="session")
def pair(authority: Authority) -> tuple[Path, Path]:
    return authority.sign("server")


def tls(pair: tuple[Path, Path], mode: str = "permissive", **options: object) -> TlsOptions:
    return TlsOptions(mode, *pair, **options)


async def test_tls_and_plain_clients_share_a_permissive_port(authority: Authority, pair: tuple[Path, Path]) -> None:
    async with serving(service_of(FakeStore(), tls=tls(pair)), [Who()]) as server:
        address, by_tls = server.addresses[0], authority.client_context()
        async with connected(address, by_tls) as secret, connected(address) as plain:
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
async def test_an_enforcing_port_closes_plain_clients_and_checks_certificates(authority, pair, mode, tmp_path) -> None:
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


async def _is_served(server, context) -> bool:
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
    service = service_of(FakeStore(), tls=tls(pair))
    async with serving(service, [Who()]) as server, connected(server.addresses[0], authority.client_context()) as old:
        assert _common_name(old) == "first"
        # The certificate comes before its key: the pair does not fit for a moment.
        shutil.copy(authority.folder / "second.pem", pair[0])
        (context,) = server._watched
        context.refresh()
        async with connected(server.addresses[0], authority.client_context()) as between:
            assert _common_name(between) == "first"
        shutil.copy(authority.folder / "second.key", pair[1])
        context.refresh()
        async with connected(server.addresses[0], authority.client_context()) as new:
            assert _common_name(new) == "second"
        assert (await old.ask(VIEW, {"offset": "1"})).body == b"\0"


def _common_name(client) -> str:
    subject = client.writer.get_extra_info("peercert")["subject"]
    return str(dict(entry[0] for entry in subject)["commonName"])


@pytest.mark.parametrize(
    ("sent", "options"), [(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", {}), (LINE[:20], LOOPBACK_PROXY)]
)
async def test_a_handshake_or_a_header_that_never_ends_is_given_up(pair, sent, options) -> None:
    service = service_of(FakeStore(), tls=tls(pair), limits=Limits(handshake_seconds=1), **options)
    async with serving(service, [Who()]) as server, connected(server.addresses[0]) as client:
        client.writer.write(sent)
        assert await client.is_closed_by_the_server()
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
                await until(lambda cut=cut: cut == 0 or bool(server._reception.arrivals))
                client.writer.write(data[cut:])
                answer = await client.answer()
                assert (answer.body, answer.remark) == (bytes(2), "192.0.2.7:56324 198.51.100.1:10911")


async def test_a_proxy_must_send_its_header_and_nobody_else_may() -> None:
    elsewhere: dict[str, object] = {"proxies": (ip_network("10.0.0.0/8"),)}
    for options, data in ((LOOPBACK_PROXY, b""), (elsewhere, LINE)):
        async with serving(service_of(FakeStore(), **options), [Who()]) as server:
            async with connected(server.addresses[0]) as client:
                client.writer.write(data + encode_request(VIEW, {"offset": "2"}, opaque=1))
                assert await client.is_closed_by_the_server()
            assert not server._reception.arrivals


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
        TlsOptions(**options).check()


def test_a_port_on_which_another_server_shares_connections_is_refused_to_workers() -> None:
    with socket.create_server(("127.0.0.1", 0), reuse_port=True) as other:
        endpoint = Endpoint.of_socket(other.getsockname())
        with pytest.raises(CannotListen, match="another process listens"):
            bind_for_workers([endpoint], vip=False, count=2)


def test_a_taken_vip_port_is_refused_and_nothing_stays_bound() -> None:
    port = free_port((-2,))
    with socket.create_server(("127.0.0.1", port - 2)) as other:
        taken = Endpoint.of_socket(other.getsockname())
        main = taken._replace(port=port)
        with pytest.raises(CannotListen, match=f":{taken.port}: another process"):
            bind_listeners([main], vip=True)
    close_listeners(bind_listeners([main]))


def test_the_password_of_a_key_is_read_from_a_file_and_never_asked_for(authority: Authority, tmp_path: Path) -> None:
    pair = authority.sign("locked", password="open sesame")
    password = tmp_path / "password"
    password.write_text("open sesame\n")
    load_context(TlsOptions("enforcing", *pair, key_password_file=password))
    password.write_text("wrong\n")
    for file in (password, None):
        with pytest.raises(ConfigError) as caught:
            load_context(TlsOptions("enforcing", *pair, key_password_file=file))
        assert str(pair[1]) in str(caught.value)
        assert "wrong" not in str(caught.value)


def test_a_file_that_cannot_be_used_is_named(authority: Authority, tmp_path: Path) -> None:
    pair, other = authority.sign("one"), authority.sign("other")
    nothing = tmp_path / "nothing.pem"
    broken = tmp_path / "broken.pem"
    broken.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n")
    cases = [
        (TlsOptions("enforcing", nothing), "nothing.pem cannot be used: No such file"),
        (TlsOptions("enforcing", broken), "broken.pem cannot be used"),
        (TlsOptions("enforcing", pair[0], other[1]), "key values mismatch"),
        (TlsOptions("enforcing", *pair, client_ca=nothing, client_auth="required"), "nothing.pem cannot be used"),
        (TlsOptions("enforcing", *pair, client_ca=broken, client_auth="required"), "broken.pem cannot be used"),
        (TlsOptions("enforcing", *pair, key_password_file=nothing), "nothing.pem cannot be read"),
    ]
    for options, says in cases:
        with pytest.raises(ConfigError, match=says):
            load_context(options)


def version_2(command: int, family: int, rest: bytes) -> bytes:
    return SIGNATURE + struct.pack(">BBH", command, family, len(rest)) + rest


V4 = ipaddress.ip_address("192.0.2.7").packed + ipaddress.ip_address("198.51.100.1").packed
V6 = ipaddress.ip_address("2001:db8::7").packed + ipaddress.ip_address("2001:db8::1").packed
PORTS = struct.pack(">HH", 56324, 10911)
TLV = bytes([3, 0, 4]) + b"crc!"

HEADERS = [
    (b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 10911\r\n", ("192.0.2.7", 56324), ("198.51.100.1", 10911)),
    (b"PROXY TCP6 2001:db8::7 2001:db8::1 56324 10911\r\n", ("2001:db8::7", 56324), ("2001:db8::1", 10911)),
    (b"PROXY UNKNOWN\r\n", None, None),
    (b"PROXY UNKNOWN ffff:f...f ffff 65535 65535\r\n", None, None),
    (version_2(0x21, 0x11, V4 + PORTS), ("192.0.2.7", 56324), ("198.51.100.1", 10911)),
    (version_2(0x21, 0x11, V4 + PORTS + TLV), ("192.0.2.7", 56324), ("198.51.100.1", 10911)),
    (version_2(0x21, 0x21, V6 + PORTS), ("2001:db8::7", 56324), ("2001:db8::1", 10911)),
    (version_2(0x20, 0x00, b""), None, None),
    (version_2(0x20, 0x11, V4 + PORTS), None, None),
    (version_2(0x21, 0x31, bytes(216)), None, None),
    (version_2(0x21, 0x31, bytes(LONGEST_VERSION_2)), None, None),
]


@pytest.mark.parametrize(("header", "source", "destination"), HEADERS)
def test_a_header_is_read_to_its_end_and_no_further(header, source, destination) -> None:
    expected = (len(header), source and Endpoint(*source), destination and Endpoint(*destination))
    for behind in (b"", b"\0\0\1\2", b"\x16\x03\x01", b"PROXY TCP4"):
        assert parse_proxy_header(header + behind) == expected
    for length in range(1, len(header)):
        assert parse_proxy_header(header[:length]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\1\2",
        b"\x16\x03\x01",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 56324\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 56324 109111\r\n",
        b"PROXY TCP4 192.0.2.7 198.51.100.1 -1 10911\r\n",
        b"PROXY TCP4 2001:db8::7 198.51.100.1 56324 10911\r\n",
        b"PROXY TCP5 192.0.2.7 198.51.100.1 56324 10911\r\n",
        b"PROXY \xff\r\n",
        b"PROXY " + b"x" * 200,
        SIGNATURE + b"\x11\x11\0\x0c" + V4 + PORTS,
        version_2(0x22, 0x11, V4 + PORTS),
        version_2(0x21, 0x11, b"short"),
        version_2(0x21, 0x31, bytes(LONGEST_VERSION_2 + 1)),
    ],
)
def test_what_is_no_header_is_refused(data: bytes) -> None:
    with pytest.raises(BadProxyHeader):
        parse_proxy_header(data)


@given(st.binary(max_size=300), st.sampled_from([b"", b"PROXY ", SIGNATURE, SIGNATURE + b"\x21\x11"]))
def test_any_bytes_are_a_header_or_its_beginning_or_refused(data: bytes, front: bytes) -> None:
    try:
        header = parse_proxy_header(front + data) if front + data else None
    except BadProxyHeader:
        return
    assert header is None or 0 < header.length <= len(front + data)
