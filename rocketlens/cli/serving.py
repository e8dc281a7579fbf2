"""The life of `rocketlens serve`: bind, load, then serve in worker processes under a supervisor, or here."""

import asyncio
import contextlib
import gc
import importlib
import logging
import os
import resource
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker.cluster.several_stores import describe_names, settle_names
from broker.config import ServeOptions
from protocol.errors import ConfigError
from rocketlens.cli.errors import plain_errors
from rocketlens.cli.log_format import configure_logging, configured_format
from rocketlens.cli.opening import SPELLED
from rocketlens.opening import ENTRIES, StoreArguments, open_message_store
from storage.files.write_guard import check_outside
from storage.process_memory import keep_heap

if TYPE_CHECKING:
    from broker.app import GrpcAddresses
    from broker.metrics.metrics_rows import MetricsRows
    from broker.net.listeners import Listener
    from broker.service.consumers.offset_journal import OffsetJournal
    from broker.workers.supervisor import Ready
    from storage.store.message_store import MessageStore
    from storage.store.store_state import StoreIdentity

logger = logging.getLogger(__name__)

SCAN_BUDGET = 512 * 1024 * 1024
"""Bytes of log beyond the index that are scanned before the port opens; the rest is scanned while serving."""

CHECK_BUDGET = 512 * 1024 * 1024
"""Bytes of index files that are checked before the port opens, the newest ones; the rest is checked while serving."""

SPARE_DESCRIPTORS = 32
"""Descriptors that a worker needs besides the store's: for its loop, other workers, libraries, and some clients."""

MODULES = (
    "broker.app",
    "broker.server",
    "storage.store.message_store",
)
"""What workers need; loaded once, before they are forked."""

WEB_MODULES = ("broker.web.metrics_collector", "broker.web.api.application", "broker.web.port", "broker.web.site")
"""What workers need besides for `--http`."""


AllOptions = Sequence[ServeOptions]
"""The options of each store; those of the process as a whole are equal in all, and are read from the first."""


@dataclass(frozen=True)
class ServerResources:
    """The resources made before workers are started: their sockets, those for HTTP, gRPC and between workers, metrics.

    `bound` has the sockets by worker, then by store; `meetings` by store, none where there is one worker; `journals`
    by store, none where nobody is forked. Those for `grpc` keep its address: its process binds its own beside them.
    """

    bound: "list[list[list[Listener]]]"
    http: "list[Listener]"
    meetings: "Sequence[socket.socket | None]"
    rows: "MetricsRows"
    journals: "Sequence[OffsetJournal | None]"
    grpc: "Sequence[Listener]" = ()

    def close(self) -> None:
        """Close what clients connect to."""
        from broker.net.listeners import close_listeners

        for listeners in (*(each for stores in self.bound for each in stores), self.http, self.grpc):
            close_listeners(listeners)

    def of(self, number: int) -> "ServerResources":
        """Close what other workers use, and return the rest."""
        http = [] if number else self.http
        others = replace(self, bound=self.bound[:number] + self.bound[number + 1 :], http=self.http if number else [])
        others.close()
        return replace(self, bound=[self.bound[number]], http=http)


def run_server(all_options: AllOptions) -> int:
    """Serve stores until SIGTERM or SIGINT, in worker processes or in this one; returns the exit code.

    Raises `CannotListen` for an address that cannot be had, `ConfigError` and `StoreError` as `open_store` does.
    """
    from broker.workers.loop_watch import LoopWatch
    from broker.workers.supervisor import Supervisor

    options = all_options[0]
    shared = _bind(all_options)
    announce = partial(_announce, all_options, shared)
    try:
        if not options.workers:
            _serve_here(all_options, shared, announce)
            return 0
        for each in all_options:
            stores = (each.store, *each.commit_log_directories)
            check_outside(stores, {"--state-dir": each.state_directory})
        for name in MODULES + (WEB_MODULES if options.http is not None else ()):
            importlib.import_module(name)
        if options.fast_lane:
            from broker.app import load_lane

            load_lane()
        work = partial(_work, all_options, shared)
        limit_seconds = options.worker_timeout_seconds
        watch = LoopWatch(shared.rows, limit_seconds) if limit_seconds else None
        # Closed before workers stop: else clients would connect and wait for a server that never answers.
        supervisor = Supervisor(work, len(shared.rows), announce, options.stop_timeout_seconds, watch, shared.close)
        # What is loaded stays in pages shared with the workers as long as nobody writes to them: a worker of two has
        # 12.4 MB of its own (`benchmarks.start`), and 21.8 without this.
        gc.collect()
        gc.freeze()
        return supervisor.run()
    finally:
        shared.close()


