"""No path is answered before host and login are checked; the page's files; who has to log in where."""

import asyncio
import json
import re
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from urllib.parse import quote, unquote

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette

from acl_file import ADMIN, ADMIN_SECRET, BOUNDED, BOUNDED_SECRET, READER, READER_SECRET, SECRETS, write_accounts
from broker.config import NO_TLS, HttpAuth, ServeOptions, TlsOptions
from broker.endpoint import Endpoint
from broker.metrics.metrics_rows import MetricsRows
from broker.security._failed_attempts import OF_NAME
from broker.security.audit_log import AuditLog
from broker.web._page_files import DIRECTORY, ICON, VIEWS, read_page
from broker.web.site import Site
from broker_harness import service_of
from protocol.errors import ConfigError
from storage.store.message_store import MessageStore
from web_questions import ApiOf, answer_of, keys, serving_page

PROBES = ("/healthz", "/readyz")
OPEN = (*PROBES, ICON)
"""What shows nothing of a store; probes and browsers ask for it without keys."""

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE", "get")
FOREIGN = ("evil.example", "127.0.0.1.evil.example", "", "localhost@evil.example", "[::1]evil.example")
FOREIGN += ("localhost:80:80",)
OURS = ("127.0.0.1", "localhost:9180", "[::1]", "[::1]:9180", "a.localhost")


class Sites:
    def __init__(self, store: Path, folder: Path) -> None:
        self.api = ApiOf(store)
        acl = write_accounts(folder / "plain_acl.yml")
        guarded = ApiOf(store, acl, acl=acl, http=Endpoint("127.0.0.1", 0), http_auth=HttpAuth("basic"))
        self.applications = [
            Site(MetricsRows(), lambda _accept: (b"figures\n", "text/plain"), each.api).application()
            for each in (self.api, guarded)
        ]
        self.paths = [
            *(f"/api/v1{endpoint.path}" for endpoint in self.api.api.endpoints),
            *(f"/page/{name}" for name in read_page()),
            *VIEWS,
            *("/api/v1/openapi.json", "/metrics", *OPEN),
            *("/api", "/api/v1", "/page", "/nothing", "/page/../../port.py", "/docs"),
        ]

    def ask(self, raw, method, host, headers, *, guarded) -> tuple[int, dict[str, str], bytes]:
        scope = {
            "type": "http", "http_version": "1.1", "scheme": "http", "method": method, "path": unquote(raw),
            "raw_path": raw.encode(), "query_string": b"", "root_path": "", "client": ("127.0.0.1", 5),
            "server": ("127.0.0.1", 80),
            "headers": [(name.lower().encode(), text.encode()) for name, text in {"host": host, **headers}.items()],
        }  # fmt: skip
        sent = []
        asked = False

        async def receive():
            nonlocal asked
            if asked:
                await asyncio.Event().wait()
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message) -> None:
            sent.append(message)

        asyncio.run(self.applications[guarded](scope, receive, send))
        start, *rest = sent
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        return start["status"], found, b"".join(each.get("body", b"") for each in rest)


@pytest.fixture(scope="module")
def sites(g1_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Sites:
    return Sites(g1_store, tmp_path_factory.mktemp("site"))


SPELLINGS = {
    "as it is": lambda path: path,
    "with a slash": lambda path: path + "/",
    "with two slashes": lambda path: "/" + path,
    "encoded": lambda path: path[:1] + "".join(f"%{ord(letter):02x}" for letter in path[1:]),
    "with encoded slashes": lambda path: path[:1] + quote(path[1:], safe=""),
    "with an encoded slash behind": lambda path: path + "%2f",
    "by a detour": lambda path: "/page/.." + path,
    "by an encoded detour": lambda path: "/%2e%2e" + path,
    "with a parameter": lambda path: path + ";a=b",
    "in capitals": lambda path: path.upper(),
    "with a zero": lambda path: path + "%00",
    "with a line": lambda path: path + "%0d%0aX:%20y",
    "of a host": lambda path: "//evil.example" + path,
    "with wrong bytes": lambda path: path + "%ff%e6",
}


@given(
    data=st.data(), spelling=st.sampled_from(sorted(SPELLINGS)), method=st.sampled_from(METHODS), guarded=st.booleans()
)
def test_under_a_foreign_name_nothing_is_said_whatever_the_path_and_the_method(
    data, spelling, method, guarded, sites
) -> None:
    raw = SPELLINGS[spelling](data.draw(st.sampled_from(sites.paths)))
    host = data.draw(st.sampled_from(FOREIGN))
    status, headers, body = sites.ask(raw, method, host, {}, guarded=guarded)
    if unquote(raw) in OPEN and method in ("GET", "HEAD"):
        return
    assert (status, "location" in headers) == (403, False)
    assert b"foreign_host" in body or b"does not answer as host" in body
    assert "broker-a" not in body.decode()


@given(data=st.data(), spelling=st.sampled_from(sorted(SPELLINGS)), method=st.sampled_from(METHODS))
def test_without_a_login_nothing_is_said_whatever_the_path_and_the_method(data, spelling, method, sites) -> None:
    raw = SPELLINGS[spelling](data.draw(st.sampled_from(sites.paths)))
    host = data.draw(st.sampled_from(OURS))
    status, headers, body = sites.ask(raw, method, host, {}, guarded=True)
    if unquote(raw) in (*OPEN, "/metrics") and method in ("GET", "HEAD"):
        return
    assert (status, "location" in headers) == (401, False)
    assert not any(secret.encode() in body for secret in SECRETS)


LARGEST_MODULE = 300


@pytest.fixture(scope="module")
def origin(g1_store):
    with serving_page([service_of(MessageStore.open(g1_store))]) as origin:
        yield origin


def get(place: str, **headers: str) -> tuple[int, httpx.Headers, bytes]:
    answer = httpx.get(place, headers={name.replace("_", "-"): text for name, text in headers.items()}, timeout=60)
    return answer.status_code, answer.headers, answer.content


def test_every_file_comes_with_the_policy(origin: str) -> None:
    for path in (*VIEWS, ICON, *(f"/page/{name}" for name in read_page())):
        status, headers, content = get(origin + path)
        assert (status, bool(content)) == (200, True), path
        policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
        for name in ("default-src", "base-uri", "frame-ancestors", "form-action"):
            assert policy[name] == "'none'", path
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["require-trusted-types-for"] == "'script'"
        assert not re.search(r"unsafe|https?:|\*", headers["content-security-policy"])
        assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "no-referrer")
        assert get(origin + path, If_None_Match=headers["etag"])[0] == 304


