"""The clients of RocketMQ 5 by their ids: the settings that each has sent, and the connection that stands for it.

A client is known from its settings until it says that it ends, or is not heard of for as long as members of groups are
not. It joins its group as a client of the broker's port does, by heartbeats, which worker 0 gets: so tools see it, and
the offsets that it commits are a member's.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from broker.grpc.calls import Call, CallConnection
from broker.grpc.messages.definition_pb2 import ClientType, Code, FilterType, Settings
from broker.grpc.statuses import CallRefused
from broker.service.consumers.client_registry import EXPIRY_SECONDS
from broker.service.consumers.report_limits import LONGEST_CLIENT_ID
from broker.service.dispatcher import ClientConnection
from broker.service.registry_budget import Room, size_of
from protocol.bodies import ConsumerData, HeartbeatData, SubscriptionData, encode_json
from protocol.codes import RequestCode

CLIENT_BYTES: Final = 2048
"""Bytes that a client is counted with, besides its settings."""

Forget = Callable[[ClientConnection], None]
"""Called with the connection of a client that is gone."""


@dataclass(slots=True, eq=False)
class KnownClient:
    """A client; `subscriptions` are what its settings say, `size` is what it is counted with."""

    client_id: str
    connection: CallConnection
    settings: Settings
    subscriptions: list[SubscriptionData]
    size: int
    heard_seconds: float

    @property
    def is_consumer(self) -> bool:
        """Whether it consumes."""
        return self.settings.HasField("subscription")


def client_id_of(call: Call) -> str:
    """The id of the client of a call. Raises `CallRefused` as the official proxy."""
    client_id = call.metadata.get("x-mq-client-id", "")
    if not client_id.strip():
        raise CallRefused(Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
    if len(client_id) > LONGEST_CLIENT_ID:
        raise CallRefused(Code.BAD_REQUEST, f"the client id is longer than {LONGEST_CLIENT_ID} characters")
    return client_id


class KnownClients:
    """All known clients; all methods are the event loop's."""

    def __init__(self, room: Room, forget: Sequence[Forget]) -> None:
        """Count clients in `room`; each of `forget` is called for one that is gone."""
        self._room, self._forget = room, forget
        # In the order in which they were heard of.
        self._clients: dict[tuple[str, str], KnownClient] = {}

    def __len__(self) -> int:
        return len(self._clients)

    def connection_of(self, call: Call) -> CallConnection | None:
        """The connection of the client of a call, None for one that has sent no settings. Raises `CallRefused`."""
        client = self._clients.get(_key_of(call))
        return None if client is None else client.connection

    def require(self, call: Call) -> KnownClient:
        """The client of a call, which is heard of now. Raises `CallRefused`."""
        key = _key_of(call)
        client = self._clients.get(key)
        if client is None:
            raise CallRefused(Code.UNRECOGNIZED_CLIENT_TYPE, "cannot find client settings for this client")
        self._note(key, client)
        return client

    def take(self, call: Call, settings: Settings) -> KnownClient:
        """Know a client by its settings. Raises `BudgetSpent` and `CallRefused`."""
        self._drop_old()
        key = _key_of(call)
        before = self._clients.get(key)
        size = CLIENT_BYTES + size_of(*key) + 4 * settings.ByteSize()
        if not self._room.take(size - (0 if before is None else before.size)):
            raise self._room.spent
        connection = (
            CallConnection(call.stores.connection.local_address, call.peer) if before is None else before.connection
        )
        client = KnownClient(key[1], connection, settings, _subscriptions_of(settings), size, 0.0)
        self._note(key, client)
        return client

    def drop(self, call: Call) -> KnownClient:
        """Forget the client of a call. Raises `CallRefused` for one that is not known."""
        client = self.require(call)
        self._drop(_key_of(call))
        return client

    def _note(self, key: tuple[str, str], client: KnownClient) -> None:
        client.heard_seconds = time.monotonic()
        self._clients.pop(key, None)
        self._clients[key] = client

    def _drop_old(self) -> None:
        oldest = time.monotonic() - EXPIRY_SECONDS
        while self._clients and next(iter(self._clients.values())).heard_seconds < oldest:
            self._drop(next(iter(self._clients)))

    def _drop(self, key: tuple[str, str]) -> None:
        client = self._clients.pop(key)
        self._room.give_back(client.size)
        client.connection.is_open = False
        for forget in self._forget:
            forget(client.connection)


async def join(call: Call, client: KnownClient, group: str) -> None:
    """Make a consumer a member of a group, or keep it one, at the brokers of all stores. Raises `CallRefused`."""
    is_pushed = client.settings.client_type == ClientType.PUSH_CONSUMER
    kind = "CONSUME_PASSIVELY" if is_pushed else "CONSUME_ACTIVELY"
    consumer = ConsumerData(group, consume_type=kind, subscription_data_set=client.subscriptions)
    body = encode_json(HeartbeatData(client.client_id, consumer_data_set=[consumer]))
    for service in call.stores.services:
        await call.ask(service, RequestCode.HEART_BEAT, {}, body, connection=client.connection)


def _key_of(call: Call) -> tuple[str, str]:
    """Ids are the clients' own: one account's does not stand for another's."""
    return "" if call.account is None else call.account.access_key, client_id_of(call)


def _subscriptions_of(settings: Settings) -> list[SubscriptionData]:
    """The subscriptions in settings, as a heartbeat has them."""
    return [
        SubscriptionData(
            entry.topic.name,
            entry.expression.expression or "*",
            expression_type="SQL92" if entry.expression.type == FilterType.SQL else "TAG",
        )
        for entry in settings.subscription.subscriptions
    ]
