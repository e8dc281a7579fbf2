"""Who is connected: the members of consumer and producer groups, as their heartbeats tell.

Kept in memory alone. A member is one connection of one group; it goes when its client takes leave, when its connection
is gone, and when no heartbeat came for two minutes (remoting-protocol §1.12, §3.2). Go clients never take leave.
"""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from broker.dispatcher import ClientConnection
from protocol.bodies import Connection, ConsumerData, HeartbeatData, SubscriptionData

EXPIRY_SECONDS = 120.0
"""Silence after which a member counts as gone (channelExpiredTimeout)."""

SWEEP_SECONDS = 10.0
"""How often, at most, a heartbeat makes the registry look for members that are gone."""

GROUPS_LIMIT = 100_000
"""Groups of either kind that are kept; heartbeats that would go beyond are not taken in."""


@dataclass(slots=True)
class Member:
    """One connection of a group; `last_update_timestamp` in milliseconds, `seen_seconds` on the monotonic clock."""

    connection: ClientConnection
    client_id: str
    language: str
    version: int
    last_update_timestamp: int
    seen_seconds: float


def as_connection(member: Member) -> Connection:
    """A member in the form that tools read."""
    return Connection(str(member.connection.peer_address), member.client_id, member.language, member.version)


@dataclass(slots=True)
class ConsumerGroup:
    """What the members of one consumer group say about it; the latest heartbeat wins."""

    name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    members: dict[int, Member] = field(default_factory=dict)

    def update(self, data: ConsumerData) -> None:
        """Take over what one member's heartbeat says; an older subscription never replaces a newer one."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        kept = {}
        for subscription in data.subscription_data_set:
            known = self.subscriptions.get(subscription.topic)
            newer = known is not None and known.sub_version > subscription.sub_version
            kept[subscription.topic] = known if newer and known is not None else subscription
        self.subscriptions = kept


class ClientRegistry:
    """All groups with a live member. Safe to use from several threads."""

    def __init__(self, clock_seconds: Callable[[], float] = time.monotonic) -> None:
        self._clock_seconds = clock_seconds
        self._lock = threading.Lock()
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[int, Member]] = {}
        self._swept_seconds = clock_seconds()

    def heartbeat(self, connection: ClientConnection, data: HeartbeatData, language: str, version: int) -> bool:
        """Note what the client of `connection` says of itself; False when there are too many groups to keep."""
        now_seconds = self._clock_seconds()
        member = Member(connection, data.client_id, language, version, time.time_ns() // 1_000_000, now_seconds)
        with self._lock:
            if now_seconds - self._swept_seconds >= SWEEP_SECONDS:
                self._sweep(now_seconds)
            new = len(data.consumer_data_set) + len(data.producer_data_set)
            if len(self._consumers) + len(self._producers) + new > GROUPS_LIMIT:
                return False
            for consumer in data.consumer_data_set:
                group = self._consumers.setdefault(consumer.group_name, ConsumerGroup(consumer.group_name))
                if not data.without_sub:
                    group.update(consumer)
                group.members[id(connection)] = member
            for producer in data.producer_data_set:
                self._producers.setdefault(producer.group_name, {})[id(connection)] = member
        return True

    def unregister(self, connection: ClientConnection, consumer_group: str | None, producer_group: str | None) -> None:
        """Forget the client of `connection` as a member of these groups."""
        with self._lock:
            if consumer_group in self._consumers:
                self._consumers[consumer_group].members.pop(id(connection), None)
            if producer_group in self._producers:
                self._producers[producer_group].pop(id(connection), None)

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """The group with its live members, None when it has none."""
        with self._lock:
            group = self._consumers.get(name)
            if group is None:
                return None
            self._drop_gone(group.members)
            if not group.members:
                del self._consumers[name]
                return None
            return group

    def members_of(self, consumer_group: str) -> tuple[Member, ...]:
        """The live members of a consumer group."""
        group = self.consumer_group(consumer_group)
        with self._lock:
            return () if group is None else tuple(group.members.values())

    def producers(self, name: str) -> tuple[Member, ...]:
        """The live members of a producer group."""
        with self._lock:
            members = self._producers.get(name)
            if members is None:
                return ()
            self._drop_gone(members)
            if not members:
                del self._producers[name]
            return tuple(members.values())

    def producer_groups(self) -> dict[str, tuple[Member, ...]]:
        """All producer groups with their live members."""
        with self._lock:
            names = list(self._producers)
        return {name: members for name in names if (members := self.producers(name))}

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the live members of a group want of a topic, None when they did not say."""
        known = self.consumer_group(group)
        return None if known is None else known.subscriptions.get(topic)

    def groups_subscribed_to(self, topic: str) -> Iterable[str]:
        """The consumer groups with a live member that subscribe to a topic."""
        with self._lock:
            names = list(self._consumers)
        return [name for name in names if self.subscription(name, topic) is not None]

    def _sweep(self, now_seconds: float) -> None:
        """Drop all members that are gone and all groups without a member."""
        self._swept_seconds = now_seconds
        for group in list(self._consumers.values()):
            self._drop_gone(group.members)
            if not group.members:
                del self._consumers[group.name]
        for name, members in list(self._producers.items()):
            self._drop_gone(members)
            if not members:
                del self._producers[name]

    def _drop_gone(self, members: dict[int, Member]) -> None:
        oldest = self._clock_seconds() - EXPIRY_SECONDS
        for key, member in list(members.items()):
            if member.seen_seconds < oldest or not member.connection.is_open:
                del members[key]
