"""The workers besides worker 0: what is about groups, locks and offsets they have it answer.

When worker 0 is replaced, its successor knows no group. So each worker keeps the last heartbeat of each connection and
tells it again, before the requests that were not answered; all of them may be told twice without harm.
"""

import asyncio
import contextlib
import itertools
import logging
import socket
import threading
from typing import TYPE_CHECKING, Any

from broker.broker_service import BrokerService
from broker.consumers.client_registry import EXPIRY_SECONDS, ClientRegistry, ConsumerGroup
from broker.consumers.consumer_offsets import ConsumerOffsets
from broker.consumers.subscriptions import told_filters
from broker.dispatcher import Answer, ClientConnection, Request
from broker.workers.link import Kind, Link, is_ours
from broker.workers.owner import as_fields
from protocol.bodies import SubscriptionData, decode_json
from protocol.codes import RequestCode
from protocol.command import Command, Response
from protocol.headers import EmptyRequestHeader

if TYPE_CHECKING:
    from storage.message_store import MessageStore

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.05

PULLED_SECONDS = 1.0
"""How often worker 0 is told how far groups have pulled here."""

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
    """The groups that worker 0 told of: what they subscribe to, without their members."""

    def __init__(self) -> None:
        super().__init__()
        self._copies: dict[str, ConsumerGroup] = {}
        self._doubtful: set[str] = set()

    @property
    def has_consumers(self) -> bool:
        """Whether any consumer group has a member, on any worker."""
        return bool(self._copies)

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """The group as worker 0 told of it, None when it has no member."""
        return self._copies.get(name)

    def put(self, name: str, consume_type: str, message_model: str, consume_from_where: str, told: bytes) -> None:
        """Take over what worker 0 tells of a group."""
        subscriptions = decode_json(told, list[SubscriptionData])
        known = self._copies.get(name)
        group = ConsumerGroup(name, consume_type, message_model, consume_from_where)
        group.subscriptions = {subscription.topic: subscription for subscription in subscriptions}
        group.filters = told_filters(known.filters if known is not None else {}, subscriptions)
        self._copies[name] = group
        self._doubtful.discard(name)
        self.changes += 1

    def drop(self, name: str) -> None:
        """Forget a group that has no member any more."""
        self._copies.pop(name, None)
        self.changes += 1

    def doubt(self) -> None:
        """Note that worker 0 was replaced: the new one tells of groups when it hears of them again."""
        self._doubtful = set(self._copies)

    def drop_doubtful(self) -> None:
        """Forget the groups of which the new worker 0 has not told."""
        for name in self._doubtful:
            self.drop(name)
        self._doubtful = set()


class ForwardedOffsets(ConsumerOffsets):
    """Offsets that come with pulls go to worker 0."""

    def __init__(self, store: "MessageStore", member: "Member") -> None:
        super().__init__(store)
        self._member = member

    def commit(self, group: str, topic: str, queue_id: int, offset: int, *, is_new: bool = True) -> None:
        """Have worker 0 remember an offset; on any thread."""
        if offset >= 0:
            self._member.tell(Kind.COMMIT, group, topic, queue_id, offset)


class Member:
    """The asking end of a link; `start` and `stop` on the event loop, `tell` anywhere."""

    def __init__(self, service: BrokerService, name: bytes | str) -> None:
        """`name` of worker 0's socket."""
        self._clients, self._pulled = service.clients, service.pulled
        self._name = name
        self._link: Link | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._numbers = itertools.count(1)
        self._keys: dict[ClientConnection, int] = {}
        self._connections: dict[int, ClientConnection] = {}
        self._heartbeats: dict[int, list[Any]] = {}
        self._asked: dict[int, tuple[asyncio.Future[Response], list[Any]]] = {}
        self._is_stopping = False
        self._teller: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect to worker 0."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        await self._connect()
        self._tell_pulled()

    def stop(self) -> None:
        """Tell worker 0 no more."""
        self._is_stopping = True
        if self._teller is not None:
            self._teller.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        if self._link is not None:
            self._link.close()

    def forward(self, _header: EmptyRequestHeader, request: Request) -> Answer:
        """Have worker 0 answer a request."""
        assert self._loop is not None
        number, connection, command = next(self._numbers), request.connection, request.command
        key = self._key_of(connection)
        message = [int(Kind.REQUEST), number, key, connection.local_address, connection.peer_address]
        message.append(as_fields(command))
        if command.code == RequestCode.HEART_BEAT:
            self._heartbeats[key] = message
        future: asyncio.Future[Response] = self._loop.create_future()
        self._asked[number] = future, message
        future.add_done_callback(lambda _done: self._asked.pop(number, None))
        if self._link is not None:
            self._link.send(*message)
        return future

    def connection_lost(self, connection: ClientConnection) -> None:
        """Tell worker 0 that a client is gone, if it knows him."""
        key = self._keys.pop(connection, None)
        if key is not None:
            del self._connections[key]
            self._heartbeats.pop(key, None)
            self.tell(Kind.LOST, key)

    def replied(self, connection: ClientConnection, command: Command) -> None:
        """Hand worker 0 what a client answers to a request of its."""
        key = self._keys.get(connection)
        if key is not None:
            self.tell(Kind.REPLY, key, command.remark, as_fields(command))

    def tell(self, kind: Kind, *rest: Any) -> None:
        """Send what needs no answer; lost when worker 0 is just being replaced."""
        if self._loop is None:
            return
        if threading.get_ident() == self._thread:
            if self._link is not None:
                self._link.send(kind, *rest)
        else:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self.tell, kind, *rest)

    def _tell_pulled(self) -> None:
        """Tell worker 0 how far groups have pulled since the last time."""
        assert self._loop is not None
        self._teller = self._loop.call_later(PULLED_SECONDS, self._tell_pulled)
        noted = self._pulled.settle()
        if noted:
            self.tell(Kind.PULLED, noted)

    def _key_of(self, connection: ClientConnection) -> int:
        key = self._keys.get(connection)
        if key is None:
            key = self._keys[connection] = next(self._numbers)
            self._connections[key] = connection
        return key

    # ------------------------------------------------------------------ the link

    async def _connect(self) -> None:
        """Connect, and tell a new worker 0 what it has to know; the supervisor's socket takes us before it is up."""
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
            self._clients.doubt()
            assert self._loop is not None
            self._loop.call_later(EXPIRY_SECONDS, self._clients.drop_doubtful)
        for message in self._heartbeats.values():
            # The answer to a heartbeat of long ago concerns nobody.
            self._link.send(message[0], 0, *message[2:])
        for _, message in list(self._asked.values()):
            self._link.send(*message)

    def _lost(self, _link: Link) -> None:
        self._link = None
        if not self._is_stopping and self._loop is not None:
            self._connecting = self._loop.create_task(self._connect())

    def _take(self, _link: Link, message: list[Any]) -> None:
        kind, *rest = message
        if kind == Kind.ANSWER:
            number, code, remark, fields, body = rest
            asked = self._asked.get(number)
            if asked is not None and not asked[0].done():
                asked[0].set_result(Response(code, remark, fields, body))
        elif kind == Kind.PUSH:
            connection = self._connections.get(rest[0])
            if connection is not None:
                connection.push(rest[1])
        elif isinstance(self._clients, CopiedRegistry):
            if kind == Kind.GROUP:
                self._clients.put(*rest)
            elif kind == Kind.GONE:
                self._clients.drop(rest[0])
