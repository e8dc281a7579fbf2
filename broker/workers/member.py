"""The workers besides worker 0: they forward requests about groups, locks and offsets to it.

When worker 0 is replaced, its successor knows no group. So each worker keeps the last heartbeat of each connection and
sends it again, before the requests that were not answered; all of them may be sent twice without harm.
"""

import asyncio
import contextlib
import itertools
import logging
import socket
import threading
from collections import deque
from functools import partial
from typing import Any

from broker.service.consumers.client_registry import EXPIRY_SECONDS, ClientRegistry, ConsumerGroup
from broker.service.consumers.kept_filters import KeptFilters
from broker.service.consumers.member_commits import MemberCommits
from broker.service.consumers.registries import Registries
from broker.service.consumers.subscriptions import expressions_of, reported_filters
from broker.service.dispatcher import Answer, ClientConnection, Request
from broker.service.long_work import begin_on_loop, parse_body
from broker.service.lookup_pool import LookupPool
from broker.service.registry_budget import Room
from broker.workers.link import Link, LinkKind, is_ours, pack
from broker.workers.owner import as_fields
from protocol.bodies import SubscriptionData
from protocol.codes import RequestCode
from protocol.command import Command, Response
from protocol.headers import EmptyRequestHeader
from storage.files.waiting import Lookup, Unfinished

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.05

REPORT_SECONDS = 1.0
"""How often worker 0 gets a report of how far groups have pulled here, and of what accounts lacked."""

OWNED_CODES = frozenset(
    {
        RequestCode.HEART_BEAT,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.GET_CONSUMER_CONNECTION_LIST,
        RequestCode.GET_PRODUCER_CONNECTION_LIST,
        RequestCode.GET_ALL_PRODUCER_INFO,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_CONSUME_STATS,
        RequestCode.QUERY_CONSUME_TIME_SPAN,
        RequestCode.GET_BROKER_CONSUME_STATS,
        RequestCode.VIEW_BROKER_STATS_DATA,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.GET_CONSUMER_RUNNING_INFO,
        RequestCode.CONSUME_MESSAGE_DIRECTLY,
    }
)
"""Codes whose answers depend on groups, their members, locks or offsets, or count what a server did."""


class CopiedRegistry(ClientRegistry):
    """The groups that worker 0 announced: what they subscribe to, without their members."""

    def __init__(self, filters: KeptFilters | None = None, room: Room | None = None) -> None:
        """`filters` are where filters are made, for all clients of this worker."""
        super().__init__(room=room)
        self._filters = KeptFilters() if filters is None else filters
        self._copies: dict[str, ConsumerGroup] = {}
        self._unconfirmed: set[str] = set()

    @property
    def has_consumers(self) -> bool:
        """Whether any consumer group has a member, on any worker."""
        return bool(self._copies)

    def consumer_groups(self) -> list[str]:
        """The names of the groups that worker 0 announced."""
        return list(self._copies)

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """The group as worker 0 announced it, None when it has no member."""
        return self._copies.get(name)

    def read(
        self, name: str, consume_type: str, message_model: str, consume_from_where: str, subscribed: bytes
    ) -> Lookup[ConsumerGroup]:
        """The group that worker 0 announced; on any thread."""
        subscriptions = yield from parse_body(subscribed, list[SubscriptionData])
        made = yield from self._filters.make_all(expressions_of(subscriptions), is_trusted=True)
        known = self._copies.get(name)
        group = ConsumerGroup(name, consume_type, message_model, consume_from_where)
        group.subscriptions = {subscription.topic: subscription for subscription in subscriptions}
        group.filters = reported_filters(known.filters if known is not None else {}, subscriptions, made)
        return group

    def take(self, group: ConsumerGroup) -> None:
        """Know a group as `read` has returned it."""
        self._copies[group.name] = group
        self._unconfirmed.discard(group.name)
        self.changes += 1

    def drop(self, name: str) -> None:
        """Forget a group that has no member any more."""
        self._copies.pop(name, None)
        self.changes += 1

    def mark_unconfirmed(self) -> None:
        """Note that worker 0 was replaced: the new one announces groups when it hears of them again."""
        self._unconfirmed = set(self._copies)

    def drop_unconfirmed(self) -> None:
        """Forget the groups that the new worker 0 has not announced."""
        for name in self._unconfirmed:
            self.drop(name)
        self._unconfirmed = set()


