"""Hostile bytes and too many connections at the gRPC port; what all calls have in common: accounts, TLS, limits."""

import contextlib
import random
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import grpc
import pytest
from google.protobuf.message import DecodeError

from acl_file import ADMIN, ADMIN_SECRET, write_accounts
from broker.config import TlsOptions
from broker.grpc.messages import admin_pb2
from broker.grpc.messages.definition_pb2 import Code, Resource
from broker.grpc.signature import signature_of
from broker.limits import Limits
from certificates import Authority
from grpc_cases import CASES, asked_of, recorded
from grpc_client import grpc_client, serving_grpc, signed
from process import ROOT
from store_writer import appended, closed_store

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
NO_WINDOW = bytes([0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0])
"""Settings by which no byte of an answer may be sent (SETTINGS_INITIAL_WINDOW_SIZE 0)."""
METHODS = [each for each in admin_pb2.DESCRIPTOR.services_by_name["Admin"].methods if each.name != "ChangeLogLevel"]
MOST = 40


LATE = grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.fixture(scope="module")
def served(g1_store, tmp_path_factory):
    limits = Limits(connections=MOST, handshake_seconds=1)
    with serving_grpc(g1_store, folder=tmp_path_factory.mktemp("state"), limits=limits) as serving:
        yield serving


@pytest.fixture(scope="module")
def client(served):
    with grpc_client(served) as found:
        assert answers(found)
        yield found


def answers(client) -> bool:
    return bool(client.admin("GetProxyRuntimeStats").status.code == Code.OK)


def mutated(drawn: random.Random, data: bytes) -> bytes:
    found = bytearray(data)
    for _ in range(drawn.randint(1, 2)):
        at = drawn.randrange(len(found) + 1)
        size = drawn.choice((0, 1, 1, 1, 1))
        found[at : at + size] = drawn.randbytes(size if drawn.random() < 0.9 else 1 - size)
    return bytes(found)


def test_no_request_breaks_a_method(client, caplog) -> None:
    drawn, read = random.Random(1), 0
    group, topic = Resource(name="CG_FAIL"), Resource(name="TopicTest", resource_namespace="")
    for _ in range(60):
        method = drawn.choice(METHODS)
        kind = getattr(admin_pb2, method.input_type.name)
        fields = {"topic": topic, "group": group, "client_id": "c", "message_key": "hotkey", "scroll_id": "WzFd"}
        known = {name: value for name, value in fields.items() if name in kind.DESCRIPTOR.fields_by_name}
        data = mutated(drawn, kind(**known).SerializeToString())
        try:
            kind.FromString(data)
        except DecodeError:
            with pytest.raises(grpc.RpcError) as caught:
                client.admin(method.name, data)
            assert caught.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        else:
            read += 1
            status = client.admin(method.name, data).status
            assert status.code not in (Code.INTERNAL_SERVER_ERROR, Code.CODE_UNSPECIFIED), (method.name, data, status)
    assert read > 10
    assert "Traceback" not in caplog.text


def open_calls(address, path, count, own="127.0.0.2", settings=SETTINGS) -> socket.socket:
    """A connection from an address of ours with calls of which no request has come."""
    connection = socket.create_connection(address, 60, (own, 0))
    connection.sendall(PREFACE + settings)
    fields = {b":path": path, b":authority": b"x", b"content-type": b"application/grpc", b"te": b"trailers"}
    literals = b"".join(bytes([0, len(name)]) + name + bytes([len(value)]) + value for name, value in fields.items())
    data = b"\x83\x86" + literals
    for number in range(count):
        connection.sendall(len(data).to_bytes(3) + bytes([1, 4]) + (2 * number + 1).to_bytes(4) + data)
    return connection


@pytest.mark.parametrize("method", ["Admin/QueryMessage", "MessagingService/PullMessage", "MessagingService/Telemetry"])
def test_calls_without_a_request_keep_nobody_else_from_being_answered(method, served, client) -> None:
    path = f"/apache.rocketmq.v2.{method}".encode()
    with contextlib.ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(open_calls(served.address, path, MOST))
        assert all(answers(client) for _ in range(5))