def _bind(all_options: AllOptions) -> ServerResources:
    """Take all addresses. Raises `CannotListen`; then none stays bound."""
    from broker.metrics.metrics_rows import MetricsRows
    from broker.net.listeners import bind_for_workers, bind_listeners, close_listeners
    from broker.service.consumers.offset_journal import OffsetJournal
    from broker.workers.link import make_listening_socket

    options = all_options[0]
    count = max(options.workers, 1)
    http = bind_listeners([] if options.http is None else [options.http])
    grpc: list[Listener] = []
    by_store: list[list[list[Listener]]] = []
    try:
        if options.grpc is not None:
            grpc += bind_for_workers([options.grpc], vip=False, count=1, is_shared=True)[0]
        for each in all_options:
            listeners = bind_for_workers(each.listen, vip=each.vip, count=count)
            by_store.append(listeners)
    except BaseException:
        close_listeners([*http, *grpc, *(one for store in by_store for worker in store for one in worker)])
        raise
    by_worker = [list(stores) for stores in zip(*by_store, strict=True)]
    processes = count + bool(grpc)
    meetings = [make_listening_socket() if processes > 1 else None for _ in all_options]
    journals = [OffsetJournal() if options.workers else None for _ in all_options]
    return ServerResources(by_worker, http, meetings, MetricsRows(processes, len(all_options)), journals, grpc)


def _announce(all_options: AllOptions, shared: ServerResources) -> None:
    stores = [
        f"{options.store} on {', '.join(str(listener.endpoint) for listener in listeners)}"
        for options, listeners in zip(all_options, shared.bound[0], strict=True)
    ]
    http = "".join(f"; HTTP at {listener.endpoint}" for listener in shared.http[:1])
    grpc = "".join(f"; gRPC at {listener.endpoint}" for listener in shared.grpc[:1])
    click.echo(f"rocketlens: serving {'; '.join(stores)}{http}{grpc}")


@plain_errors
def _work(all_options: AllOptions, shared: ServerResources, number: int, announce: "Ready") -> int:
    """The life of one worker process; the last one is that of the gRPC port, if there is one."""
    if number == all_options[0].workers:
        from broker.app import GrpcAddresses
        from rocketlens.cli.serving_grpc import HandedOver, become_process  # only where there is one

        brokers = tuple(tuple(each.endpoint for each in listeners) for listeners in shared.bound[0])
        meetings = tuple(each.fileno() for each in shared.meetings if each is not None)
        addresses = GrpcAddresses(tuple(each.endpoint for each in shared.grpc), brokers)
        rows, ready = shared.rows.descriptor, announce.fileno()
        become_process(HandedOver(all_options, configured_format(), number, rows, ready, meetings, addresses))
    _serve_here(all_options, shared.of(number), announce, number)
    return 0


@plain_errors
def serve_grpc(descriptor: int) -> None:
    """The life of the process of the gRPC port, which gets by a descriptor what was handed over."""
    # As above: only where there is one.
    from broker.metrics.metrics_rows import MetricsRows
    from broker.workers.supervisor import Ready
    from rocketlens.cli.serving_grpc import take_over

    handed = take_over(descriptor)
    configure_logging(handed.log_format)
    rows = MetricsRows(handed.number + 1, len(handed.all_options), handed.rows)
    meetings = [socket.socket(fileno=each) for each in handed.meetings]
    nothing: list[list[Listener]] = [[] for _ in handed.all_options]
    shared = ServerResources([nothing], [], meetings, rows, [None for _ in handed.all_options])
    ready = Ready(socket.socket(fileno=handed.ready))
    _serve_here(handed.all_options, shared, ready, handed.number, handed.addresses)


