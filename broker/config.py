"""The options of a server, addresses among them: parsed and checked once, before anything opens.

Nothing here is read from the store. Every error is a `ConfigError` of one clear sentence; the command line prints it.
"""

import contextlib
import ipaddress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeAlias

from broker.endpoint import DEFAULT_PORT, Endpoint
from broker.limits import DEFAULT_LIMITS, Limits
from protocol.errors import ConfigError
from storage.files.write_guard import check_outside

VIP_PORT_DISTANCE = 2
"""Old clients and the dashboard connect to the port this much below the one they know (remoting-protocol §8.7)."""

STORE_PORT_DISTANCE = 10
"""Between the ports of one store and the next; brokers themselves use the port below and two below theirs."""

FRAME_LIMIT = 16 * 1024 * 1024
"""Bytes of one frame, its length field included, that Java clients accept (remoting-protocol §1.1)."""

DEFAULT_MILLISECONDS = 1000
"""From how long on a query is slow."""

SMALLEST_FRAME_LIMIT = 64 * 1024
"""Below this not even one heartbeat of a large client fits."""

WORKER_TIMEOUT_SECONDS = 30.0
"""How long a worker's event loop may stand still. Clients wait for as long, and no healthy loop does for one second."""

LONGEST_WORKER_TIMEOUT_SECONDS = 86_400.0


REPLICA_ID = 990001
"""The id under which a replica is registered: high, so that it is the last to be chosen."""

SMALLEST_REPLICA_ID = 100

TLS_MODES = ("disabled", "permissive", "enforcing")
TLS_CLIENT_AUTH = ("none", "optional", "required")

HTTP_AUTH = ("page", "basic", "basic-metrics")

Networks: TypeAlias = "tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]"


def installed_version() -> str:
    """The version of this package, `unknown` where it is not installed."""
    try:
        return version("rocketlens")
    except PackageNotFoundError:
        return "unknown"


