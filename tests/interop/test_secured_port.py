"""Official Java clients and mqadmin at a port with TLS and accounts: who is served, and why others are refused."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from acl_file import ADMIN, ADMIN_SECRET, PLAIN_ACL, READER, READER_SECRET, write_accounts
from blocking_client import eventually
from certificates import Authority
from interop.jars import OLD_CLIENT_VERSION, SERVER_VERSION
from interop.java_client import Subscription
from process import rocketlens_serving

pytestmark = pytest.mark.interop

HOT_QUERY = ("queryMsgByKey", "-t", "TopicTest", "-k", "hotkey")
ROUTE = ("topicRoute", "-t", "TopicTest")
"""Unlike a query, which says no more than that there is no route, this repeats what the server answered."""

CONSUME_SECONDS = 60


@dataclass(frozen=True)
class Secured:
    address: str
    mode: str
    acl: Path
    log: Path


def set_keys(client, access_key, secret_key) -> None:
    tools = client.conf / "tools.yml"
    tools.unlink(missing_ok=True)
    if access_key:
        tools.write_text(f"accessKey: {access_key}\nsecretKey: {secret_key}\n")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("ca"))


VERSIONS = {"enforcing": OLD_CLIENT_VERSION, "permissive": SERVER_VERSION}
"""The client's version for each mode of the port."""


@pytest.fixture(scope="module", params=["enforcing", pytest.param("permissive", marks=pytest.mark.soak)])
def server(request, g1_store, authority, tmp_path_factory):
    work = tmp_path_factory.mktemp("secured")
    acl = write_accounts(work / "plain_acl.yml")
    certificate, key = authority.sign("server")
    options = ("--tls-mode", request.param, "--tls-cert", certificate, "--tls-key", key, "--acl", acl)
    with rocketlens_serving(g1_store, work, *map(str, options)) as (host, port):
        yield Secured(f"{host}:{port}", request.param, acl, work / "stderr")


@pytest.fixture(scope="module")
def tls_client(server, authority, java):
    trust = ["-Dtls.client.authServer=true", f"-Dtls.client.trustCertPath={authority.certificate}"]
    return java(VERSIONS[server.mode], "JSON", "-Dtls.enable=true", *trust)


def ask(client, server, access_key, secret_key, *command) -> str:
    set_keys(client, access_key, secret_key)
    return client.mqadmin(*command, "-n", server.address)


def test_good_keys_find_the_messages(server, tls_client) -> None:
    for keys in ((READER, READER_SECRET), (ADMIN, ADMIN_SECRET)):
        printed = ask(tls_client, server, *keys, *HOT_QUERY)
        assert printed.count("7F00000100002A9F") + printed.count("FD0000000000") >= 40, printed


@pytest.mark.parametrize(
    ("access_key", "secret_key", "says"),
    [
        (READER, ADMIN_SECRET, "check signature failed."),
        ("nobody-key", READER_SECRET, "User:nobody-key is not found."),
        ("", "", "username cannot be null."),
    ],
)
def test_others_are_told_why_not(server, tls_client, access_key, secret_key, says) -> None:
    printed = ask(tls_client, server, access_key, secret_key, *ROUTE)
    assert "CODE: 16" in printed
    assert says in printed
    assert "FD0000000000" not in ask(tls_client, server, access_key, secret_key, *HOT_QUERY)


def test_a_topic_without_permission_and_what_is_for_administrators_are_refused(server, tls_client) -> None:
    denied = ("queryMsgByKey", "-t", "TopicBatch", "-k", "batch-0")
    assert "FD0000000000" not in ask(tls_client, server, READER, READER_SECRET, *denied)
    printed = ask(tls_client, server, READER, READER_SECRET, "topicRoute", "-t", "TopicBatch")
    assert "User:reader-key has no permission to access Topic:TopicBatch from 127.0.0.1" in printed
    # The query itself says no more than that there is no such topic; the server knows what is wanting.
    wanted = "account reader-key lacks SUB of topic TopicBatch; to give it, add to plain_acl.yml: topicPerms: - TopicB"
    assert server.log.read_text().count(wanted) == 1
    assert "FD0000000000" in ask(tls_client, server, ADMIN, ADMIN_SECRET, *denied)
    printed = ask(tls_client, server, READER, READER_SECRET, "topicList")
    assert "it is for administrators" in printed
    assert "TopicTest" in ask(tls_client, server, ADMIN, ADMIN_SECRET, "topicList")


def test_a_consumer_with_keys_receives_its_topic_and_no_other(server, tls_client) -> None:
    keys = (READER, READER_SECRET)
    # A group of its own for each client: the second would go on where the first left off.
    group = "readers" if tls_client.version == SERVER_VERSION else "oldReaders"
    subscriptions = {"mine": Subscription("push", group, "TopicTest", credentials=keys)}
    subscriptions["denied"] = Subscription("push", group, "TopicBatch", credentials=keys)
    subscriptions["forged"] = Subscription("push", group, "TopicTest", credentials=(READER, "wrong-secret"))
    tls_client.consume(server.address, {"mine": subscriptions["mine"]})
    eventually(lambda: len(tls_client.look("mine").messages) >= 20, "its messages", CONSUME_SECONDS)
    ended = tls_client.end("mine")
    assert {message["topic"] for message in ended["mine"].messages} == {"TopicTest"}
    assert len(ended["mine"].messages) >= 20
    others = {name: subscriptions[name] for name in ("denied", "forged")}
    tls_client.consume(server.address, others)
    assert [each.messages for each in tls_client.end(*others).values()] == [[], []]


def test_a_white_list_that_changes_lets_in_who_has_no_keys(server, tls_client) -> None:
    assert "CODE: 16" in ask(tls_client, server, "", "", *ROUTE)
    try:
        write_accounts(server.acl, PLAIN_ACL.replace("  - 10.10.103.*", "  - 127.0.0.1"))
        eventually(lambda: "CODE: 16" not in ask(tls_client, server, "", "", *ROUTE), "the new list", CONSUME_SECONDS)
        assert "FD0000000000" in ask(tls_client, server, "", "", *HOT_QUERY)
    finally:
        write_accounts(server.acl, age_seconds=30)
        eventually(lambda: "CODE: 16" in ask(tls_client, server, "", "", *ROUTE), "the old list", CONSUME_SECONDS)


def test_a_plain_client_is_served_beside_tls_unless_tls_is_enforced(server, java) -> None:
    plain = java(SERVER_VERSION, "JSON")
    try:
        printed = ask(plain, server, READER, READER_SECRET, *HOT_QUERY)
    finally:
        set_keys(plain, "", "")
    if server.mode == "enforcing":
        assert "FD0000000000" not in printed
        assert "does not use TLS" in server.log.read_text()
    else:
        assert "FD0000000000" in printed
