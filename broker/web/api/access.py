"""Check who may use the API: the host that a request names, and the keys of `--acl` by HTTP Basic.

A foreign page that gives its own host name our address (DNS rebinding) is recognized by the Host header: only IP
addresses, this machine's names, and those of `--http-host` are accepted. Keys are the access key and the secret key of
an account; they are compared in the same time whatever is wrong with them, and appear in no log. Guessing is bounded
(:mod:`broker.security.failed_attempts`), and each guess is a line of the audit log.

White lists go by a client's address. That is the socket's peer, or, where the peer is one of `--trusted-proxy`, what
that proxy wrote into X-Forwarded-For; any other client may write into this header what it likes.

With `--http-auth basic` a browser sends keys by itself. So they are asked for only where nobody can read them on their
way. What a page of another origin makes a browser ask is always refused: that page cannot read the answer, but it would
cost us work. Links from elsewhere open the page, and metrics, all the same.
"""

import base64
import binascii
import hashlib
import hmac
import ipaddress
import logging
import math
import re
import socket
from collections.abc import Iterable
from typing import Final

from starlette.requests import HTTPConnection, Request

from broker.config import ASK_ON_THE_PAGE, HttpAuth, Networks
from broker.security.accounts import Account, Accounts
from broker.security.audit_log import AuditLog, Look, now
from broker.security.failed_attempts import FailedAttempts
from broker.security.watched_files import Watched
from broker.web.api.errors import ApiError

logger = logging.getLogger(__name__)

FORWARDED: Final = "x-forwarded-for"
"""Header with the addresses that a request came through: each proxy appends the one that asked it."""

NO_SECRET: Final = b"\x00no account has this secret"
"""Secret that keys are compared with where there is no such account, so that the comparison takes as long."""

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
        self.accounts = accounts
        self._auth, self._audit_log, self._broker = auth, audit_log, broker
        self._failed = FailedAttempts()

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
        self.check_way(request)
        return self._account_of(request, path)

    def _account_of(self, request: Request, path: str) -> Account | None:
        if self.accounts is None:
            return None
        accounts = self.accounts.current
        address = self.client_address(request)
        if address is not None and accounts.is_white(address):
            return None
        # Of a named account the secret is always asked for, also where signatures are not (whiteRemoteAddress).
        access_key, secret = _keys_of(request.headers.get("authorization", ""))
        if not access_key:
            text = "this server asks for an access key and a secret key (HTTP Basic)"
            raise FailedLogin(text, is_noted=False)
        wait_seconds = self._failed.wait_seconds(address, access_key)
        if wait_seconds:
            raise _too_many(wait_seconds)
        account = accounts.by_access_key.get(access_key)
        # Digests, since the time to compare depends on the length of what is compared with.
        expected = _digest(NO_SECRET if account is None else account.secret_key)
        if hmac.compare_digest(_digest(secret), expected) and account is not None:
            self._failed.note_success(address, access_key)
            return account
        is_guess = self._failed.note_failed(address, access_key, secret)
        text = "the access key or the secret key is wrong"
        if is_guess:
            client = address or (request.client.host if request.client is not None else "")
            self._note(f"{request.method} {path}", client, access_key if account is not None else None, text)
            if self._failed.wait_seconds(address, access_key):
                logger.warning("HTTP: too many failed logins from %s; further ones are refused for a while", client)
        raise FailedLogin(text, is_noted=is_guess)

    def _note(self, asked_for: str, client: str, access_key: str | None, remark: str) -> None:
        """Log a failed login. A name that no account has is left out: it may be a secret in the wrong field."""
        if self._audit_log is not None:
            asked = {} if access_key is None else {"accessKey": access_key}
            look = Look(now(), self._broker, None, client, asked_for, "UNAUTHORIZED", asked, 0, (), remark)
            self._audit_log.write(look)

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


def _too_many(wait_seconds: float) -> ApiError:
    seconds = math.ceil(wait_seconds)
    error = ApiError(429, "too_many_attempts", f"too many wrong keys came from this address: try again in {seconds} s")
    error.retry_seconds = seconds
    return error


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


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
