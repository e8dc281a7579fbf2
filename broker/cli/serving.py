"""The life of `rocketlens serve`: bind, load, then serve in worker processes under a supervisor, or here."""

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker.cli.errors import plain_errors
from broker.cli.opening import check_places, load_code, open_store
from broker.config import Endpoint, ServeOptions

if TYPE_CHECKING:
    from broker.consumer_offsets import ConsumerOffsets
    from broker.listeners import Listener
    from broker.offset_keeper import OffsetKeeper
    from storage.message_store import MessageStore

logger = logging.getLogger(__name__)

SCAN_BUDGET = 128 * 1024 * 1024
"""Bytes of log beyond the index that are scanned before the port opens; the rest is scanned while serving."""

MODULES = ("broker.broker_service", "broker.offset_keeper", "broker.request_families", "broker.server")
"""What workers need besides the kernels; loaded once, before they are forked."""


def run_server(options: ServeOptions, numba_cache: Path | None) -> int:
    """Serve until told to stop, in worker processes or in this one; the exit code.

    Raises `CannotListen` for an address that cannot be had, `ConfigError` and `StoreError` as `open_store` does.
    """
    from broker.listeners import bind_listeners, close_listeners
    from broker.workers.supervisor import Supervisor

    listeners = bind_listeners(options.listen, vip=options.vip)
    announce = partial(_announce, options, [listener.endpoint for listener in listeners])
    try:
        if not options.workers:
            _serve_here(options, numba_cache, listeners, announce)
            return 0
        check_places(options.store, options.state_directory, numba_cache)
        load_code(numba_cache, MODULES)
        work = partial(_work, options, numba_cache, listeners)
        supervisor = Supervisor(work, options.workers, announce, options.stop_timeout_seconds)
        # Before workers stop, so that nobody connects to wait for a server that will not come.
        supervisor.before_stop = partial(close_listeners, listeners)
        # What is loaded stays in pages shared with the workers as long as nobody writes to them.
        gc.collect()
        gc.freeze()
        return supervisor.run()
    finally:
        close_listeners(listeners)


def _announce(options: ServeOptions, addresses: Sequence[Endpoint]) -> None:
    click.echo(f"rocketlens: serving {options.store} on {', '.join(map(str, addresses))}")


@plain_errors
def _work(
    options: ServeOptions,
    numba_cache: Path | None,
    listeners: "Sequence[Listener]",
    _number: int,
    announce: Callable[[], None],
) -> int:
    """The life of one worker process."""
    _serve_here(options, numba_cache, listeners, announce)
    return 0


def _serve_here(
    options: ServeOptions, numba_cache: Path | None, listeners: "Sequence[Listener]", announce: Callable[[], None]
) -> None:
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
    _run(options, opened, listeners, announce)


def _run(
    options: ServeOptions, opened: "MessageStore", listeners: "Sequence[Listener]", announce: Callable[[], None]
) -> None:
    # Only now: these import the store, and with it the kernels.
    from broker.broker_service import BrokerService
    from broker.server import Server

    service = BrokerService.of(opened, options)
    service.keeper = _offset_keeper(options, opened, service.offsets)

    async def serve_until_told() -> bool:
        server = Server(service, listeners)
        await server.serve(lambda _addresses: announce())
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