def test_a_call_whose_request_does_not_come_ends(g1_store, tmp_path) -> None:
    limits = Limits(frame_seconds=1)
    with serving_grpc(g1_store, folder=tmp_path, limits=limits) as served, grpc_client(served) as client:
        for method in ("Admin/QueryMessage", "MessagingService/Telemetry"):
            silent = threading.Event()
            call = client.channel.stream_stream(f"/apache.rocketmq.v2.{method}")(iter(silent.wait, True), timeout=60)
            with pytest.raises(grpc.RpcError) as caught:
                next(call)
            silent.set()
            assert (caught.value.code(), "within 1 s" in caught.value.details()) == (LATE, True), method


def test_answers_that_a_client_does_not_read_are_bounded_for_its_address(tmp_path) -> None:
    writer = closed_store(
        tmp_path / "store", *(appended("orders", bytes(100_000)) for _ in range(4)), segment_size=8 << 20
    )
    asked = admin_pb2.ListMessageRequest(topic=Resource(name="orders")).SerializeToString()
    limits = Limits(unsent_bytes=1 << 20)
    with serving_grpc(writer.root, folder=tmp_path, limits=limits) as served, grpc_client(served) as client:
        unread = open_calls(served.address, b"/apache.rocketmq.v2.Admin/QueryMessage", 1, "127.0.0.1", NO_WINDOW)
        message = bytes([0]) + len(asked).to_bytes(4) + asked
        unread.sendall(len(message).to_bytes(3) + bytes([0, 1]) + (1).to_bytes(4) + message)
        deadline = time.monotonic() + 60
        while client.admin("QueryMessage", asked).status.code != Code.TOO_MANY_REQUESTS:
            assert time.monotonic() < deadline
        unread.close()
        while client.admin("QueryMessage", asked).status.code != Code.OK:
            assert time.monotonic() < deadline


def test_what_an_answer_repeats_for_each_queue_is_bounded(client) -> None:
    addresses = [{"host": "10.0.0.1", "port": 1}] * 1000
    topic, endpoints = {"name": "TopicTest"}, {"scheme": "IPv4", "addresses": addresses}
    status = client.messaging("QueryRoute", topic=topic, endpoints=endpoints).status
    assert (status.code, "4096 bytes" in status.message) == (Code.BAD_REQUEST, True)
    status = client.messaging("QueryRoute", topic={**topic, "resource_namespace": "n" * 128}).status
    assert (status.code, "namespace" in status.message) == (Code.ILLEGAL_TOPIC, True)
    status = client.admin("QueryTimeSpan", group={"name": "CG_FAIL"}, topics=[topic] * 1001).status
    assert (status.code, "1000" in status.message) == (Code.BAD_REQUEST, True)


STATS = "GetProxyRuntimeStats"
WRITES = ("ChangeLogLevel", "DeleteSubscription", "ResetGroupOffset", "VerifyMessage", "AdminSendMessage")


def code_of(client, method=STATS) -> str:
    return Code.Name(client.admin(method).status.code)


def test_what_writes_what_is_no_request_and_what_is_too_long_is_refused(g1_store, tmp_path, caplog) -> None:
    limits = Limits(body_bytes=4096)
    with serving_grpc(g1_store, folder=tmp_path, limits=limits) as served, grpc_client(served) as client:
        for method in WRITES[1:]:
            status = client.admin(method).status
            assert (status.code, method in status.message) == (Code.FORBIDDEN, True)
        unknown = client.channel.unary_unary("/apache.rocketmq.v2.Admin/Nothing")
        codes = grpc.StatusCode
        for call, code in (
            (lambda: client.admin(WRITES[0]), codes.PERMISSION_DENIED),
            (lambda: client.admin("ResetGroupOffset", b"\x0a\xff\xff"), codes.INVALID_ARGUMENT),
            (lambda: unknown(b"", timeout=60), codes.UNIMPLEMENTED),
            (lambda: client.admin("AdminSendMessage", body=bytes(5000)), codes.RESOURCE_EXHAUSTED),
        ):
            with pytest.raises(grpc.RpcError) as caught:
                call()
            assert caught.value.code() == code
        assert code_of(client) == "OK"
    assert "Traceback" not in caplog.text


