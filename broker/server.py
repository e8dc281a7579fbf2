"""The server's life: listen, serve until a signal, finish what is in flight, stop.

Stopping is nine steps in order: take ourselves off the lists of name servers; close the listening sockets; refuse the
pulls that wait for messages; where there are consumers, do the same for a moment with the pulls that are on their way;
read nothing further, and answer what was received; after the timeout close connections with unread answers; close the
HTTP port, which has said all the while that we stop; let go of the thread pool; write down how far consumer groups have
come.
"""

import asyncio
import contextlib
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from broker.cluster.registration import Registration
from broker.endpoint import Endpoint
from broker.metrics.metrics_meter import LaneCounts
from broker.metrics.metrics_rows import (
    BEAT_SECONDS,
    CONNECTIONS,
    HELD_PULLS,
    HOLES,
    IN_FLIGHT_BYTES,
    NAME_SERVERS,
    POOL_WORK,
    REGISTERED,
    REGISTRY_BYTES,
    REGISTRY_REFUSED,
    SEARCH_LEFT,
    SERVING,
    STOPPING,
    UNFINISHED_BYTES,
    UNSENT_BYTES,
)
from broker.net.budget import SWEEP_SECONDS as BUDGET_SWEEP_SECONDS
from broker.net.listeners import BACKLOG, Listener, listen
from broker.net.reception import Reception
from broker.net.session_settings import SessionSettings
from broker.net.transport import OpenConnections, SessionTransport
from broker.security.audit_log import AuditLog
from broker.security.watched_files import WATCH_SECONDS, Watched
from broker.service.background_work import BackgroundWork
from broker.service.broker_service import BrokerService
from broker.service.consumers.client_registry import SWEEP_SECONDS
from broker.service.dispatcher import Dispatcher
from broker.service.following_threads import FollowingThreads
from broker.workers.core_sharing import LOOK_SECONDS, CoreSharing
from broker.workers.member import WorkerMember
from broker.workers.owner import Owner
from protocol.errors import RocketLensError
from storage.amounts import counted
from storage.process_memory import trim_heap

logger = logging.getLogger(__name__)

FAREWELL_SECONDS = 0.2
"""How long pulls are answered that the server stops before connections are closed: a pull that is on its way when its
connection closes is lost, and clients up to 4.9 wait 30 s for the answer."""

SWITCH_SECONDS = 0.001
"""How long a thread that parses for one client may keep the event loop waiting; Python's default is five times this."""

TRIM_SECONDS = 5.0
"""How often memory that a burst of requests took is given back."""


async def serve_until_stopped(
    servers: "Sequence[Server]", announce: Callable[[], None], beat: Callable[[], None]
) -> None:
    """Serve until SIGTERM or SIGINT, refresh at SIGHUP; `announce` is called once clients can connect to all.

    `beat` is called again and again while the event loop turns.
    """
    loop, stop_asked = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop_asked.set)

    def refresh() -> None:
        for server in servers:
            server.refresh()

    loop.add_signal_handler(signal.SIGHUP, refresh)
    try:
        for server in servers:
            await server.start()
        # What lives as long as the server need not be looked at by every collection: 55,000 objects take 30 to 41 ms,
        # and 0.01 ms once they are frozen (timed around this call, a store of `benchmarks.start`).
        gc.collect()
        gc.freeze()
        _repeat(loop, beat, BEAT_SECONDS)
        announce()
        if any(server.has_colleagues for server in servers):
            sharing = CoreSharing()
            _repeat(loop, lambda: sharing.look(sum(len(server.connections) for server in servers)), LOOK_SECONDS)
        await stop_asked.wait()
    finally:
        await asyncio.gather(*(server.stop() for server in servers))


def _repeat(loop: asyncio.AbstractEventLoop, work: Callable[[], None], interval_seconds: float) -> None:
    """Have some quick work done now, and again and again as long as the loop turns."""
    loop.call_later(interval_seconds, _repeat, loop, work, interval_seconds)
    work()


def publish_all(servers: "Sequence[Server]") -> None:
    """Bring up to date what metrics say of this moment."""
    for server in servers:
        server.publish()


