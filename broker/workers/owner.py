"""Worker 0: answers requests about groups, locks and offsets for all workers, and announces groups to them."""

import asyncio
import contextlib
import logging
import socket
import threading
from typing import Any

from broker.endpoint import Endpoint
from broker.service.broker_service import BrokerService
from broker.service.consumers.client_registry import ConsumerGroup
from broker.service.dispatcher import Answer, Dispatcher
from broker.service.pending_reply import Outcome
from broker.workers.link import Link, LinkKind, is_ours, pack
from protocol.bodies import encode_json
from protocol.command import Command, Response, sent_fields_of
from storage.files.waiting import Unfinished

logger = logging.getLogger(__name__)


class RemoteConnection:
    """A client's connection to another worker, as processors see it."""

    def __init__(self, link: Link, number: int, local_address: Endpoint, peer_address: Endpoint) -> None:
        self._link, self._number = link, number
        self.local_address, self.peer_address = local_address, peer_address
        self.is_open = True

    def push(self, frame: bytes) -> None:
        """Have the other worker send its client a frame."""
        if self.is_open:
            self._link.send(LinkKind.PUSH, self._number, frame)


class Owner:
    """The end of all links that listens."""

    def __init__(self, service: BrokerService, dispatcher: Dispatcher, listening: socket.socket) -> None:
        """`dispatcher` checks no signatures: they were checked where the client is connected."""
        self._service, self._listening = service, listening
        self._dispatcher = dispatcher
        self._connections: dict[Link, dict[int, RemoteConnection]] = {}
        self._announced: dict[str, tuple[Any, ...]] = {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Future[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    async def start(self) -> None:
        """Accept links of other workers from now on."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._service.clients.listen(on_change=self._group_changed, on_heard=self._heard)
        self._server = await self._loop.create_unix_server(self._greet, sock=self._listening)

    def stop(self) -> None:
        """Close all links, and accept no more."""
        if self._server is not None:
            self._server.close()
        for link in list(self._connections):
            link.close()
        self._dispatcher.close()

    # ------------------------------------------------------------------ links

    def _greet(self) -> Link:
        link = _OwnersLink(self)
        self._connections[link] = {}
        return link

    def welcome(self, link: Link) -> None:
        """Announce all known groups to a new worker."""
        for message in self._announced.values():
            link.send(*message)

    def lost(self, link: Link) -> None:
        """Forget a worker and all its clients."""
        for connection in self._connections.pop(link, {}).values():
            self._forget(connection)

    def take(self, link: Link, message: list[Any]) -> None:
        """Do what a worker asks for."""
        kind, *rest = message
        if kind == LinkKind.REQUEST:
            try:
                self._answer(link, *rest)
            except Exception as error:
                self._send(link, rest[0], Command(code=0), error)
        elif kind == LinkKind.COMMIT:
            key, local, peer, *commit = rest
            self._service.commits.commit(self._connection_of(link, key, local, peer), *commit)
        elif kind == LinkKind.PULLED:
            self._service.pulled.take(rest[0])
        elif kind == LinkKind.DENIED:
            self._service.denials.take(rest[0])
        elif kind == LinkKind.REPLY:
            self._replied(link, *rest)
        elif kind == LinkKind.LOST:
            connection = self._connections[link].pop(rest[0], None)
            if connection is not None:
                self._forget(connection)

    def _replied(self, link: Link, key: int, remark: str | None, fields: list[Any]) -> None:
        """Hand on what a worker's client answers to a request of ours."""
        connection = self._connections[link].get(key)
        if connection is not None:
            command = as_command(fields)
            command.remark = remark
            self._service.calls.answered(connection, command)

    def _connection_of(self, link: Link, key: int, local: list[Any], peer: list[Any]) -> RemoteConnection:
        """A worker's client, known by a number from its first request on."""
        connection = self._connections[link].get(key)
        if connection is None:
            connection = RemoteConnection(link, key, Endpoint(*local), Endpoint(*peer))
            self._connections[link][key] = connection
        return connection

    def _forget(self, connection: RemoteConnection) -> None:
        connection.is_open = False
        self._service.connection_lost(connection)

    # ------------------------------------------------------------------ requests

    def _answer(self, link: Link, number: int, key: int, local: list[Any], peer: list[Any], fields: list[Any]) -> None:
        """Answer one request of a worker's client."""
        connection = self._connection_of(link, key, local, peer)
        command = as_command(fields)
        answer = self._dispatcher.dispatch(command, connection)
        if isinstance(answer, Unfinished):
            answer = self._resolve(self._dispatcher.finish_in_pool(command, connection, answer))
        if isinstance(answer, Response):
            self._send(link, number, command, answer)
            return
        future = asyncio.ensure_future(answer)
        self._tasks.add(future)
        future.add_done_callback(lambda done: self._answered(link, number, command, done))

    async def _resolve(self, found: "asyncio.Future[Answer]") -> Response:
        answer = await found
        return answer if isinstance(answer, Response) else await answer

    def _answered(self, link: Link, number: int, command: Command, done: "asyncio.Future[Response]") -> None:
        self._tasks.discard(done)
        if not done.cancelled():
            self._send(link, number, command, done.exception() or done.result())

    def _send(self, link: Link, number: int, command: Command, outcome: Outcome) -> None:
        """Answer a request; where that is not possible, say so."""
        answer = outcome if isinstance(outcome, Response) else self._dispatcher.failure(command, outcome)
        try:
            packed = _packed(number, answer)
        except Exception as error:
            packed = _packed(number, self._dispatcher.failure(command, error))
        link.write(packed)

    # ------------------------------------------------------------------ groups

    def _group_changed(self, group: ConsumerGroup) -> None:
        if not group.members and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._announce_gone, group.name)

    def _announce_gone(self, name: str) -> None:
        """Announce that a group has no members, unless it has some again."""
        if name in self._announced and self._service.clients.consumer_group(name) is None:
            del self._announced[name]
            for link in self._connections:
                link.send(LinkKind.GONE, name)

    def _heard(self, group: ConsumerGroup) -> None:
        """Announce a group to the other workers if it has changed; on any thread."""
        subscriptions = encode_json(list(group.subscriptions.values()))
        message = (
            int(LinkKind.GROUP),
            group.name,
            group.consume_type,
            group.message_model,
            group.consume_from_where,
            subscriptions,
        )
        if threading.get_ident() == self._thread:
            self._announce(message)
        elif self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._announce, message)

    def _announce(self, message: tuple[Any, ...]) -> None:
        name = message[1]
        if self._announced.get(name) != message:
            self._announced[name] = message
            for link in self._connections:
                link.send(*message)


class _OwnersLink(Link):
    """A link that another worker opened; one of another user is closed."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(owner.take, owner.lost)
        self._owner = owner

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        connection = transport.get_extra_info("socket")
        if is_ours(connection):
            self._owner.welcome(self)
        else:
            logger.error("a process of another user tried to connect as a worker")
            self.close()


def as_fields(command: Command) -> list[Any]:
    """A command as a list for a message."""
    return [
        command.code,
        command.flag,
        command.opaque,
        command.version,
        command.language,
        sent_fields_of(command),
        command.serialize_type,
        bytes(command.body),
    ]


def as_command(fields: list[Any]) -> Command:
    """The command again."""
    code, flag, opaque, version, language, ext_fields, serialize_type, body = fields
    return Command(
        code=code,
        flag=flag,
        opaque=opaque,
        version=version,
        language=language,
        ext_fields=ext_fields,
        serialize_type=serialize_type,
        body=body,
    )


def _packed(number: int, answer: Response) -> bytes:
    return pack(LinkKind.ANSWER, number, int(answer.code), answer.remark, answer.ext_fields, bytes(answer.body))
