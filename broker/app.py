"""Put together everything that a server process is made of; this is done here, and nowhere else.

From the bottom up: what is remembered of clients, the service that answers for a store, the lane and the dispatcher
that bring requests to it, what all sessions share, the server that accepts them. What is made here gets what it needs
in its constructor; nothing is set on it afterwards. The fast lane is imported by this module alone.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from broker.config import ServeOptions
from broker.endpoint import Endpoint
from broker.metrics.metrics_meter import Meter
from broker.metrics.metrics_rows import MetricsRows
from broker.metrics.slow_queries import SlowQueries
from broker.net.budget import ConnectionBudget
from broker.net.listeners import Listener
from broker.net.reception import Reception
from broker.net.scheduler import Scheduler
from broker.net.session_settings import AnswerCheck, SessionSettings
from broker.net.tls import watched_context, watched_http_context
from broker.net.transport import OpenConnections
from broker.security.accounts import Account, Accounts, watched_accounts
from broker.security.answer_rights import AnswerRights
from broker.security.audit_log import AuditedPort, AuditLog
from broker.security.guard import Guard, GuardedDispatcher
from broker.security.watched_files import Watched
from broker.server import OtherPort, Server, ServerParts, publish_all
from broker.service.broker_service import BrokerService
from broker.service.consumers.consumer_offsets import ConsumerOffsets
from broker.service.consumers.offset_journal import OffsetJournal
from broker.service.consumers.offset_keeper import FILE, OffsetKeeper
from broker.service.consumers.registries import Registries
from broker.service.dispatcher import ClientConnection, Dispatcher
from broker.service.request_families import build_processors
from broker.service.served_brokers import ServedBrokers
from broker.service.state_directory import StateDirectory, may_hold
from broker.workers.member import OWNED_CODES, CopiedRegistry, ForwardedCommits, WorkerMember
from broker.workers.owner import Owner
from protocol.command import Command
from storage.layout.store_config import TOPICS
from storage.store.message_store import MessageStore
from storage.store.state_place import UnusableDirectory, default_state_directory, known_state_directory

if TYPE_CHECKING:
    # The HTTP port loads much that a server without one does not need; the fast lane may be missing.
    from starlette.routing import Route

    from broker.grpc.port import GrpcPort
    from broker.lane.fast_lane import FastLane
    from broker.web.api.application import Api
    from broker.web.port import WebPort

logger = logging.getLogger(__name__)

LANE_MODULES = ("broker.lane", "broker.lane.fast_lane")
"""The modules that are missing where there is no fast lane."""


@dataclass(frozen=True, slots=True)
class StoreShare:
    """One worker's share in serving one store: the numbers of both, and what its workers have in common.

    At `owner_socket` worker 0 hears the other workers; None where it is alone. `journal` holds the commits that a
    worker 0 before this one acknowledged and did not write to the disk.
    """

    worker: int = 0
    store: int = 0
    owner_socket: socket.socket | None = None
    journal: OffsetJournal | None = None


@dataclass(frozen=True, slots=True)
class GrpcAddresses:
    """The addresses of the gRPC port, and those of each store's broker."""

    own: tuple[Endpoint, ...]
    brokers: tuple[tuple[Endpoint, ...], ...]


@dataclass(frozen=True, slots=True)
class Security:
    """Who may use a store's port (None: everybody), and the log of what they did (None: no log is kept)."""

    accounts: Watched[Accounts] | None = None
    audit_log: AuditLog | None = None

    @classmethod
    def of(cls, options: ServeOptions) -> "Security":
        """Read the files of the options. Raises `ConfigError` for those that cannot be used."""
        return cls(
            None if options.acl is None else watched_accounts(options.acl, admin_has_all=options.acl_admin_has_all),
            None if options.audit_log is None else AuditLog(options.audit_log),
        )


# ---------------------------------------------------------------------- a process