def test_no_script_makes_markup_or_code_of_texts() -> None:
    for name in (each for each in read_page() if each.endswith(".js")):
        text = (DIRECTORY / name).read_text()
        made = re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|DOMParser", text)
        assert not made, name
        assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text), name
        assert text.count("\n") <= LARGEST_MODULE, name
        # Every module that it imports is a file of the page.
        assert set(re.findall(r'from "\./([^"]+)"', text)) <= set(read_page()), name


READER_KEYS = keys(READER, READER_SECRET)
ADMIN_KEYS = keys(ADMIN, ADMIN_SECRET)
FIGURES = b"rocketlens_topic 1\n"
FAR, PROXY = "198.51.100.7", "192.0.2.8"


@dataclass
class Guarded:
    api: ApiOf
    application: Starlette
    log: Path

    def ask(self, path, headers=None, peer="127.0.0.1", scheme="http", method="GET") -> httpx.Response:
        return answer_of(self.application, method, path, peer, scheme, headers=headers)

    def status(self, path, headers=None, **how) -> int:
        return self.ask(path, headers, **how).status_code

    @property
    def lines(self):
        return [json.loads(line) for line in self.log.read_text().splitlines()]


def guarded_by(auth: HttpAuth, store: Path, folder: Path, *proxies: str) -> Guarded:
    acl, log = write_accounts(folder / "plain_acl.yml"), folder / "audit.jsonl"
    tls = TlsOptions(certificate=folder / "server.pem") if auth.needs_tls else NO_TLS
    given = {"acl": acl, "http": Endpoint("127.0.0.1", 0), "http_auth": auth, "tls": tls}
    api = ApiOf(store, acl, AuditLog(log), http_proxies=tuple(map(ip_network, proxies)), **given)
    site = Site(MetricsRows(), lambda _accept: (FIGURES, "text/plain"), api.api)
    return Guarded(api, site.application(), log)


@pytest.fixture
def guarded(g1_store: Path, tmp_path: Path) -> Guarded:
    return guarded_by(HttpAuth("basic"), g1_store, tmp_path)


def every_path(guarded: Guarded) -> list[str]:
    api = [f"/api/v1{endpoint.path}" for endpoint in guarded.api.api.endpoints]
    files = [f"/page/{name}" for name in read_page()]
    assert min(len(api), len(files), len(VIEWS)) > 8
    return [*api, "/api/v1/openapi.json", *files, *VIEWS]


def test_metrics_may_be_for_administrators_and_health_is_for_everybody(g1_store: Path, tmp_path: Path) -> None:
    guarded = guarded_by(HttpAuth("basic-metrics"), g1_store, tmp_path)
    assert guarded.status("/metrics") == 401
    assert guarded.ask("/metrics").headers["www-authenticate"].startswith("Basic ")
    assert guarded.status("/metrics", keys(ADMIN, "wrong")) == 401
    assert guarded.status("/metrics", READER_KEYS) == 403
    assert guarded.ask("/metrics", ADMIN_KEYS).content == FIGURES
    assert guarded.status("/metrics", keys(BOUNDED, BOUNDED_SECRET)) == 200
    assert guarded.status("/metrics", ADMIN_KEYS, peer=FAR) == 403, "by a way that shows the keys"
    assert guarded.status("/healthz", peer=FAR) == 200


