"""`--http-auth basic`: who has to log in where, by which ways keys may come, and how often they may be guessed."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette

from acl_file import (
    ADMIN,
    ADMIN_SECRET,
    BOUNDED,
    BOUNDED_SECRET,
    PLAIN_ACL,
    READER,
    READER_SECRET,
    write_accounts,
)
from broker.config import NO_TLS, HttpAuth, ServeOptions, TlsOptions
from broker.endpoint import Endpoint
from broker.metrics.metrics_rows import MetricsRows
from broker.security._failed_attempts import OF_NAME
from broker.security.audit_log import AuditLog
from broker.web._page_files import VIEWS, read_page
from broker.web.site import Site
from broker_harness import until
from protocol.errors import ConfigError
from web_questions import ApiOf, keys

READER_KEYS = keys(READER, READER_SECRET)
ADMIN_KEYS = keys(ADMIN, ADMIN_SECRET)
FIGURES = b"rocketlens_topic 1\n"
FAR, PROXY = "198.51.100.7", "192.0.2.8"


@dataclass
class Guarded:
    """The whole HTTP port over the recorded store, without its socket."""

    api: ApiOf
    application: Starlette
    log: Path

    def ask(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        peer: str = "127.0.0.1",
        scheme: str = "http",
        method: str = "GET",
    ) -> httpx.Response:
        async def answer() -> httpx.Response:
            transport = httpx.ASGITransport(self.application, client=(peer, 4711))
            async with httpx.AsyncClient(transport=transport, base_url=f"{scheme}://127.0.0.1", timeout=60) as client:
                return await client.request(method, path, headers=headers)

        return asyncio.run(answer())

    def status(self, path: str, headers: Mapping[str, str] | None = None, **how: Any) -> int:
        return self.ask(path, headers, **how).status_code

    @property
    def lines(self) -> list[dict[str, Any]]:
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


def test_without_the_option_the_page_asks_and_its_files_are_open(g1_store: Path, tmp_path: Path) -> None:
    guarded = guarded_by(HttpAuth(), g1_store, tmp_path)
    for path in (*VIEWS, "/page/main.js", "/api/v1/openapi.json", "/metrics"):
        assert guarded.status(path, peer=FAR) == 200
    assert guarded.status("/api/v1/store", peer=FAR) == 401
    assert guarded.status("/api/v1/store", READER_KEYS, peer=FAR) == 200


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
    g1_store: Path, tmp_path: Path, auth: HttpAuth, site: str
) -> None:
    guarded = guarded_by(auth, g1_store, tmp_path)
    opened = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", **READER_KEYS}
    embedded = [
        opened | {"Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
        for mode, dest in (("no-cors", "image"), ("no-cors", "script"), ("cors", "empty"), ("navigate", "iframe"))
    ]
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


def test_guesses_by_way_of_a_proxy_count_for_the_client_behind_it(g1_store: Path, tmp_path: Path) -> None:
    guarded = guarded_by(HttpAuth("basic"), g1_store, tmp_path, PROXY)
    behind = {"X-Forwarded-For": FAR}
    for number in range(OF_NAME.attempts + 5):
        guarded.status("/", behind | keys(READER, f"guess {number}"), peer=PROXY)
    assert guarded.status("/", behind | READER_KEYS, peer=PROXY) == 429
    assert guarded.status("/", {"X-Forwarded-For": "203.0.113.9"} | READER_KEYS, peer=PROXY) == 200
    assert guarded.lines[0]["client"] == FAR


def test_a_failed_login_that_cannot_be_written_down_is_no_answer(g1_store: Path, tmp_path: Path) -> None:
    guarded = guarded_by(HttpAuth("basic-metrics"), g1_store, tmp_path)
    log = guarded.api.api._audit_log
    assert log is not None
    with open("/dev/full", "wb") as full:
        log._descriptor = full.fileno()
        for number, path in enumerate(("/", "/metrics", "/api/v1/topics", "/api/v1/openapi.json")):
            answer = guarded.ask(path, keys(READER, f"guess {number}"))
            assert (answer.status_code, "audit log" in answer.text) == (503, True), path


def test_an_account_that_was_taken_away_while_messages_were_waited_for_gets_none(
    guarded: Guarded, tmp_path: Path
) -> None:
    api = guarded.api
    accounts = api.api.access.accounts
    assert accounts is not None
    first = guarded.ask("/api/v1/tail?topic=TopicTest", READER_KEYS).json()

    async def wait_and_lose_the_account() -> httpx.Response:
        loop = asyncio.get_running_loop()
        api.service.polls.start(lambda work: loop.run_in_executor(None, work))
        transport = httpx.ASGITransport(guarded.application, client=("127.0.0.1", 4711))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60) as client:
            parameters = {"topic": "TopicTest", "cursor": first["cursor"], "wait": 3_000}
            asking = asyncio.ensure_future(client.get("/api/v1/tail", params=parameters, headers=READER_KEYS))
            await until(lambda: len(api.service.polls) > 0)
            write_accounts(tmp_path / "plain_acl.yml", PLAIN_ACL.replace("- TopicTest=SUB", "- TopicTest=DENY"), 30)
            await asyncio.to_thread(accounts.refresh)
            try:
                api.service.polls.wake([("TopicTest", queue) for queue in range(16)])
                return await asking
            finally:
                api.service.polls.stop()

    answer = asyncio.run(wait_and_lose_the_account())
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden")


def options(**changes: Any) -> ServeOptions:
    given = {"http": Endpoint("127.0.0.1", 9180), "acl": Path("/acl.yml"), "http_auth": HttpAuth("basic")}
    return ServeOptions(Path("/store"), **(given | changes))


def test_on_a_network_it_needs_tls_or_a_proxy_by_name_and_on_the_loopback_address_nothing_else() -> None:
    for host in ("127.0.0.1", "127.8.9.1", "::1", "localhost"):
        options(http=Endpoint(host, 9180)).check()
    for host in ("0.0.0.0", "::", "10.0.0.7", "ops.example", "localhost.example"):
        with pytest.raises(ConfigError, match="would pass the network in plain text"):
            options(http=Endpoint(host, 9180)).check()
        options(http=Endpoint(host, 9180), http_proxies=(ip_network("10.0.0.5"),)).check()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"acl": None}, "--http-auth basic needs accounts: give --acl"),
        ({"http": None}, "--http-auth basic has no effect: also give --http"),
        ({"http_proxies": (ip_network("0.0.0.0/0"),)}, "names everybody"),
        ({"http_proxies": (ip_network("10.0.0.5"), ip_network("::/0"))}, "names everybody"),
        ({"http_auth": HttpAuth(needs_tls=True), "http": None}, "--http-tls needs a certificate: give --tls-cert"),
        ({"http_auth": HttpAuth("basic", needs_tls=True)}, "--http-tls needs a certificate: give --tls-cert"),
    ],
)
def test_options_that_contradict_each_other_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        options(**changes).check()
