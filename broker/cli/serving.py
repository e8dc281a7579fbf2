"""The life of `rocketlens serve`: bind, load, then serve in worker processes under a supervisor, or here."""

import asyncio
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from broker.cli.errors import plain_errors
from broker.cli.opening import ENTRIES, check_places, load_code, open_store
from broker.config import Endpoint, ServeOptions
from storage.process_memory import release_library_pages

if TYPE_CHECKING:
    from broker.broker_service import BrokerService
    from broker.consumer_offsets import ConsumerOffsets
    from broker.listeners import Listener
    from broker.offset_keeper import OffsetKeeper
    from broker.workers.member import Member
    from broker.workers.owner import Owner
    from storage.message_store import MessageStore
    from storage.store_state import StoreIdentity

logger = logging.getLogger(__name__)

SCAN_BUDGET = 512 * 1024 * 1024
"""Bytes of log beyond the index that are scanned before the port opens; the rest is scanned while serving."""

CHECK_BUDGET = 512 * 1024 * 1024
"""Bytes of index files that are checked before the port opens, the newest ones; the rest is checked while serving."""

MODULES = ("broker.broker_service", "broker.offset_keeper", "broker.request_families", "broker.server")
"""What workers need besides the kernels; loaded once, before they are forked."""


def run_server(options: ServeOptions, numba_cache: Path | None) -> int:
    """Serve until told to stop, in worker processes or in this one; the exit code.

    Raises `CannotListen` for an address that cannot be had, `ConfigError` and `StoreError` as `open_store` does.
    """
    from broker.listeners import bind_for_workers
    from broker.workers.link import make_listening_socket
    from broker.workers.supervisor import Supervisor

    bound = bind_for_workers(options.listen, vip=options.vip, count=max(options.workers, 1))
    announce = partial(_announce, options, [listener.endpoint for listener in bound[0]])
    close = partial(_close_all, bound)
    try:
        if not options.workers:
            _serve_here(options, numba_cache, bound[0], announce)
            return 0
        check_places(options.store, options.state_directory, numba_cache)
        load_code(numba_cache, MODULES)
        release_library_pages()
        meeting = make_listening_socket() if options.workers > 1 else None
        work = partial(_work, options, numba_cache, bound, meeting)
        supervisor = Supervisor(work, options.workers, announce, options.stop_timeout_seconds)
        # Before workers stop, so that nobody connects to wait for a server that will not come.
        supervisor.before_stop = close
        # What is loaded stays in pages shared with the workers as long as nobody writes to them.
        gc.collect()
        gc.freeze()
        return supervisor.run()
    finally:
        close()


def _close_all(bound: "list[list[Listener]]") -> None:
    from broker.listeners import close_listeners

    for listeners in bound:
        close_listeners(listeners)


def _announce(options: ServeOptions, addresses: Sequence[Endpoint]) -> None:
    click.echo(f"rocketlens: serving {options.store} on {', '.join(map(str, addresses))}")


@plain_errors
def _work(
    options: ServeOptions,
    numba_cache: Path | None,
    bound: "list[list[Listener]]",
    meeting: socket.socket | None,
    number: int,
    announce: Callable[[], None],
) -> int:
    """The life of one worker process."""
    _close_all(bound[:number] + bound[number + 1 :])
    _serve_here(options, numba_cache, bound[number], announce, meeting, number)
    return 0


def _serve_here(
    options: ServeOptions,
    numba_cache: Path | None,
    listeners: "Sequence[Listener]",
    announce: Callable[[], None],
    meeting: socket.socket | None = None,
    number: int = 0,
) -> None:
    from broker.state_directory import known_state_directory

    opened = open_store(
        options.store,
        commit_log_directories=options.commit_log_directories,
        index_slots=options.index_slots,
        index_entries=options.index_entries,
        state_directory=options.state_directory or known_state_directory(options.store),
        numba_cache=numba_cache,
        scan_budget=SCAN_BUDGET,
        check_budget=CHECK_BUDGET,
        entries_directory=partial(_entries_directory, options),
        keeps_state=not number,
        stays=True,
    )
    for problem in () if number else opened.problems:
        logger.warning("%s", problem)
    if opened.state.is_live and not number:
        logger.info("a broker is running on %s: what it writes is followed", options.store)
    # Only now: these import the store, and with it the kernels.
    from broker.server import Server

    service, colleagues = _service_of(options, opened, meeting, number)
    if not options.workers:  # a worker is forked without them
        release_library_pages()

    async def serve_until_told() -> bool:
        server = Server(service, listeners, colleagues=colleagues)
        await server.serve(lambda _addresses: announce())
        return server.is_idle

    with asyncio.Runner(loop_factory=_loop_factory(options.loop)) as runner:
        if not runner.run(serve_until_told()):
            # A look-up that cannot be interrupted is still reading; waiting for its thread could take for ever.
            logging.shutdown()
            sys.stdout.flush()
            os._exit(0)


def _service_of(
    options: ServeOptions, opened: "MessageStore", meeting: socket.socket | None, number: int
) -> "tuple[BrokerService, Owner | Member | None]":
    """What a process serves, and how it sees the others; `meeting` is where worker 0 hears them."""
    from broker.broker_service import BrokerService
    from broker.workers.member import CopiedRegistry, ForwardedOffsets, Member
    from broker.workers.owner import Owner

    if meeting is None or not number:
        service = BrokerService.of(opened, options)
        service.keeper = _offset_keeper(options, opened, service.offsets)
        if service.keeper is not None:  # it has the state directory for itself
            opened.keep_entries()
        return service, None if meeting is None else Owner(service, meeting)
    service = BrokerService.of(opened, options, CopiedRegistry())
    member = Member(service, meeting.getsockname())
    service.offsets = ForwardedOffsets(opened, member)
    return service, member


def _entries_directory(options: ServeOptions, identity: "StoreIdentity") -> Path | None:
    """Where keys that were found by scanning the log are kept; None where nothing can be, and memory holds them all."""
    from broker.state_directory import UnusableDirectory, can_be_had, default_state_directory

    try:
        path = options.state_directory or default_state_directory(options.store, identity)
    except UnusableDirectory:
        return None
    return path / ENTRIES if can_be_had(path) else None


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
