"""What all calls have in common: accounts, TLS, limits, errors, figures and the audit log."""

import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from acl_file import ADMIN, ADMIN_SECRET, write_accounts
from broker.config import TlsOptions
from broker.grpc.messages import admin_pb2
from broker.grpc.messages.definition_pb2 import Code
from broker.grpc.signature import signature_of
from broker.limits import Limits
from certificates import Authority
from grpc_cases import CASES, asked_of, recorded
from grpc_client import grpc_client, serving_grpc, signed
from process import ROOT

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
def served(g1_store, tmp_path_factory):
    with serving_grpc(g1_store, folder=tmp_path_factory.mktemp("messaging")) as served:
        yield served


DIFFERENT = {
    "route-no-scheme": "BAD_REQUEST with a sentence; the proxy names a line of its source",
    "settings-pull": "consumers that pull are served", "heartbeat-pull": "consumers that pull are served",
    "pull": "served", "get-offset": "served", "query-offset": "served", "update-offset": "served"
}  # fmt: skip
"""Cases that are answered in another way than by the proxy, and why."""


def test_answers_are_those_of_the_official_proxy(served) -> None:
    theirs = recorded()
    ours = {answer["name"]: answer for answer in asked_of(str(served.address))}
    assert (theirs.keys(), len(theirs)) == (ours.keys(), len(CASES))
    assert {name for name, answer in ours.items() if answer != theirs[name]} == DIFFERENT.keys()