class OtherPort(Protocol):
    """A port of another protocol that is served in the same event loop: HTTP or gRPC."""

    @property
    def is_idle(self) -> bool:
        """Whether its threads have nothing to do."""

    async def start(self) -> None:
        """Accept connections. Raises `CannotListen` when an address went to somebody else since it was bound."""

    def note_stopping(self) -> None:
        """Know from now on that the server stops."""

    async def stop(self) -> None:
        """Finish what is being answered, and close."""


@dataclass(frozen=True, slots=True)
class ServerParts:
    """What a server is made of; `broker.app` puts it together.

    `sessions` is what all sessions share, `connections` those that are open, `reception` who accepts where the first
    bytes decide, None where the loop's own server does. `colleagues` are the other worker processes, as worker 0 or as
    one of the others sees them. `other_port` is the one for metrics and health, or that of gRPC, or
    None. `watched` is made anew when its files change. `lane` is the fast lane, as far as it counts.
    """

    service: BrokerService
    listeners: Sequence[Listener]
    dispatcher: Dispatcher
    sessions: SessionSettings
    connections: OpenConnections
    reception: Reception | None = None
    colleagues: Owner | WorkerMember | None = None
    other_port: OtherPort | None = None
    watched: "Sequence[Watched[Any] | AuditLog]" = ()
    lane: LaneCounts | None = None