def build_servers(
    all_options: Sequence[ServeOptions],
    stores: Sequence[MessageStore],
    shares: Sequence[StoreShare],
    bound: Sequence[Sequence[Listener]],
    http: Sequence[Listener],
    rows: MetricsRows,
    more: "Callable[[Api], Sequence[Route]] | None" = None,
    grpc: "GrpcAddresses | None" = None,
) -> list[Server]:
    """The servers of all stores of one process, on their `bound` sockets; the first has the HTTP port, if there is one.

    The HTTP port answers `more` besides what it answers by itself. The process of `grpc` has that port in place of it.

    To be called on the event loop. Raises `ConfigError` for files of the options that cannot be used.
    """
    served = [
        build_service(options, store, share, build_meter(options, rows, share))
        for options, store, share in zip(all_options, stores, shares, strict=True)
    ]
    ports = [[each.endpoint.port for each in listeners if not each.port_distance] for listeners in bound]
    if grpc is not None:
        ports = [[address.port for address in addresses] for addresses in grpc.brokers]
    brokers = ServedBrokers([service for service, _ in served], ports)
    securities = [Security.of(options) for options in all_options]
    servers: list[Server] = []
    other_port: OtherPort | None = None
    watched: Watched[Any] | None = None
    dispatchers: list[Dispatcher] = []
    if http:
        web = build_web(brokers.services, rows, http, securities[0], lambda: publish_all(servers), more)
        other_port, watched = web, web.context
    elif grpc is not None:
        # Without a guard: calls are signed in another way, and admitted before they become requests.
        dispatchers = [
            Dispatcher(build_processors(service, brokers), service.options.lookup_threads) for service, _ in served
        ]
        forget = [service.connection_lost if member is None else member.connection_lost for service, member in served]
        other_port, watched = build_grpc(brokers.services, dispatchers, grpc, rows, securities[0], forget)
    for number, ((service, member), listeners, security, share) in enumerate(
        zip(served, bound, securities, shares, strict=True)
    ):
        colleagues = build_colleagues(service, member, share, brokers)
        servers.append(
            build_server(
                service,
                listeners,
                dispatchers[number] if dispatchers else None,
                colleagues=colleagues,
                other_port=other_port if not number else None,
                brokers=brokers,
                security=security,
                watched=watched if not number else None,
            )
        )
    return servers


def build_meter(options: ServeOptions, rows: MetricsRows, share: StoreShare) -> Meter | None:
    """The counters of one worker for one store; None where neither a slow-query log nor an HTTP port reports them."""
    broker = options.broker_name if rows.stores > 1 else None
    slow = SlowQueries(options.slow_query_milliseconds, broker) if options.slow_query_milliseconds else None
    is_reported = slow is not None or options.http is not None
    return Meter(rows.begin(share.worker, share.store), slow, counts_cpu=not share.store) if is_reported else None


# ---------------------------------------------------------------------- a service


def build_service(
    options: ServeOptions, store: MessageStore, share: StoreShare = StoreShare(), meter: Meter | None = None
) -> tuple[BrokerService, WorkerMember | None]:
    """The service for one store in this process; in a worker besides worker 0 also its connection to worker 0."""
    if share.owner_socket is None or not share.worker:
        registries = Registries.of(store, options)
        keeper = build_keeper(options, store, registries.offsets)
        if keeper is not None:  # it has the state directory for itself
            store.keep_entries()
        if share.journal is not None:
            registries.offsets.take_up(share.journal)
        return BrokerService.of(store, options, registries, keeper, meter), None
    copied = Registries.of(store, options, CopiedRegistry)
    member = WorkerMember(copied, share.owner_socket.getsockname())
    registries = replace(copied, commits=ForwardedCommits(copied, member))
    return BrokerService.of(store, options, registries, None, meter), member


def build_keeper(options: ServeOptions, store: MessageStore, offsets: ConsumerOffsets) -> OffsetKeeper | None:
    """Where consumer groups' offsets are kept; None, with a warning, where the default directory cannot be made.

    Raises `ConfigError` when another server keeps its own there, or the directory asked for cannot be written to, or
    the default one cannot though there may be offsets in it, which groups would be led back without.
    """
    path = None
    try:
        path = options.state_directory or _default_directory(options.store, store)
        return OffsetKeeper(offsets, StateDirectory(path))
    except UnusableDirectory as error:
        if options.state_directory is not None or (path is not None and may_hold(path, FILE)):
            raise
        logger.warning("%s; until then the offsets of consumer groups are lost when this server stops", error)
        return None


