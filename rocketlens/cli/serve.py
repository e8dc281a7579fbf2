"""`rocketlens serve`: answer RocketMQ clients from a store."""

import resource
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

import click
import msgspec

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
from protocol.errors import ConfigError
from rocketlens.cli.errors import NOT_FOUND, fail, plain_errors
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.log_format import configure_logging
from rocketlens.cli.options import DIRECTORY, endpoint, gathered, own_endpoint, store_options
from rocketlens.cli.port_options import PortArguments, port_options
from rocketlens.cli.register_options import RegisterArguments, register_options
from rocketlens.cli.watch_options import WatchArguments, watch_options
from rocketlens.opening import StoreArguments
from storage.extras import install_line

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


@click.command(cls=GroupedCommand)
@click.argument("stores", type=DIRECTORY, nargs=-1, required=True, metavar="STORE...")
@click.option(
    "--listen",
    type=own_endpoint,
    metavar="[HOST:]PORT",
    multiple=True,
    default=[f"127.0.0.1:{DEFAULT_PORT}"],
    show_default=True,
    help="Address to listen on, also [IPv6]:PORT, without HOST on the loopback address; repeatable. Port 0 chooses "
    "one.",
)
@click.option(
    "--advertise",
    type=endpoint,
    metavar="HOST:PORT",
    help="Address to which routes send clients, if it is not the one that this server listens on.",
)
@click.option(
    "--broker-name",
    "broker_names",
    metavar="NAME",
    multiple=True,
    help="Broker name in routes; with several stores one for each, in their order. [default: the name in the store]",
)
@click.option("--cluster", metavar="NAME", help="Cluster name in routes. [default: the name in the (first) store]")
@click.option("--vip", is_flag=True, help="Also listen two ports lower, for old clients and the dashboard.")
@click.option(
    "--rewrite-store-host", is_flag=True, help="Replace the store host in the records sent by this server's address."
)
@click.option(
    "--filter-support-retry",
    is_flag=True,
    help="Filter pulls from a group's retry topic too, as brokers do with filterSupportRetry=true.",
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
    help="Whether plain requests are answered by compiled code, with equal answers.",
)
@click.option(
    "--workers",
    type=click.IntRange(0, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of serving processes; a supervisor replaces those that die. 0: serve in this process.",
)
@click.option(
    "--worker-timeout",
    "worker_timeout_seconds",
    type=click.FloatRange(0, LONGEST_WORKER_TIMEOUT_SECONDS),
    default=WORKER_TIMEOUT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="Replace a process whose event loop has stood still for so long; 0: never.",
)
@click.option(
    "--frame-limit",
    type=click.IntRange(SMALLEST_FRAME_LIMIT, 2**31 - 1),
    default=FRAME_LIMIT,
    show_default=True,
    metavar="BYTES",
    help="Size of the longest request and answer.",
)
@click.option(
    "--limit",
    "limits",
    metavar="NAME=NUMBER",
    multiple=True,
    help="Limit what clients may cost; repeatable. The names are in docs/port.md.",
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
    ten higher than the one before it; the name server on each of these ports knows all of them. One line on stdout
    says when clients can connect. SIGTERM and SIGINT stop the server after the requests in flight are answered. The
    server follows what a running broker writes; SIGHUP makes it look at all of the stores' files at once.
    """
    from rocketlens.cli.serving import run_server

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
        tier=store_arguments.tier,
        masked=store_arguments.rules,
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
        acl_admin_has_all=port.acl_admin_has_all,
        audit_log=port.audit_log,
        register=register.options,
        grpc=watch.grpc,
        http=watch.http,
        http_hosts=watch.http_hosts,
        http_proxies=watch.http_proxies,
        http_auth=watch.auth,
        mcp=watch.mcp,
        slow_query_milliseconds=watch.slow_query_milliseconds,
    )
    if watch.grpc is not None and find_spec("grpc") is None:
        raise ConfigError(f"--grpc needs grpcio: {install_line('grpc')}")
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