def _serve_here(
    all_options: AllOptions,
    shared: ServerResources,
    announce: Callable[[], None],
    number: int = 0,
    grpc: "GrpcAddresses | None" = None,
) -> None:
    """Serve in this process, as worker `number`, or as the process of the gRPC port, at the addresses of `grpc`."""
    from storage.files.mapped_file import guard_maps  # only where files are mapped

    guard_maps()
    with _answering(all_options[0], shared.http):
        stores = [_open(options, number) for options in all_options]
    _require_descriptors()
    if len(stores) > 1:
        identities = [store.identity for store in stores]
        all_options = settle_names(all_options, identities)
        for line in () if number else describe_names(all_options, identities):
            logger.info("%s", line)
    # Only now: these import the store, and with it the kernels.
    from broker.app import StoreShare, build_servers
    from broker.server import serve_until_stopped

    keep_heap()
    shares = [
        StoreShare(number, store, meeting, journal)
        for store, (meeting, journal) in enumerate(zip(shared.meetings, shared.journals, strict=True))
    ]

    more = None
    if all_options[0].mcp and shared.http:
        from rocketlens.mcp.http import assistants  # only where they are answered

        more = assistants

    async def serve() -> bool:
        servers = build_servers(all_options, stores, shares, shared.bound[0], shared.http, shared.rows, more, grpc)
        await serve_until_stopped(servers, announce, partial(shared.rows.beat, number))
        return all(server.is_idle for server in servers)

    with asyncio.Runner(loop_factory=_loop_factory(all_options[0].loop)) as runner:
        if not runner.run(serve()):
            # A look-up that cannot be interrupted is still reading; waiting for its thread could take for ever.
            logging.shutdown()
            sys.stdout.flush()
            os._exit(0)


def _answering(options: ServeOptions, http: "list[Listener]") -> contextlib.AbstractContextManager[None]:
    """Say over HTTP that the server starts, while stores are opened.

    Raises `ConfigError` for a certificate that cannot be used.
    """
    if not http:
        return contextlib.nullcontext()
    # As above: only where there is an HTTP port.
    from broker.web.starting import answering

    if not options.http_auth.needs_tls:
        return answering(http)
    from broker.net.tls import watched_http_context

    return answering(http, watched_http_context(options.tls))


def _require_descriptors() -> None:
    """Raise `ConfigError` where the stores have left too few descriptors to serve them: libraries end in traces."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))
    if 0 <= limit < used + SPARE_DESCRIPTORS:
        raise ConfigError(
            f"the limit of {limit} open files is too low: the store alone needs {used}, and serving it at "
            f"least {SPARE_DESCRIPTORS} more (ulimit -n)"
        )


def _open(options: ServeOptions, number: int) -> "MessageStore":
    """Open one store; worker 0 says what is wrong with it."""
    from storage.store.state_place import known_state_directory

    arguments = StoreArguments(
        options.commit_log_directories,
        options.index_slots,
        options.index_entries,
        options.state_directory or known_state_directory(options.store),
        options.tier,
    )
    arguments.check(options.store, SPELLED)
    opened = open_message_store(
        options.store,
        arguments,
        scan_budget=SCAN_BUDGET,
        check_budget=CHECK_BUDGET,
        entries_directory=partial(_entries_directory, options),
        keeps_state=not number,
    )
    is_named = options.broker_name is not None and options.cluster is not None
    for problem in () if number else (*(() if is_named else opened.identity.ambiguities), *opened.problems):
        logger.warning("%s", problem)
    if opened.state.is_live and not number:
        logger.info("a broker is running on %s: the server follows what it writes", options.store)
    return opened


def _entries_directory(options: ServeOptions, identity: "StoreIdentity") -> Path | None:
    """Where keys that were found by scanning the log are kept; None where nothing can be, and memory holds them all."""
    from storage.store.state_place import UnusableDirectory, can_be_had, default_state_directory

    try:
        path = options.state_directory or default_state_directory(options.store, identity)
    except UnusableDirectory:
        return None
    return path / ENTRIES if can_be_had(path) else None


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "asyncio":
        return asyncio.new_event_loop
    try:
        import uvloop
    except ImportError:
        logger.warning("uvloop is not installed, using asyncio's own loop instead")
        return asyncio.new_event_loop
    return uvloop.new_event_loop