def test_keys_are_taken_from_this_machine_by_tls_and_through_the_proxy_alone(g1_store: Path, tmp_path: Path) -> None:
    guarded = guarded_by(HttpAuth("basic"), g1_store, tmp_path, PROXY)
    forwarded = {"X-Forwarded-For": FAR, "X-Forwarded-Proto": "https"}
    for path in ("/", "/api/v1/store", "/page/main.js", "/api/v1/openapi.json"):
        for headers in ({}, READER_KEYS, forwarded | READER_KEYS):
            answer = guarded.ask(path, headers, peer=FAR)
            assert (answer.status_code, answer.json()["error"]["code"]) == (403, "plain_text"), path
            assert "www-authenticate" not in answer.headers, "nobody is asked for keys where they could be read"
        for peer in ("127.0.0.1", "127.0.0.9", "::1", PROXY):
            assert guarded.status(path, forwarded | READER_KEYS, peer=peer) == 200
        assert guarded.status(path, READER_KEYS, peer=FAR, scheme="https") == 200
    assert guarded.status("/metrics", peer=FAR) == guarded.status("/healthz", peer=FAR) == 200


@pytest.mark.parametrize(("auth", "site"), [(HttpAuth(), "same-site"), (HttpAuth("basic"), "cross-site")])
def test_a_page_of_another_site_is_refused_with_a_login_and_without_but_a_link_is_not(
    g1_store, tmp_path, auth, site
) -> None:
    guarded = guarded_by(auth, g1_store, tmp_path)
    opened = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", **READER_KEYS}
    modes = (("no-cors", "image"), ("no-cors", "script"), ("cors", "empty"), ("navigate", "iframe"))
    embedded = [opened | {"Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest} for mode, dest in modes]
    api = [path for path in every_path(guarded) if path.startswith("/api/v1/") and path != "/api/v1/openapi.json"]
    assert len(api) > 10
    for path in (*api, "/metrics"):
        for headers in (opened, *embedded):
            assert guarded.status(path, headers) == 403, (path, headers)
    for path in (*VIEWS, "/page/main.js", "/api/v1/openapi.json"):
        assert guarded.status(path, opened) == 200, path
        for headers in embedded:
            assert guarded.status(path, headers) == 403, (path, headers)


def test_guesses_are_bounded_and_each_is_written_down_once(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    paths = every_path(guarded)
    statuses = [guarded.status(path, keys(READER, f"guess {number}")) for number, path in enumerate(paths)]
    assert statuses == [401] * OF_NAME.attempts + [429] * (len(paths) - OF_NAME.attempts)
    refused = guarded.ask("/api/v1/message?offset=0", READER_KEYS)
    assert refused.status_code == 429, "the right keys too, or it would be no bound"
    assert 1 <= int(refused.headers["retry-after"]) <= 6
    assert guarded.status("/api/v1/message?offset=0", ADMIN_KEYS) == 200
    assert guarded.status("/healthz") == 200
    failed = [line for line in guarded.lines if line["result"] == "UNAUTHORIZED"]
    assert len(failed) == OF_NAME.attempts
    assert {line["request"] for line in failed} == {f"GET {path}" for path in paths[: OF_NAME.attempts]}
    assert {(line["account"], line["client"]) for line in failed} == {(None, "127.0.0.1")}
    assert all(line["asked"] == {"accessKey": READER} for line in failed)
    assert "guess" not in guarded.log.read_text()
    assert caplog.text.count("too many failed logins from 127.0.0.1") == 1
    assert "guess" not in caplog.text


def test_a_name_that_is_no_accounts_is_not_written_down(guarded: Guarded) -> None:
    """It may be a secret that was typed into the wrong field."""
    assert guarded.status("/", keys(READER_SECRET, READER)) == 401
    (line,) = guarded.lines
    assert (line["result"], line["asked"]) == ("UNAUTHORIZED", {})
    assert READER_SECRET not in guarded.log.read_text()


def test_a_failed_login_that_cannot_be_written_down_is_no_answer(g1_store: Path, tmp_path: Path) -> None:
    guarded = guarded_by(HttpAuth("basic-metrics"), g1_store, tmp_path)
    log = guarded.api.api._audit_log
    with open("/dev/full", "wb") as full:
        log._descriptor = full.fileno()
        for number, path in enumerate(("/", "/metrics", "/api/v1/topics", "/api/v1/openapi.json")):
            answer = guarded.ask(path, keys(READER, f"guess {number}"))
            assert (answer.status_code, "audit log" in answer.text) == (503, True), path


def options(**changes) -> ServeOptions:
    given = {"http": Endpoint("127.0.0.1", 9180), "acl": Path("/acl.yml"), "http_auth": HttpAuth("basic")}
    return ServeOptions(Path("/store"), **(given | changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"http_proxies": (ip_network("0.0.0.0/0"),)}, "names everybody"),
        ({"http_auth": HttpAuth(needs_tls=True), "http": None}, "--http-tls needs a certificate: give --tls-cert"),
        ({"http_auth": HttpAuth("basic", needs_tls=True)}, "--http-tls needs a certificate: give --tls-cert"),
    ],
)
def test_options_that_contradict_each_other_are_refused(changes, says) -> None:
    with pytest.raises(ConfigError, match=says):
        options(**changes).check()