class CannotListen(ConfigError):
    """An address to listen on cannot be had."""


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS on the port. `certificate` is a PEM file with the chain, `key` one with its key, by default the same file.

    `mode` is a RocketMQ server's (remoting-protocol §1.9): *disabled* knows no TLS, *permissive* takes TLS and plain
    clients, *enforcing* TLS alone. `client_ca`: PEM file of the authorities that sign client certificates, looked at as
    `client_auth` says.
    """

    mode: str = "disabled"
    certificate: Path | None = None
    key: Path | None = None
    key_password_file: Path | None = None
    client_ca: Path | None = None
    client_auth: str = "none"

    @property
    def is_on(self) -> bool:
        """Whether a client may speak TLS."""
        return self.mode != "disabled"

    def check(self, *, is_for_http: bool = False) -> "TlsOptions":
        """Return itself, or raise `ConfigError` for options that contradict each other.

        `is_for_http`: the certificate is the HTTP port's too, whatever the mode is.
        """
        if is_for_http and self.certificate is None:
            raise ConfigError("--http-tls needs a certificate: give --tls-cert")
        if not self.is_on:
            if self.client_ca or (not is_for_http and (self.certificate or self.key)):
                raise ConfigError("TLS files have no effect: also give --tls-mode permissive or enforcing")
        elif self.certificate is None:
            raise ConfigError(f"--tls-mode {self.mode} needs a certificate: give --tls-cert")
        if (self.client_auth != "none") != (self.client_ca is not None):
            raise ConfigError("--tls-client-auth and --tls-client-ca: give both or neither")
        return self


NO_TLS = TlsOptions()


@dataclass(frozen=True, slots=True)
class HttpAuth:
    """Who has to log in at the HTTP port with a key of `--acl`, and by which ways keys may come.

    `mode` *page*: the API asks, the page's files and metrics are open, and keys are taken by any way. *basic*: page and
    API ask (HTTP Basic), and keys are taken by TLS, from this machine, and through a trusted proxy alone;
    *basic-metrics*: metrics ask too. `needs_tls`: nothing but health is answered without TLS.
    """

    mode: str = HTTP_AUTH[0]
    needs_tls: bool = False

    @property
    def asks_first(self) -> bool:
        """Whether a client has to log in before it gets the page."""
        return self.mode != HTTP_AUTH[0]

    @property
    def asks_for_metrics(self) -> bool:
        """Whether metrics are for administrators."""
        return self.mode == HTTP_AUTH[2]

    def check(self, http: Endpoint | None, acl: Path | None, proxies: Networks) -> None:
        """Raise `ConfigError` where there would be nobody to log in, or keys would pass a network in plain text."""
        if self.needs_tls and http is None:
            raise ConfigError("--http-tls has no effect: also give --http")
        if not self.asks_first:
            return
        if http is None:
            raise ConfigError(f"--http-auth {self.mode} has no effect: also give --http")
        if acl is None:
            raise ConfigError(f"--http-auth {self.mode} needs accounts: give --acl")
        everybody = next((network for network in proxies if not network.prefixlen), None)
        if everybody is not None:
            raise ConfigError(f"--http-auth {self.mode}: --trusted-proxy {everybody} names everybody; name the proxy")
        if not (self.needs_tls or proxies or _is_loopback(http.host)):
            raise ConfigError(
                f"--http-auth {self.mode}: on {http} keys would pass the network in plain text; add --http-tls, or "
                "name the proxy that has TLS with --trusted-proxy, or listen on the loopback address"
            )


ASK_ON_THE_PAGE = HttpAuth()


@dataclass(frozen=True, slots=True)
class RegisterOptions:
    """Real name servers to register with: as a replica of the store's broker under `broker_id`, or as one of our own.

    No name servers: the server registers with none.
    """

    name_servers: tuple[Endpoint, ...] = ()
    is_replica: bool = True
    broker_id: int = REPLICA_ID

    @property
    def registered_id(self) -> int:
        """The broker id under which real name servers know us; 0 where we register with none."""
        return self.broker_id if self.name_servers and self.is_replica else 0

    def check(self, listen: tuple[Endpoint, ...], advertise: Endpoint | None, broker_name: str | None) -> None:
        """Raise `ConfigError` for what no name server or no client could make use of."""
        if not self.name_servers:
            return
        if self.broker_id < SMALLEST_REPLICA_ID or self.broker_id >= 2**63:
            raise ConfigError(
                f"--register-id {self.broker_id}: expected {SMALLEST_REPLICA_ID} or more; "
                "masters send slow consumers to id 1, and small ids may be elected"
            )
        if not self.is_replica and broker_name is None:
            raise ConfigError("--register-as broker needs a --broker-name of its own")
        if advertise is None and any(_is_any(endpoint.host) for endpoint in listen[:1]):
            raise ConfigError(
                f"--register: clients cannot connect to {listen[0]}, give the address for clients with --advertise"
            )
        if any(not endpoint.port for endpoint in self.name_servers):
            raise ConfigError("--register: no name server listens on port 0")


NOT_REGISTERED = RegisterOptions()


def _is_any(host: str) -> bool:
    """Whether a host stands for all addresses of a machine."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_unspecified
    return False