def _default_directory(root: Path, store: MessageStore) -> Path:
    """Where the state of a store is kept; its names are in topics.json, which perhaps cannot be read this time."""
    known = known_state_directory(root) if store.config.is_unknown(TOPICS) else None
    return known or default_state_directory(root, store.identity)


def build_colleagues(
    service: BrokerService, member: WorkerMember | None, share: StoreShare, brokers: ServedBrokers
) -> Owner | WorkerMember | None:
    """How this worker reaches the other ones: as their owner or as a member; None where it is alone."""
    if member is not None or share.owner_socket is None:
        return member
    processors = build_processors(service, brokers)
    dispatcher = Dispatcher(processors, 1, service.options.limits.body_bytes)
    return Owner(service, dispatcher, share.owner_socket)


# ---------------------------------------------------------------------- a server


def build_server(
    service: BrokerService,
    listeners: Sequence[Listener],
    dispatcher: Dispatcher | None = None,
    *,
    colleagues: Owner | WorkerMember | None = None,
    other_port: OtherPort | None = None,
    brokers: ServedBrokers | None = None,
    security: Security | None = None,
    watched: Watched[Any] | None = None,
) -> Server:
    """A server for one store on bound `listeners`; `dispatcher` None means one of all request families.

    `brokers` are all that this process stands for, None: this one alone. `security` None: as the options say.
    `watched` is what the other port is made of, looked at with the server's own.

    Raises `ConfigError` for files of TLS, accounts or the audit log that cannot be used.
    """
    options = service.options
    security = Security.of(options) if security is None else security
    guard = None
    if security.accounts is not None:
        services = (service,) if brokers is None else brokers.services
        guard = Guard(security.accounts, [each.origins for each in services], service.denials)
    rights = None if guard is None else AnswerRights(guard, service.store.record_at_lookup, service.origins)
    checks = _answer_checks(service, security, guard, rights)
    # The lane answers as the families do, asks for no account, and sends records as they are stored.
    takes_lane = options.fast_lane and not options.rewrite_store_host and dispatcher is None and not checks
    lane = _build_lane(service) if takes_lane else None
    if dispatcher is None:
        processors = build_processors(service, brokers, None if lane is None else lane.learn)
        threads, body_limit = options.lookup_threads, options.limits.body_bytes
        if guard is None or rights is None:
            dispatcher = Dispatcher(processors, threads, body_limit)
        else:
            dispatcher = GuardedDispatcher(guard, processors, threads, body_limit, rights.check_first)
    member = colleagues if isinstance(colleagues, WorkerMember) else None
    if member is not None:
        dispatcher.forward(OWNED_CODES, member.forward)
    budget = ConnectionBudget(options.limits, time.monotonic)
    connections = OpenConnections(service.connection_lost if member is None else member.connection_lost, service.meter)
    context = watched_context(options.tls) if options.tls.is_on else None
    reception = None
    if context is not None or options.proxies:
        reception = Reception(
            budget,
            context=context,
            is_enforcing=options.tls.mode == "enforcing",
            proxies=options.proxies,
            count_open=connections.__len__,
        )
    all_watched: list[Watched[Any] | AuditLog | None] = [context, watched, security.accounts, security.audit_log]
    return Server(
        ServerParts(
            service,
            listeners,
            dispatcher,
            SessionSettings(
                dispatcher,
                budget,
                Scheduler(lambda work: asyncio.get_running_loop().call_soon(work)),
                options.frame_limit,
                lane,
                replied=service.calls.answered if member is None else member.replied,
                meter=service.meter,
                checks=checks,
                http_port=None if options.http is None else options.http.port,
                cut=lambda since: service.store.cut(since),
            ),
            connections,
            reception,
            colleagues,
            other_port,
            [each for each in all_watched if each is not None],
            lane,
        )
    )


