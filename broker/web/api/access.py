"""Check who may use the API: the host that a request names, and the keys of `--acl` by HTTP Basic.

A foreign page that gives its own host name our address (DNS rebinding) is recognized by the Host header: only IP
addresses, this machine's names, and those of `--http-host` are accepted. Keys are the access key and the secret key of
an account; they are compared in the same time whatever is wrong with them, and appear in no log.

White lists go by a client's address. That is the socket's peer, or, where the peer is one of `--trusted-proxy`, what
that proxy wrote into X-Forwarded-For; any other client may write into this header what it likes.
"""

import base64
import binascii
import hmac
import ipaddress
import socket
from collections.abc import Iterable
from typing import Final

from starlette.requests import HTTPConnection, Request

from broker.config import Networks
from broker.security.accounts import Account, Accounts
from broker.security.watched_files import Watched
from broker.web.api.errors import ApiError

FORWARDED: Final = "x-forwarded-for"
"""The header with the addresses that a request came by: each proxy appends the one that it was asked from."""

NO_SECRET: Final = b"\x00no account has this secret"
"""What is compared with where there is no account, so that this takes as long."""


class Access:
    """Admits requests by host and, where there are `accounts`, by their keys."""

    def __init__(
        self, hosts: Iterable[str] = (), proxies: Networks = (), accounts: Watched[Accounts] | None = None
    ) -> None:
        """Take `hosts` besides IP addresses and the names of this machine; `proxies` name their clients."""
        self._proxies = proxies
        self._hosts = {"localhost", socket.gethostname().lower(), *(host.lower() for host in hosts)}
        self.accounts = accounts

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

    def admit(self, request: Request) -> Account | None:
        """The account of a request, None for a client that needs none. Raises `ApiError` 403 and 401."""
        self.check_host(request.headers.get("host", ""))
        if self.accounts is None:
            return None
        accounts = self.accounts.current
        address = self.client_address(request)
        if address is not None and accounts.is_white(address):
            return None
        # Of a named account the secret is always asked for, also where signatures are not (whiteRemoteAddress).
        access_key, secret = _keys_of(request.headers.get("authorization", ""))
        account = accounts.by_access_key.get(access_key)
        if not hmac.compare_digest(secret, NO_SECRET if account is None else account.secret_key) or account is None:
            raise ApiError(401, "unauthorized", _refusal(access_key))
        return account

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


def challenge(request: Request) -> str:
    """The header of a 401: the page asks for keys by itself, so its requests must not make the browser ask too."""
    mode = request.headers.get("sec-fetch-mode", "navigate")
    return 'Basic realm="rocketlens", charset="UTF-8"' if mode == "navigate" else 'X-Basic realm="rocketlens"'


def _refusal(access_key: str) -> str:
    return (
        "the access key or the secret key is wrong"
        if access_key
        else "this server asks for an access key and a secret key (HTTP Basic)"
    )


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
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].rstrip(".")


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
