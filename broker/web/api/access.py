"""Check who may use the API: the host that a request names, and the keys of `--acl` by HTTP Basic.

A foreign page that gives its own host name our address (DNS rebinding) is recognized by the Host header: only IP
addresses, this machine's names, and those of `--http-host` are accepted. Keys are the access key and the secret key of
an account (:mod:`broker.security.logins`), and appear in no log.

White lists go by a client's address. That is the socket's peer, or, where the peer is one of `--trusted-proxy`, what
that proxy wrote into X-Forwarded-For; any other client may write into this header what it likes.

With `--http-auth basic` a browser sends keys by itself. So they are asked for only where nobody can read them on their
way. What a page of another origin makes a browser ask is always refused: that page cannot read the answer, but it would
cost us work. Links from elsewhere open the page, and metrics, all the same.
"""

import base64
import binascii
import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Final

from starlette.requests import HTTPConnection, Request

from broker.config import ASK_ON_THE_PAGE, HttpAuth, Networks
from broker.security.accounts import Account, Accounts
from broker.security.audit_log import AuditLog
from broker.security.logins import LoginRefused, Logins, TooManyLogins
from broker.security.watched_files import Watched
from broker.web.api.errors import ApiError

FORWARDED: Final = "x-forwarded-for"
"""Header with the addresses that a request came through: each proxy appends the one that asked it."""

OTHER_SITES: Final = ("cross-site", "same-site")
"""Values of Sec-Fetch-Site by which browsers say that a page of another origin made the request."""


HOST: Final = re.compile(r"(?:\[(?P<address>[^\[\]]+)\]|(?P<name>[^:\[\]@/]+))(?::[0-9]{0,5})?")
"""Form of a Host header; one of another form is refused."""

OPENED: Final = ("navigate", "document")
"""Sec-Fetch-Mode and Sec-Fetch-Dest of an address that somebody opens in a tab, not of a part of another page."""


class FailedLogin(ApiError):
    """A login with wrong keys. `is_noted`: the audit log needs no further line about it."""

    def __init__(self, message: str, *, is_noted: bool) -> None:
        super().__init__(401, "unauthorized", message)
        self.is_noted = is_noted