def _build_lane(service: BrokerService) -> "FastLane | None":
    """The fast lane of a service; None in an installation without it."""
    make = load_lane()
    return None if make is None else make(service)


def load_lane() -> "type[FastLane] | None":
    """Load the fast lane; None where the folder `broker/lane` is missing, without which the server answers the same."""
    try:
        from broker.lane.fast_lane import FastLane
    except ModuleNotFoundError as error:
        if error.name not in LANE_MODULES:
            raise
        return None
    return FastLane


def _answer_checks(
    service: BrokerService, security: Security, guard: Guard | None, rights: AnswerRights | None
) -> tuple[AnswerCheck, ...]:
    """The checks that an answer passes before it is sent; the audit log is last because it records what was sent."""
    checks: tuple[AnswerCheck, ...] = () if rights is None else (rights.check,)
    if security.audit_log is None:
        return checks

    def who(command: Command, connection: ClientConnection) -> str | None:
        account = None if guard is None else guard.account_of(command, connection)
        return account.access_key if isinstance(account, Account) else None

    return (*checks, AuditedPort(security.audit_log, service.broker_name, who).check)


# ---------------------------------------------------------------------- the HTTP port


def build_web(
    services: Sequence[BrokerService],
    rows: MetricsRows,
    listeners: Sequence[Listener],
    security: Security,
    before_render: Callable[[], None],
    more: "Callable[[Api], Sequence[Route]] | None" = None,
) -> "WebPort":
    """The HTTP port for some stores; its modules are imported here so that a server without it starts faster."""
    # As above: only where there is an HTTP port.
    from broker.web.api.access import Access
    from broker.web.api.application import Api
    from broker.web.metrics_collector import Exposition, ServerCollector
    from broker.web.metrics_store import StoreFigures
    from broker.web.port import WebPort
    from broker.web.site import Site

    exposition = Exposition(ServerCollector(rows, [StoreFigures(service) for service in services]))
    options = services[0].options
    access = Access(
        options.http_hosts,
        options.http_proxies,
        security.accounts,
        options.http_auth,
        security.audit_log,
        services[0].broker_name,
    )
    api = Api(services, access, security.audit_log)
    context = watched_http_context(options.tls) if options.http_auth.needs_tls else None
    routes = () if more is None else more(api)
    return WebPort(Site(rows, exposition.render, api, before_render, routes), listeners, context)


# ---------------------------------------------------------------------- the gRPC port


def build_grpc(
    services: Sequence[BrokerService],
    dispatchers: Sequence[Dispatcher],
    addresses: GrpcAddresses,
    rows: MetricsRows,
    security: Security,
    forget: Sequence[Callable[[ClientConnection], None]],
) -> "tuple[GrpcPort, Watched[Any] | None]":
    """The gRPC port for some stores, and the certificate to be watched; its modules are imported here alone.

    Each of `forget` is called with the connection of a client that is gone.
    """
    # As above: only where there is a gRPC port.
    from broker.grpc.admin import AdminService
    from broker.grpc.calls import CallConnection, CallRunner, ServedStores
    from broker.grpc.messaging import MessagingService
    from broker.grpc.port import GrpcPort, credentials_of, watched_certificates

    options = services[0].options
    connection = CallConnection(addresses.brokers[0][0], addresses.own[0])
    stores = ServedStores(services, dispatchers, rows, connection)
    runner = CallRunner(stores, security.accounts, security.audit_log, services[0].meter)
    certificates = watched_certificates(options.tls) if options.tls.is_on else None
    credentials = None if certificates is None else credentials_of(certificates, options.tls)
    all_handlers = {
        "Admin": AdminService(runner).handlers(),
        "MessagingService": MessagingService(runner, addresses.own[0].port, forget).handlers(),
    }
    port = GrpcPort(runner, all_handlers, addresses.own, options.limits, options.frame_limit, credentials)
    return port, certificates