class ForwardedCommits(MemberCommits):
    """Offsets that come with pulls go to worker 0, which knows who is in what group."""

    def __init__(self, registries: Registries, member: "WorkerMember") -> None:
        super().__init__(registries.clients, lambda: registries.offsets)
        self._member = member

    def commit(self, connection: ClientConnection, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Have worker 0 take over an offset, as far as it has room; on any thread."""
        if offset >= 0:
            self._member.commit(connection, group, topic, queue_id, offset)
        return True


class WorkerMember:
    """The forwarding end of a link; call `start` and `stop` on the event loop, `commit` and `send` on any thread."""

    def __init__(self, registries: Registries, name: bytes | str) -> None:
        """`name` of worker 0's socket."""
        self._clients, self._pulled, self._denials = registries.clients, registries.pulled, registries.denials
        self._notices: deque[tuple[int, list[Any]]] = deque()
        self._reader = LookupPool(1, "groups")
        self._is_reading = False
        self._room = registries.budget.room("heartbeats", 2)
        self._name = name
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._numbers = itertools.count(1)
        self._keys: dict[ClientConnection, int] = {}
        self._connections: dict[int, ClientConnection] = {}
        self._heartbeats: dict[int, bytes] = {}
        self._unanswered: dict[int, tuple[asyncio.Future[Response], bytes]] = {}
        self._is_stopping = False
        self._report_timer: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect to worker 0."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        await self._connect()
        self._send_reports()

    def stop(self) -> None:
        """Send nothing more to worker 0."""
        self._is_stopping = True
        if self._report_timer is not None:
            self._report_timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        self._reader.close()
        if self._link is not None:
            self._link.close()

    def forward(self, _header: EmptyRequestHeader, request: Request) -> Answer:
        """Have worker 0 answer a request. Raises `Unsendable`; then worker 0 hears nothing of it."""
        assert self._loop is not None
        number, connection, command = next(self._numbers), request.connection, request.command
        key = self._key_of(connection)
        rest = key, connection.local_address, connection.peer_address, as_fields(command)
        message = pack(LinkKind.REQUEST, number, *rest)
        if command.code == RequestCode.HEART_BEAT:
            # The answer to a heartbeat of long ago concerns nobody.
            self._keep_heartbeat(key, pack(LinkKind.REQUEST, 0, *rest))
        future: asyncio.Future[Response] = self._loop.create_future()
        self._unanswered[number] = future, message
        future.add_done_callback(lambda _done: self._unanswered.pop(number, None))
        if self._link is not None:
            self._link.write(message)
        return future

    def commit(self, connection: ClientConnection, *commit: Any) -> None:
        """Hand worker 0 what a client commits; on any thread. Lost when worker 0 is just being replaced."""
        if self._loop is None:
            return
        if threading.get_ident() != self._thread:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self.commit, connection, *commit)
        elif connection.is_open:
            addresses = connection.local_address, connection.peer_address
            self.send(LinkKind.COMMIT, self._key_of(connection), *addresses, *commit)

    def _keep_heartbeat(self, key: int, message: bytes) -> None:
        """Keep a heartbeat for a new worker 0; without room for it, that gets it when the client sends it again."""
        self._forget_heartbeat(key)
        if self._room.take(len(message)):
            self._heartbeats[key] = message

    def _forget_heartbeat(self, key: int) -> None:
        message = self._heartbeats.pop(key, None)
        if message is not None:
            self._room.give_back(len(message))

    def connection_lost(self, connection: ClientConnection) -> None:
        """Report to worker 0 that a client is gone, if worker 0 knows it."""
        key = self._keys.pop(connection, None)
        if key is not None:
            del self._connections[key]
            self._forget_heartbeat(key)
            self.send(LinkKind.LOST, key)

    def replied(self, connection: ClientConnection, command: Command) -> None:
        """Hand worker 0 what a client answers to a request of its."""
        key = self._keys.get(connection)
        if key is not None:
            self.send(LinkKind.REPLY, key, command.remark, as_fields(command))

    def send(self, kind: LinkKind, *rest: Any) -> None:
        """Send what needs no answer; lost when worker 0 is just being replaced."""
        if self._loop is None:
            return
        if threading.get_ident() == self._thread:
            if self._link is not None:
                self._link.send(kind, *rest)
        else:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self.send, kind, *rest)

    def _send_reports(self) -> None:
        """Report to worker 0 how far groups have pulled since the last time, and what accounts lacked."""
        assert self._loop is not None
        self._report_timer = self._loop.call_later(REPORT_SECONDS, self._send_reports)
        for kind, noted in ((LinkKind.PULLED, self._pulled.settle()), (LinkKind.DENIED, self._denials.settle())):
            if noted:
                self.send(kind, noted)

    def _key_of(self, connection: ClientConnection) -> int:
        key = self._keys.get(connection)
        if key is None:
            key = self._keys[connection] = next(self._numbers)
            self._connections[key] = connection
        return key

    # ------------------------------------------------------------------ the link

    async def _connect(self) -> None:
        """Connect, and send a new worker 0 what it has to know; the supervisor's socket accepts before it is up."""
        assert self._loop is not None
        while not self._is_stopping:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                connection.connect(self._name)
                connection.setblocking(False)
                if not is_ours(connection):
                    raise ConnectionError("worker 0 is of another user")
                _, link = await self._loop.create_unix_connection(lambda: Link(self._take, self._lost), sock=connection)
            except OSError as error:
                logger.warning("worker 0 cannot be reached: %s", error)
                connection.close()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._link = link
            self._clients_known_anew()
            return

    def _clients_known_anew(self) -> None:
        assert self._link is not None
        if isinstance(self._clients, CopiedRegistry):
            self._clients.mark_unconfirmed()
            assert self._loop is not None
            self._loop.call_later(EXPIRY_SECONDS, self._clients.drop_unconfirmed)
        for message in self._heartbeats.values():
            self._link.write(message)
        for _, message in list(self._unanswered.values()):
            self._link.write(message)

    def _lost(self, _link: Link) -> None:
        self._link = None
        if not self._is_stopping and self._loop is not None:
            self._connecting = self._loop.create_task(self._connect())

    def _take(self, _link: Link, message: list[Any]) -> None:
        kind, *rest = message
        if kind == LinkKind.ANSWER:
            number, code, remark, fields, body = rest
            waiting = self._unanswered.get(number)
            if waiting is not None and not waiting[0].done():
                waiting[0].set_result(Response(code, remark, fields, body))
        elif kind == LinkKind.PUSH:
            connection = self._connections.get(rest[0])
            if connection is not None:
                connection.push(rest[1])
        elif kind in (LinkKind.GROUP, LinkKind.GONE):
            self._notices.append((kind, rest))
            if not self._is_reading:
                self._take_groups(self._clients)

    def _take_groups(self, clients: ClientRegistry) -> None:
        """Take over announcements of groups, in order; what is long to read is read on a thread first."""
        while self._notices and isinstance(clients, CopiedRegistry):
            kind, rest = self._notices[0]
            if kind == LinkKind.GONE:
                clients.drop(rest[0])
            else:
                group = begin_on_loop(clients.read(*rest))
                if isinstance(group, Unfinished):
                    self._is_reading = True
                    self._reader.run(None, group.finish).add_done_callback(partial(self._read, clients))
                    return
                clients.take(group)
            self._notices.popleft()

    def _read(self, clients: CopiedRegistry, done: "asyncio.Future[ConsumerGroup]") -> None:
        self._is_reading = False
        self._notices.popleft()
        if not done.cancelled():
            clients.take(done.result())
        self._take_groups(clients)