class Access:
    """Admission of requests by host, by TLS or proxy, and, where there are `accounts`, by their keys."""

    def __init__(
        self,
        hosts: Iterable[str] = (),
        proxies: Networks = (),
        accounts: Watched[Accounts] | None = None,
        auth: HttpAuth = ASK_ON_THE_PAGE,
        audit_log: AuditLog | None = None,
        broker: str = "",
    ) -> None:
        """Accept `hosts` besides IP addresses and the names of this machine; `proxies` may name their clients.

        `auth` says who has to log in; wrong keys are logged in `audit_log` under the name of `broker`.
        """
        self._proxies = proxies
        self._hosts = {"localhost", socket.gethostname().lower(), *map(_name_of, hosts)}
        self.accounts, self._auth = accounts, auth
        self._logins = None if accounts is None else Logins("HTTP", accounts, audit_log, broker)

    def check_host(self, header: str) -> None:
        """Raise `ApiError` for a host that is not ours."""
        host = _name_of(header)
        if host in self._hosts or host.endswith(".localhost") or _is_address(host):
            return
        raise ApiError(
            403,
            "foreign_host",
            f"this server does not answer as host {host!r}: name it with --http-host, or ask by IP address",
        )

    def check_way(self, request: Request) -> None:
        """Raise `ApiError` for a connection on which keys could be read, where such connections are refused."""
        if request.url.scheme == "https":
            return
        if self._auth.needs_tls:
            raise ApiError(403, "tls_needed", "this server answers by TLS alone: ask https:// in place of http://")
        peer = request.client.host if request.client is not None else ""
        if self._auth.asks_first and not (_is_address(peer) and self._is_near(peer)):
            text = (
                "keys are not taken in plain text from the network: ask through the proxy of this server, which has TLS"
            )
            raise ApiError(403, "plain_text", text)

    def check_site(self, request: Request, *, may_open: bool) -> None:
        """Raise `ApiError` for what a page of another origin made a browser ask, unless somebody opened it in a tab and
        it is something that `may_open` so."""
        if request.headers.get("sec-fetch-site") not in OTHER_SITES:
            return
        sought = request.headers.get("sec-fetch-mode"), request.headers.get("sec-fetch-dest")
        if not may_open or sought != OPENED:
            raise ApiError(403, "foreign_site", "the page of another site asked for this: open it from here")

    def check_origin(self, request: Request) -> None:
        """Raise `ApiError` for what a page of another origin sends; browsers say it of every POST."""
        origin = request.headers.get("origin")
        if origin is not None and origin != f"{request.url.scheme}://{request.headers.get('host', '')}":
            raise ApiError(403, "foreign_site", "the page of another site sent this")

    def admit_icon(self, request: Request) -> None:
        """Admit a request for the page's icon, with a login or without. Raises `ApiError`."""
        self.check_host(request.headers.get("host", ""))
        self.check_site(request, may_open=True)
        self.check_way(request)

    def admit_page(self, request: Request) -> None:
        """Admit a request for the page itself, which shows nothing of a store. Raises `ApiError`, `AuditError`."""
        self.admit_icon(request)
        if self._auth.asks_first:
            self._account_of(request, request.url.path)

    def admit_metrics(self, request: Request) -> None:
        """Admit a request for metrics, which name topics and groups. Raises `ApiError`, `AuditError`."""
        self.check_host(request.headers.get("host", ""))
        self.check_site(request, may_open=False)
        if self._auth.needs_tls or self._auth.asks_for_metrics:
            self.check_way(request)
        account = self._account_of(request, request.url.path) if self._auth.asks_for_metrics else None
        if account is not None and not account.is_admin:
            raise ApiError(403, "forbidden", f"{account.access_key} may not see this: it is for administrators")

    def admit(self, request: Request, path: str) -> Account | None:
        """Return the account of a request to a path of the API, None for a client that needs no account.

        Raises `ApiError` 403, 401 and 429, and `AuditError` where a failed login cannot be written down.
        """
        self.check_host(request.headers.get("host", ""))
        self.check_site(request, may_open=False)
        if request.method == "POST":
            self.check_origin(request)
        self.check_way(request)
        return self._account_of(request, path)

    def _account_of(self, request: Request, path: str) -> Account | None:
        address = self.client_address(request)
        if self._logins is None or self._logins.is_white(address):
            return None
        access_key, secret = _keys_of(request.headers.get("authorization", ""))
        if not access_key:
            text = "this server asks for an access key and a secret key (HTTP Basic)"
            raise FailedLogin(text, is_noted=False)
        client = address or (request.client.host if request.client is not None else "")
        try:
            asked_for = f"{request.method} {path}"
            return self._logins.log_in(address, client, asked_for, access_key, secret, lambda expected: expected)
        except LoginRefused as error:
            raise FailedLogin(str(error), is_noted=error.is_noted) from None
        except TooManyLogins as error:
            refused = ApiError(429, "too_many_attempts", str(error))
            refused.retry_seconds = error.retry_seconds
            raise refused from None

    def _is_near(self, peer: str) -> bool:
        """Whether what a peer sends crosses no network on its way here, or only that of a trusted proxy."""
        address = ipaddress.ip_address(peer)
        return address.is_loopback or any(address in network for network in self._proxies)

    def client_address(self, request: HTTPConnection) -> str | None:
        """The IP address that a request comes from, None where that is not known.

        Behind trusted proxies it is the last address in X-Forwarded-For that is none of theirs.
        """
        peer = request.client.host if request.client is not None else ""
        forwarded = [part for line in request.headers.getlist(FORWARDED) for part in line.split(",")]
        for text in (peer, *map(_without_port, reversed(forwarded))):
            if not _is_address(text):
                return None
            if not any(ipaddress.ip_address(text) in network for network in self._proxies):
                return text
        return None


def advice(error: ApiError, request: Request) -> dict[str, str]:
    """Return the headers of a refusal by which a client knows how to log in, or when to ask again.

    The page asks for keys by itself, so its requests must not make the browser ask too.
    """
    if error.status == 401:
        is_opened = request.headers.get("sec-fetch-mode", "navigate") == "navigate"
        scheme = 'Basic realm="rocketlens", charset="UTF-8"' if is_opened else 'X-Basic realm="rocketlens"'
        return {"WWW-Authenticate": scheme}
    return {"Retry-After": str(error.retry_seconds)} if error.status in (429, 503) else {}


def _keys_of(header: str) -> tuple[str, bytes]:
    """Access key and secret key of an Authorization header; empty where it holds none."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        return "", b""
    try:
        access_key, _, secret = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return access_key.decode(), secret
    except (binascii.Error, ValueError):
        return "", b""


def _name_of(header: str) -> str:
    """The host of a Host header, without port and brackets, in lower case."""
    header = header.strip().lower()
    found = HOST.fullmatch(header)
    return header if found is None else (found["address"] or found["name"]).rstrip(".")


def _without_port(text: str) -> str:
    """An address in X-Forwarded-For, behind which some proxies write a port."""
    text = text.strip()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