def _is_loopback(host: str) -> bool:
    """Whether a host to listen on is reached from this machine alone; of names only `localhost` is known to be."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host.lower() == "localhost"


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `rocketlens serve`; the defaults are those of the command line.

    `advertise` None: clients get the local address of their own connection. `broker_name`, `cluster` None: as the store
    has them. `commit_log_directories` empty: `STORE/commitlog`. `tier`: the tiered files of the store.
    `index_slots` and `index_entries` go together.
    Without `fast_lane` every request goes the ordinary way, to the same answers.
    `filter_support_retry`: expressions on retry topics give way to those on the topics that messages came from.
    `frame_limit` in bytes, `stop_timeout_seconds` in seconds; `workers` processes serve under a supervisor, 0 in the
    one there is; in each, `lookup_threads` wait for the disk at most at once. One whose event loop stands still for
    `worker_timeout_seconds` is replaced, never when that is 0.
    `limits` bound what clients may cost. Connections from `proxies` begin with a PROXY header.
    `acl`: the file of accounts by which requests must be signed; with `acl_admin_has_all` an administrator for whom it
    lists nothing has all rights. `audit_log`: the file that lists reads of messages.
    `register`: the name servers to register with.
    `grpc` is where Apache's gRPC services are served, by a process of its own.
    `http` is where the page, metrics and health are served, None nowhere, and `http_hosts` are names under which it is
    asked for besides IP addresses and this machine's; `http_proxies` are trusted to name the address that asks, and
    `http_auth` says who has to log in there; with `mcp` assistants are answered there too.
    `masked` are rules of what the page and its API hide of messages (docs/security.md).
    Requests that take longer than `slow_query_milliseconds` are logged, unless that is 0.
    """

    store: Path
    listen: tuple[Endpoint, ...] = (Endpoint("127.0.0.1", DEFAULT_PORT),)
    advertise: Endpoint | None = None
    broker_name: str | None = None
    cluster: str | None = None
    state_directory: Path | None = None
    commit_log_directories: tuple[Path, ...] = ()
    index_slots: int | None = None
    index_entries: int | None = None
    tier: Path | None = None
    vip: bool = False
    rewrite_store_host: bool = False
    fast_lane: bool = True
    filter_support_retry: bool = False
    loop: str = "uvloop"
    frame_limit: int = FRAME_LIMIT
    workers: int = 1
    worker_timeout_seconds: float = WORKER_TIMEOUT_SECONDS
    lookup_threads: int = 4
    limits: Limits = DEFAULT_LIMITS
    tls: TlsOptions = NO_TLS
    proxies: Networks = ()
    acl: Path | None = None
    acl_admin_has_all: bool = False
    audit_log: Path | None = None
    register: RegisterOptions = NOT_REGISTERED
    grpc: Endpoint | None = None
    http: Endpoint | None = None
    http_hosts: tuple[str, ...] = ()
    http_proxies: Networks = ()
    masked: tuple[str, ...] = ()
    http_auth: HttpAuth = ASK_ON_THE_PAGE
    mcp: bool = False
    slow_query_milliseconds: float = DEFAULT_MILLISECONDS
    stop_timeout_seconds: float = 4.0

    def check(self) -> "ServeOptions":
        """Return itself, or raise `ConfigError` for options that contradict each other or are out of range."""
        self.tls.check(is_for_http=self.http_auth.needs_tls)
        self.http_auth.check(self.http, self.acl, self.http_proxies)
        if self.mcp and self.http is None:
            raise ConfigError("--mcp has no effect: also give --http")
        if self.grpc is not None:
            self._check_grpc()
        if self.acl_admin_has_all and self.acl is None:
            raise ConfigError("--acl-admin-has-all: give --acl, the file of accounts")
        self.register.check(self.listen, self.advertise, self.broker_name)
        if not self.listen:
            raise ConfigError("no address to listen on")
        if (self.index_slots is None) != (self.index_entries is None):
            raise ConfigError("--index-slots and --index-entries: give both or neither")
        for name, value in (("--index-slots", self.index_slots), ("--index-entries", self.index_entries)):
            if value is not None and not 0 < value < 2**31:
                raise ConfigError(f"{name} {value}: expected a number from 1 to {2**31 - 1}")
        timeout_seconds = self.worker_timeout_seconds
        if timeout_seconds and not 1 <= timeout_seconds <= LONGEST_WORKER_TIMEOUT_SECONDS:
            expected = f"0, or 1 to {LONGEST_WORKER_TIMEOUT_SECONDS:.0f} seconds"
            raise ConfigError(f"--worker-timeout {timeout_seconds:g}: expected {expected}")
        if not SMALLEST_FRAME_LIMIT <= self.frame_limit < 2**31:
            raise ConfigError(f"--frame-limit {self.frame_limit}: expected {SMALLEST_FRAME_LIMIT} to {2**31 - 1} bytes")
        outside = {"--state-dir": self.state_directory, "--audit-log": self.audit_log}
        tiers = () if self.tier is None else (self.tier,)
        check_outside((self.store, *self.commit_log_directories, *tiers), outside)
        if self.advertise is not None and not self.advertise.port:
            raise ConfigError(f"--advertise {self.advertise}: clients cannot connect to port 0")
        for endpoint in self.listen if self.vip else ():
            if 0 < endpoint.port <= VIP_PORT_DISTANCE:
                raise ConfigError(f"--vip: there is no port {VIP_PORT_DISTANCE} below {endpoint}")
        return self

    def _check_grpc(self) -> None:
        """Raise `ConfigError` for what the process of the gRPC port cannot do."""
        if not self.workers:
            raise ConfigError("--grpc is served by a process of its own: give --workers 1 or more")
        if self.tls.is_on and self.tls.key_password_file is not None:
            raise ConfigError(
                "--grpc takes no key with a password: write it without one (openssl pkey -in KEY -out PLAIN), "
                "and leave --tls-key-password-file out"
            )