class Server:
    """One served store on its listening sockets, for one event loop."""

    def __init__(self, parts: ServerParts) -> None:
        """Take over bound listeners; `addresses` are all that is listened on, VIP ports last, with their real ports."""
        self.addresses: tuple[Endpoint, ...] = tuple(listener.endpoint for listener in parts.listeners)
        self.connections = parts.connections
        self.budget = parts.sessions.budget
        self.lane = parts.lane
        self._service = parts.service
        self._options = parts.service.options
        self._meter = parts.service.meter
        self._listeners = parts.listeners
        self._dispatcher = parts.dispatcher
        self._sessions = parts.sessions
        self._reception = parts.reception
        self._colleagues = parts.colleagues
        self._other_port = parts.other_port
        self._watched = parts.watched
        self._servers: list[asyncio.Server] = []
        self._refresher: threading.Thread | None = None
        self._timers: dict[Callable[[], None], asyncio.TimerHandle] = {}
        self._must_stop = threading.Event()
        self._background = BackgroundWork(self._service.store, self._meter)
        self._following: FollowingThreads | None = None
        self._registration: Registration | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no thread of the pool is at work."""
        return self._dispatcher.is_idle and (self._other_port is None or self._other_port.is_idle)

    @property
    def has_colleagues(self) -> bool:
        """Whether other worker processes serve clients of the same port."""
        return self._colleagues is not None and self._options.workers > 1

    async def start(self) -> None:
        """Accept connections. Raises `ConfigError` when an address went to somebody else since it was bound."""
        loop = asyncio.get_running_loop()
        sys.setswitchinterval(SWITCH_SECONDS)
        self._service.polls.start(self._dispatcher.run_in_pool)
        self._service.notices.start()
        self._background.connect()
        if self._service.keeper is not None:
            self._service.keeper.start()
        if self._colleagues is not None:
            await self._colleagues.start()
        for listener in self._listeners:
            # Not by the loop: uvloop does not report that it failed.
            listen(listener)
            factory = partial(SessionTransport, self._sessions, self.connections, listener.port_distance)
            if self._reception is not None:
                self._reception.listen(listener.socket, factory)
            else:
                self._servers.append(await loop.create_server(factory, sock=listener.socket, backlog=BACKLOG))
        if self._other_port is not None:
            await self._other_port.start()
        if self._meter is not None:
            self._meter.enter(SERVING)
        self._repeat(self._sweep, self._options.limits.idle_seconds / 2)
        self._repeat(self._sweep_budget, BUDGET_SWEEP_SECONDS)
        self._repeat(self._service.clients.sweep, SWEEP_SECONDS)
        self._repeat(trim_heap, TRIM_SECONDS)
        self._background.start()
        self._following = FollowingThreads(self._service.store, self._service.polls, self._background.wake)
        self._following.start()
        if self._watched:
            self._start_thread("watch", self._watch_files)
        if self._options.register.name_servers and not isinstance(self._colleagues, WorkerMember):
            address = self._options.advertise or self.addresses[0]
            self._registration = Registration(self._service, self._options.register, address)
            self._registration.start()

    def refresh(self) -> None:
        """Look at the store's files anew, on a thread; a refresh under way is left alone."""
        if self._refresher is None or not self._refresher.is_alive():
            self._refresher = self._start_thread("refresh", self._refresh_store)

    async def stop(self) -> None:
        """Stop within the options' timeout; see the module's docstring for the steps."""
        self._must_stop.set()
        self._background.stop()
        if self._meter is not None:
            self._meter.enter(STOPPING)
        if self._other_port is not None:
            self._other_port.note_stopping()
        if self._following is not None:
            self._following.stop()
        for timer in self._timers.values():
            timer.cancel()
        if self._registration is not None:
            # First, so that clients look for another broker while this one still answers.
            await self._registration.stop()
        for server in self._servers:
            server.close()
        if self._reception is not None:
            await self._reception.close()
        self._service.notices.stop()
        is_polled = len(self._service.polls) > 0
        self._service.polls.stop()
        if is_polled or self._service.clients.has_consumers:
            await asyncio.sleep(min(FAREWELL_SECONDS, self._options.stop_timeout_seconds))
        for connection in self.connections:
            connection.end()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._options.stop_timeout_seconds):
                await self.connections.all_closed.wait()
        if len(self.connections):
            logger.warning("closed %s that had not read all answers", counted(len(self.connections), "connection"))
            for connection in self.connections:
                connection.abort()
            await self.connections.all_closed.wait()
        if self._colleagues is not None:
            self._colleagues.stop()
        if self._other_port is not None:
            await self._other_port.stop()
        self._dispatcher.close()
        if self._service.keeper is not None:
            await asyncio.to_thread(self._service.keeper.stop)

    def _watch_files(self) -> None:
        while not self._must_stop.wait(WATCH_SECONDS):
            for watched in self._watched:
                watched.refresh()

    def _start_thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        """Start what reads much of the store; a daemon, for it must not keep a stopped process alive."""
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        return thread

    def _refresh_store(self) -> None:
        for watched in self._watched:
            watched.refresh()
        if self._refresh_quietly():
            logger.info("the store was reopened: %s", self._options.store)

    def _refresh_quietly(self) -> bool:
        """Read the store anew; whether that was possible."""
        try:
            self._service.store.refresh()
            self._background.wake()
        except RocketLensError as error:
            store = self._options.store
            logger.error("the store could not be reopened: %s (%s); what was read before is still served", store, error)
        except Exception:
            logger.exception("the store could not be reopened; what was read before is still served")
        else:
            return True
        return False

    def _repeat(self, work: Callable[[], None], interval_seconds: float) -> None:
        """Have some quick work done again and again until the server stops."""

        def run() -> None:
            self._repeat(work, interval_seconds)
            work()

        self._timers[work] = asyncio.get_running_loop().call_later(interval_seconds, run)

    def _sweep_budget(self) -> None:
        self.budget.sweep(self.connections.unsent)
        self.publish()

    def publish(self) -> None:
        """Bring up to date what metrics say of this moment of one store."""
        if self._meter is not None:
            present = {
                CONNECTIONS: len(self.connections),
                HELD_PULLS: len(self._service.polls),
                POOL_WORK: self._dispatcher.pool_work,
                REGISTRY_BYTES: self._service.budget.used,
                IN_FLIGHT_BYTES: self.budget.in_flight,
                UNFINISHED_BYTES: self.budget.received,
                UNSENT_BYTES: self.budget.unsent,
                HOLES: self._service.store.queue_holes.searching,
                SEARCH_LEFT: self._service.store.queue_searches()[1],
            }
            if self._registration is not None:
                present[NAME_SERVERS] = len(self._options.register.name_servers)
                present[REGISTERED] = self._registration.count
            self._meter.row[REGISTRY_REFUSED] += self._service.budget.new_refusals()
            self._meter.publish(present, self.lane)

    def _sweep(self) -> None:
        for connection in self.connections:
            connection.sweep()
