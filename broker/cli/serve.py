"""`rocketlens serve`: answer RocketMQ clients from a store."""

import asyncio
import logging
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from broker.cli.errors import NOT_FOUND, fail, plain_errors
from broker.cli.opening import open_store
from broker.cli.options import DIRECTORY, endpoint, store_options
from broker.cli.port_options import port_arguments, port_options
from broker.config import DEFAULT_PORT, FRAME_LIMIT, SMALLEST_FRAME_LIMIT, CannotListen, Endpoint, ServeOptions
from broker.limits import Limits

if TYPE_CHECKING:
    from broker.consumer_offsets import ConsumerOffsets
    from broker.listeners import Listener
    from broker.offset_keeper import OffsetKeeper
    from storage.message_store import MessageStore

logger = logging.getLogger(__name__)

SCAN_BUDGET = 128 * 1024 * 1024
"""Bytes of log beyond the index that are scanned before the port opens; the rest is scanned while serving."""

MOST_OPEN_FILES = 65536
"""Connections and mapped files beyond the usual soft limit of 1,024 are normal for a server."""


@click.command()
@click.argument("store", type=DIRECTORY)
@click.option(
    "--listen",
    type=endpoint,
    metavar="HOST:PORT",
    multiple=True,
    default=[f"127.0.0.1:{DEFAULT_PORT}"],
    show_default=True,
    help="Address to listen on, [IPv6]:PORT too; may be given several times. Port 0 takes a free one.",
)
@click.option(
    "--advertise",
    type=endpoint,
    metavar="HOST:PORT",
    help="Address that routes tell clients, should they reach us by another.",
)
@click.option("--broker-name", metavar="NAME", help="Broker name in routes. [default: as the store tells]")
@click.option("--cluster", metavar="NAME", help="Cluster name in routes. [default: as the store tells]")
@click.option("--vip", is_flag=True, help="Listen two ports lower too, for old clients and the dashboard.")
@click.option("--rewrite-store-host", is_flag=True, help="Put our own address into the records sent.")
@click.option(
    "--filter-support-retry",
    is_flag=True,
    help="Filter what is pulled by expression from a group's retry topic by the group's filter on the message's "
    "original topic, as brokers do with filterSupportRetry=true.",
)
@click.option(
    "--loop",
    type=click.Choice(["uvloop", "asyncio"]),
    default="uvloop",
    show_default=True,
    help="Event loop to run on.",
)
@click.option(
    "--frame-limit",
    type=click.IntRange(SMALLEST_FRAME_LIMIT, 2**31 - 1),
    default=FRAME_LIMIT,
    show_default=True,
    metavar="BYTES",
    help="Longest request and answer.",
)
@click.option(
    "--limit",
    "limits",
    metavar="NAME=NUMBER",
    multiple=True,
    help="Bound what clients may cost; may be given several times. The names are in docs/port.md.",
)
@port_options
@store_options
@plain_errors
def serve(
    store: Path,
    listen: tuple[Endpoint, ...],
    advertise: Endpoint | None,
    broker_name: str | None,
    cluster: str | None,
    vip: bool,
    rewrite_store_host: bool,
    filter_support_retry: bool,
    loop: str,
    frame_limit: int,
    limits: tuple[str, ...],
    numba_cache: Path | None,
    **arguments: Any,
) -> None:
    """Answer RocketMQ clients and mqadmin from the store in STORE, which is only read.

    The same port is broker and name server. One line on stdout says when clients can connect; SIGTERM and SIGINT stop
    the server after what is in flight. What a running broker writes is answered as soon as it can be read; SIGHUP makes
    the server look at all of the store's files at once.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    _stop_quietly_while_starting()
    options = ServeOptions(
        store,
        listen=listen,
        advertise=advertise,
        broker_name=broker_name,
        cluster=cluster,
        vip=vip,
        rewrite_store_host=rewrite_store_host,
        filter_support_retry=filter_support_retry,
        loop=loop,
        frame_limit=frame_limit,
        limits=Limits().changed(limits),
        **port_arguments(arguments),
        **{name: value for name, value in arguments.items() if value is not None},
    ).check()
    _allow_many_files()
    try:
        _serve(options, numba_cache)
    except CannotListen as error:
        fail(str(error), NOT_FOUND)


def _serve(options: ServeOptions, numba_cache: Path | None) -> None:
    from broker.listeners import bind_listeners, close_listeners

    listeners = bind_listeners(options.listen, vip=options.vip)
    try:
        opened = open_store(
            options.store,
            commit_log_directories=options.commit_log_directories,
            index_slots=options.index_slots,
            index_entries=options.index_entries,
            state_directory=options.state_directory,
            numba_cache=numba_cache,
            scan_budget=SCAN_BUDGET,
            stays=True,
        )
        for problem in opened.problems:
            logger.warning("%s", problem)
        if opened.state.is_live:
            logger.info("a broker is running on %s: what it writes is followed", options.store)
        _run(options, opened, listeners)
    finally:
        close_listeners(listeners)


def _run(options: ServeOptions, opened: "MessageStore", listeners: "Sequence[Listener]") -> None:
    # Only now: these import the store, and with it the kernels.
    from broker.broker_service import BrokerService
    from broker.server import Server

    service = BrokerService.of(opened, options)
    service.keeper = _offset_keeper(options, opened, service.offsets)

    def announce(addresses: Sequence[Endpoint]) -> None:
        click.echo(f"rocketlens: serving {options.store} on {', '.join(map(str, addresses))}")

    async def serve_until_told() -> bool:
        server = Server(service, listeners)
        await server.serve(announce)
        return server.is_idle

    with asyncio.Runner(loop_factory=_loop_factory(options.loop)) as runner:
        if not runner.run(serve_until_told()):
            # A look-up that cannot be interrupted is still reading; waiting for its thread could take for ever.
            logging.shutdown()
            sys.stdout.flush()
            os._exit(0)


def _offset_keeper(options: ServeOptions, opened: "MessageStore", offsets: "ConsumerOffsets") -> "OffsetKeeper | None":
    """Where consumer groups' offsets are kept; None, with a warning, where the default directory cannot be made.

    Raises `ConfigError` when another server keeps its own there, or the directory asked for cannot be written to.
    """
    from broker.offset_keeper import OffsetKeeper
    from broker.state_directory import StateDirectory, UnusableDirectory, default_state_directory

    try:
        path = options.state_directory or default_state_directory(options.store, opened.identity)
        return OffsetKeeper(offsets, StateDirectory(path))
    except UnusableDirectory as error:
        if options.state_directory is not None:
            raise
        logger.warning("%s; until then offsets of consumer groups are forgotten when this server stops", error)
        return None


def _loop_factory(name: str) -> Callable[[], asyncio.AbstractEventLoop]:
    if name == "asyncio":
        return asyncio.new_event_loop
    try:
        import uvloop
    except ImportError:
        logger.warning("uvloop is not installed, asyncio's own loop serves instead")
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def _stop_quietly_while_starting() -> None:
    """Let SIGTERM and SIGINT end the start without a trace; process 1 of a container would even ignore SIGTERM."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(0)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leave)


def _allow_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
