"""No path, method or spelling is answered before host and login are checked, but what is open to everybody."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acl_file import READER, READER_SECRET, SECRETS, write_accounts
from broker.config import HttpAuth
from broker.endpoint import Endpoint
from broker.metrics.metrics_rows import MetricsRows
from broker.web._page_files import ICON, VIEWS, read_page
from broker.web.site import Site
from web_questions import ApiOf, keys

PROBES = ("/healthz", "/readyz")
OPEN = (*PROBES, ICON)
"""What shows nothing of a store; probes and browsers ask for it without keys."""

METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE", "get")
FOREIGN = (
    "evil.example",
    "127.0.0.1.evil.example",
    "",
    "localhost@evil.example",
    "[::1]evil.example",
    "localhost:80:80",
)
OURS = ("127.0.0.1", "localhost:9180", "[::1]", "[::1]:9180", "a.localhost")


class Sites:
    """One store's site without accounts, and with a login."""

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

    def ask(
        self, raw: str, method: str, host: str, headers: dict[str, str], *, guarded: bool
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body, for a path as it would come by the wire."""
        scope = {
            "type": "http", "http_version": "1.1", "scheme": "http", "method": method, "path": unquote(raw),
            "raw_path": raw.encode(), "query_string": b"", "root_path": "", "client": ("127.0.0.1", 5),
            "server": ("127.0.0.1", 80),
            "headers": [(name.lower().encode(), text.encode()) for name, text in {"host": host, **headers}.items()],
        }  # fmt: skip
        sent: list[Any] = []
        asked = False

        async def receive() -> dict[str, Any]:
            nonlocal asked
            if asked:
                await asyncio.Event().wait()
            asked = True
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
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
    data: st.DataObject, spelling: str, method: str, guarded: bool, sites: Sites
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
def test_without_a_login_nothing_is_said_whatever_the_path_and_the_method(
    data: st.DataObject, spelling: str, method: str, sites: Sites
) -> None:
    raw = SPELLINGS[spelling](data.draw(st.sampled_from(sites.paths)))
    host = data.draw(st.sampled_from(OURS))
    status, headers, body = sites.ask(raw, method, host, {}, guarded=True)
    if unquote(raw) in (*OPEN, "/metrics") and method in ("GET", "HEAD"):
        return
    assert (status, "location" in headers) == (401, False)
    assert not any(secret.encode() in body for secret in SECRETS)


@given(
    data=st.data(), spelling=st.sampled_from(sorted(SPELLINGS)), method=st.sampled_from(METHODS), guarded=st.booleans()
)
def test_nobody_is_sent_elsewhere_and_only_paths_as_they_are_have_answers(
    data: st.DataObject, spelling: str, method: str, guarded: bool, sites: Sites
) -> None:
    path = data.draw(st.sampled_from(sites.paths))
    raw = SPELLINGS[spelling](path)
    login = keys(READER, READER_SECRET) if guarded else {}
    status, headers, _ = sites.ask(raw, method, data.draw(st.sampled_from(OURS)), login, guarded=guarded)
    assert "location" not in headers
    assert not 300 <= status < 400
    assert status < 500 or status == 503
    if unquote(raw) not in sites.paths:
        assert status in (404, 405)
