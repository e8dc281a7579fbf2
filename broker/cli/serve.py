"""`rocketlens serve`: answer RocketMQ clients from a store."""

import resource
import signal
import sys
from pathlib import Path
from types import FrameType

import click
import msgspec

from broker.cli.errors import NOT_FOUND, fail, plain_errors
from broker.cli.log_format import configure_logging
from broker.cli.opening import StoreArguments
from broker.cli.options import DIRECTORY, endpoint, gathered, store_options
from broker.cli.port_options import PortArguments, port_options
from broker.cli.register_options import RegisterArguments, register_options
from broker.cli.watch_options import WatchArguments, watch_options
from broker.cluster.several_stores import options_of_stores
from broker.config import (
    FRAME_LIMIT,
    LONGEST_WORKER_TIMEOUT_SECONDS,
    SMALLEST_FRAME_LIMIT,
    WORKER_TIMEOUT_SECONDS,
    CannotListen,
    ServeOptions,
)
from broker.endpoint import DEFAULT_PORT, Endpoint
from broker.limits import Limits

MOST_OPEN_FILES = 65536
"""Connections and mapped files beyond the usual soft limit of 1,024 are normal for a server."""


class ServeArguments(msgspec.Struct, frozen=True):
    """What the options say that are this command's alone."""

    listen: tuple[Endpoint, ...]
    advertise: Endpoint | None
    broker_names: tuple[str, ...]
    cluster: str | None
    vip: bool
    rewrite_store_host: bool
    filter_support_retry: bool
    loop: str
    fast_lane: bool
    workers: int
    worker_timeout_seconds: float
    frame_limit: int
    limits: tuple[str, ...]


@click.command()
@click.argument("stores", type=DIRECTORY, nargs=-1, required=True, metavar="STORE...")
@click.option(
    "--listen",
    type=endpoint,
    metavar="HOST:PORT",
    multiple=True,
    default=[f"127.0.0.1:{DEFAULT_PORT}"],
    show_default=True,
    help="Address to listen on, [IPv6]:PORT too; may be given several times. Port 0 takes a free one. Each further "
    "store takes ports ten higher than the one before it.",
)
@click.option(
    "--advertise",
    type=endpoint,
    metavar="HOST:PORT",
    help="Address that routes tell clients, should they reach us by another.",
)
@click.option(
    "--broker-name",
    "broker_names",
    metavar="NAME",
    multiple=True,
    help="Broker name in routes; with several stores one for each, in their order. [default: as the store tells]",
)
@click.option("--cluster", metavar="NAME", help="Cluster name in routes. [default: as the (first) store tells]")
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
    "--fast-lane/--no-fast-lane",
    default=True,
    show_default=True,
    help="Answer plain requests in compiled code, many in one step; without it each goes the ordinary way, to the same "
    "answer.",
)
@click.option(
    "--workers",
    type=click.IntRange(0, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes that serve, under one that puts a new one in the place of one that died. 0: serve in this process, "
    "which dies when a file of the store is cut under it.",
)
@click.option(
    "--worker-timeout",
    "worker_timeout_seconds",
    type=click.FloatRange(0, LONGEST_WORKER_TIMEOUT_SECONDS),
    default=WORKER_TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Replace a process that serves when its event loop has stood still for so long, 1 or more; 0: never.",
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
@register_options
@watch_options
@port_options
@store_options
@gathered(serving=ServeArguments)
@plain_errors
def serve(
    stores: tuple[Path, ...],
    serving: ServeArguments,
    register: RegisterArguments,
    watch: WatchArguments,
    port: PortArguments,
    store_arguments: StoreArguments,
) -> None:
    """Answer RocketMQ clients and mqadmin from the store in each STORE, which is only read.

    The same port is broker and name server. Several stores are brokers of one cluster, each with a port of its own,
    ten higher than the one before it; the name server on each of these ports knows all of them. One line on stdout says
    when clients can connect; SIGTERM and SIGINT stop the server after what is in flight. What a running broker writes
    is answered as soon as it can be read; SIGHUP makes the server look at all of the stores' files at once.
    """
    from broker.cli.serving import run_server

    configure_logging(watch.log_format)
    _stop_quietly_while_starting()
    options = ServeOptions(
        stores[0],
        listen=serving.listen,
        advertise=serving.advertise,
        cluster=serving.cluster,
        state_directory=store_arguments.state_directory,
        commit_log_directories=store_arguments.commit_log_directories or (),
        index_slots=store_arguments.index_slots,
        index_entries=store_arguments.index_entries,
        vip=serving.vip,
        rewrite_store_host=serving.rewrite_store_host,
        fast_lane=serving.fast_lane,
        filter_support_retry=serving.filter_support_retry,
        loop=serving.loop,
        frame_limit=serving.frame_limit,
        workers=serving.workers,
        worker_timeout_seconds=serving.worker_timeout_seconds,
        limits=Limits().changed(serving.limits),
        tls=port.tls,
        proxies=port.proxies,
        acl=port.acl,
        audit_log=port.audit_log,
        register=register.options,
        http=watch.http,
        http_hosts=watch.http_hosts,
        http_proxies=watch.http_proxies,
        slow_query_milliseconds=watch.slow_query_milliseconds,
    )
    all_options = options_of_stores(stores, serving.broker_names, options)
    _allow_many_files()
    try:
        code = run_server(all_options)
    except CannotListen as error:
        fail(str(error), NOT_FOUND)
    sys.exit(code)


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