def test_guessing_is_bounded_also_for_the_right_key(g1_store: Path, tmp_path: Path) -> None:
    acl = write_accounts(tmp_path / "plain_acl.yml")
    with serving_grpc(g1_store, folder=tmp_path, acl=acl) as served, grpc_client(served) as client:
        codes = []
        for number in range(12):
            client.metadata = signed(ADMIN, f"wrong-secret-{number}")
            codes.append(code_of(client))
        assert (codes[:10], codes[11]) == (["UNAUTHORIZED"] * 10, "TOO_MANY_REQUESTS")
        client.metadata = signed(ADMIN, ADMIN_SECRET)
        assert code_of(client) == "TOO_MANY_REQUESTS"


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "MQv2-HMAC-SHA1",
        "MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature=00",
        "MQv2-HMAC-SHA1 Credential=abc, SignedHeaders=x-mq-date-time, Signature=xyz",
        "Basic YWRtaW46YWRtaW4=",
        ",,,=,=,",
    ],
)
def test_what_is_no_signature_is_none(authorization: str) -> None:
    assert not signature_of({"authorization": authorization, "x-mq-date-time": "20231227T194619Z"}).access_key


def test_a_signature_is_read_as_the_official_builder_reads_it() -> None:
    # DefaultAuthenticationContextBuilderTest of rocketmq-auth has this header.
    signature = "D18A9CBCDDBA9041D6693268FEF15A989E64430B"
    text = f"MQv2-HMAC-SHA1 Credential=abc, SignedHeaders=x-mq-date-time, Signature={signature}"
    found = signature_of({"authorization": text, "x-mq-date-time": "20231227T194619Z"})
    assert (found.access_key, found.signed) == ("abc", b"20231227T194619Z")
    assert found.signature == bytes.fromhex(signature)


def test_tls_is_the_ports_own_and_client_certificates_are_asked_for(g1_store: Path, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path / "ca")
    certificate, key = authority.sign("server")
    own = authority.sign("client")
    options = TlsOptions("enforcing", certificate, key, client_ca=authority.certificate, client_auth="required")
    trusted = authority.certificate.read_bytes()
    with serving_grpc(g1_store, folder=tmp_path, tls=options) as served:
        keys = (each.read_bytes() for each in own[::-1])
        with grpc_client(served, grpc.ssl_channel_credentials(trusted, *keys)) as known:
            assert code_of(known) == "OK"
        with grpc_client(served, grpc.ssl_channel_credentials(trusted)) as stranger:
            stub = stranger.channel.unary_unary("/apache.rocketmq.v2.Admin/GetProxyRuntimeStats")
            with pytest.raises(grpc.RpcError) as caught:
                stub(admin_pb2.GetProxyRuntimeStatsRequest().SerializeToString(), timeout=20)
            assert caught.value.code() == grpc.StatusCode.UNAVAILABLE


FOLDER = Path("broker/grpc/messages")
NAMES = ("admin", "definition", "service")


def test_modules_of_messages_are_what_protoc_makes_of_their_files(tmp_path: Path) -> None:
    protos = [str(FOLDER / f"{name}.proto") for name in NAMES]
    options = ["-I.", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *options, *protos], cwd=ROOT, check=True, timeout=120)
    for name in (f"{name}_pb2.{kind}" for name in NAMES for kind in ("py", "pyi")):
        assert (ROOT / FOLDER / name).read_text() == (tmp_path / FOLDER / name).read_text(), name


@pytest.fixture(scope="module")
def serving_small(g1_store, tmp_path_factory):
    with serving_grpc(g1_store, folder=tmp_path_factory.mktemp("messaging")) as serving_small:
        yield serving_small


DIFFERENT = {
    "route-no-scheme": "BAD_REQUEST with a sentence; the proxy names a line of its source",
    "settings-pull": "consumers that pull are served", "heartbeat-pull": "consumers that pull are served",
    "pull": "served", "get-offset": "served", "query-offset": "served", "update-offset": "served"
}  # fmt: skip
"""Cases that are answered in another way than by the proxy, and why."""


def test_answers_are_those_of_the_official_proxy(serving_small) -> None:
    theirs = recorded()
    ours = {answer["name"]: answer for answer in asked_of(str(serving_small.address))}
    assert (theirs.keys(), len(theirs)) == (ours.keys(), len(CASES))
    assert {name for name, answer in ours.items() if answer != theirs[name]} == DIFFERENT.keys()
