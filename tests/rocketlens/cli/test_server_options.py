"""Options by which `find` asks a server with TLS and accounts, for a key and for an id."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from acl_file import ADMIN, ADMIN_SECRET, READER, READER_SECRET, write_accounts
from broker.config import TlsOptions
from broker.endpoint import Endpoint
from broker_harness import service_of, serving_in_a_thread
from certificates import Authority
from command_line import Outcome, rocketlens
from rocketlens.cli.server_options import ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE
from storage.store.message_store import MessageStore

UNIQUE_KEY = "FD000000000000000000000000000002708C30946E09687211CE0017"
OFFSET = 6581
QUERY = ("find", UNIQUE_KEY, "--topic", "TopicTest", "--as", "unique-key", "--json")
VIEW = ("find", OFFSET, "--as", "physical-offset", "--json")
PASSWORD = "open sesame"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> tuple[Path, Path]:
    """A client's certificate and key, which is locked."""
    return authority.sign("client", PASSWORD)


@pytest.fixture(scope="module")
def server(g1_store: Path, authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """It speaks TLS alone, to clients with a certificate, and answers signed requests alone."""
    pair = authority.sign("server")
    tls = TlsOptions("enforcing", *pair, client_ca=authority.certificate, client_auth="required")
    acl = write_accounts(tmp_path_factory.mktemp("acl") / "plain_acl.yml")
    with serving_in_a_thread(service_of(MessageStore.open(g1_store), tls=tls, acl=acl)) as endpoint:
        yield endpoint


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    path = tmp_path / "tools.yml"
    path.write_text(f"accessKey: {READER}\nsecretKey: {READER_SECRET}\n")
    return path


@pytest.fixture
def password(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text(PASSWORD + "\n")
    return path


@pytest.fixture
def tls(authority: Authority, own: tuple[Path, Path], password: Path) -> tuple[object, ...]:
    ours = ("--tls-cert", own[0], "--tls-key", own[1], "--tls-key-password-file", password)
    return ("--tls-ca", authority.certificate, *ours)


def unique_keys(outcome: Outcome) -> list[str]:
    assert (outcome.code, outcome.errors) == (0, "")
    return [message["uniqueKey"] for message in outcome.messages]


@pytest.mark.parametrize(
    "question",
    [
        *(("find", UNIQUE_KEY), ("doctor",), ("tail", "--topic", "TopicTest")),
        *(
            pytest.param(each, marks=pytest.mark.soak)
            for each in (
                *(("groups",), ("info",), ("topics",), ("space",)),
                *(("life", UNIQUE_KEY), ("pending",), ("search", "--topic", "TopicTest")),
            )
        ),
    ],
    ids=lambda question: str(question[0]),
)
def test_every_command_that_asks_a_server_takes_them(
    g1_store: Path,
    server: Endpoint,
    authority: Authority,
    own: tuple[Path, Path],
    password: Path,
    tmp_path: Path,
    question: tuple[str, ...],
) -> None:
    command, *rest = question
    credentials = tmp_path / "admin.yml"  # lists are for administrators
    credentials.write_text(f"accessKey: {ADMIN}\nsecretKey: {ADMIN_SECRET}\n")
    ours = ("--tls-cert", own[0], "--tls-key", own[1], "--tls-key-password-file", password)
    asked = (command, server, *rest, "--json", *ours, "--credentials", credentials)
    for trusting in (("--tls-ca", authority.certificate), ("--tls-no-verify",)):
        outcome = rocketlens(*asked, *trusting)
        assert outcome.code == (1 if command == "pending" else 0), outcome.errors
        assert outcome.output
    refused = rocketlens(*asked, "--tls")
    assert (refused.code, refused.output) == (3, b"")
    assert "TLS: " in refused.errors
    for options in (("--tls",), ("--credentials", credentials)):
        misplaced = rocketlens(command, g1_store, *rest, *options)
        assert (misplaced.code, misplaced.output) == (2, b"")
        assert "are for a server, not for a STORE" in misplaced.errors


def test_what_sends_takes_them_for_both_ends(
    g1_store: Path, server: Endpoint, tls: tuple[object, ...], tmp_path: Path
) -> None:
    keys = tmp_path / "admin.yml"
    keys.write_text(f"accessKey: {ADMIN}\nsecretKey: {ADMIN_SECRET}\n")
    for source in (server, g1_store):
        asked = ("replay", source, "--topic", "TopicTest", "--limit", "1", "--to", server, *tls)
        for options in (("--credentials", keys), ("--credentials", keys, "--to-credentials", keys)):
            outcome = rocketlens(*asked, *options)
            # A RocketLens server names itself as a broker to which nobody writes.
            assert (outcome.code, "topic TopicTest cannot be written there" in outcome.errors) == (1, True)
        refused = rocketlens(*asked)
        assert (refused.code, "answered" in refused.errors) == (3, True)
    assert rocketlens("replay", g1_store, "--topic", "T", "--to", server, "--tls").code == 3


def test_a_file_of_keys_comes_before_the_environment(
    server: Endpoint, tls: tuple[object, ...], credentials: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ACCESS_KEY_VARIABLE, READER)
    monkeypatch.setenv(SECRET_KEY_VARIABLE, "not-the-one")
    wrong = rocketlens(*QUERY, "--server", server, *tls)
    assert wrong.code == 3
    assert "check signature failed" in wrong.errors
    assert "not-the-one" not in wrong.errors
    assert unique_keys(rocketlens(*QUERY, "--server", server, *tls, "--credentials", credentials)) == [UNIQUE_KEY]


def test_a_server_that_wants_a_certificate_or_keys_refuses_who_has_none(
    server: Endpoint, authority: Authority, tls: tuple[object, ...], credentials: Path
) -> None:
    plain = rocketlens(*VIEW, "--server", server, "--credentials", credentials)
    nameless = rocketlens(*VIEW, "--server", server, "--credentials", credentials, "--tls-ca", authority.certificate)
    unsigned = rocketlens(*VIEW, "--server", server, *tls)
    assert [outcome.code for outcome in (plain, nameless, unsigned)] == [3, 3, 3]
    assert "NO_PERMISSION" in unsigned.errors
    assert "username cannot be null" in unsigned.errors


def test_tls_alone_trusts_the_authorities_of_this_machine(
    g1_store: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = TlsOptions("enforcing", *authority.sign("plain"))
    with serving_in_a_thread(service_of(MessageStore.open(g1_store), tls=options)) as endpoint:
        assert rocketlens(*VIEW, "--server", endpoint, "--tls").code == 3
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        assert unique_keys(rocketlens(*VIEW, "--server", endpoint, "--tls")) == [UNIQUE_KEY]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"accessKey: reader-key\n", "expected accessKey and secretKey"),
        (b"- hidden-secret\n", "expected accessKey and secretKey"),
        (b"accessKey: reader-key\nsecretKey: [hidden-secret]\n", "neither a text nor a number"),
        (b"accessKey: reader-key\nsecretKey: 'hidden-secret\n", "not YAML in line 3"),
        (b"accessKey: reader-key\nsecretKey: hidden-secret\xff\n", "not YAML"),
    ],
)
def test_a_file_that_holds_no_keys_is_named_and_not_quoted(tmp_path: Path, text: bytes, says: str) -> None:
    path = tmp_path / "tools.yml"
    path.write_bytes(text)
    outcome = rocketlens(*VIEW, "--server", "127.0.0.1:1", "--credentials", path)
    assert outcome.code == 2
    assert f"--credentials {path}: " in outcome.errors
    assert says in outcome.errors
    assert "hidden" not in outcome.errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("STORE", "--tls"), "are for a server, not for a STORE"),
        (("STORE", "--credentials", "FILE"), "are for a server, not for a STORE"),
        (("--server", "127.0.0.1:1", "--tls-key", "FILE"), "need --tls-cert"),
        (("--server", "127.0.0.1:1", "--tls-ca", "FILE", "--tls-no-verify"), "exclude each other"),
        (("--server", "127.0.0.1:1", "--tls-ca", "/nowhere.pem"), "/nowhere.pem cannot be used: No such file"),
        (("--server", "127.0.0.1:1", "--tls-cert", "FILE"), "cannot be used"),
        (("--server", "127.0.0.1:1", "--credentials", "/nowhere.yml"), "--credentials /nowhere.yml: No such file"),
    ],
)
def test_options_that_cannot_be_are_refused(
    g1_store: Path, credentials: Path, arguments: tuple[str, ...], says: str
) -> None:
    places = {"STORE": g1_store, "FILE": credentials}
    named = [places.get(each, each) for each in arguments]
    for command in (("find", *named, *QUERY[1:]), ("find", *named, OFFSET)):
        outcome = rocketlens(*command)
        assert outcome.code == 2
        assert says in outcome.errors


def test_keys_may_be_in_the_environment(
    server: Endpoint, tls: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ACCESS_KEY_VARIABLE, READER)
    monkeypatch.setenv(SECRET_KEY_VARIABLE, READER_SECRET)
    assert unique_keys(rocketlens(*QUERY, "--server", server, *tls)) == [UNIQUE_KEY]
    monkeypatch.setenv(SECRET_KEY_VARIABLE, "")
    outcome = rocketlens(*QUERY, "--server", server, *tls)
    assert outcome.code == 2
    assert f"{ACCESS_KEY_VARIABLE} and {SECRET_KEY_VARIABLE}: set both or neither" in outcome.errors
