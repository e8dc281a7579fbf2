"""Who is connected: the members of consumer and producer groups, as their heartbeats tell.

Kept in memory alone. A member is one connection of one group; it goes when its client takes leave, when its connection
is gone, and when no heartbeat came for two minutes (remoting-protocol §1.12, §3.2). Go clients never take leave.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from broker.consumers.subscriptions import GroupFilter, told_filters
from broker.dispatcher import ClientConnection
from protocol.bodies import Connection, ConsumerData, HeartbeatData, SubscriptionData

EXPIRY_SECONDS = 120.0
"""Silence after which a member counts as gone (channelExpiredTimeout)."""

SWEEP_SECONDS = 10.0
"""How often the registry looks for members that fell silent."""

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
    """What the members of one consumer group say about it; the latest heartbeat wins.

    `filters` are by topic the expressions among its subscriptions, and may be behind them or ahead (filter.md §3.4).
    """

    name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    filters: dict[str, GroupFilter] = field(default_factory=dict)
    members: dict[int, Member] = field(default_factory=dict)

    def update(self, data: ConsumerData) -> bool:
        """Take over what one member's heartbeat says; only a newer subscription to a topic replaces one.

        Whether the group now subscribes to other topics than before.
        """
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        kept = {}
        for subscription in data.subscription_data_set:
            known = self.subscriptions.get(subscription.topic)
            is_old = known is not None and known.sub_version >= subscription.sub_version
            kept[subscription.topic] = known if is_old and known is not None else subscription
        changed = kept.keys() != self.subscriptions.keys()
        self.subscriptions = kept
        self.filters = told_filters(self.filters, data.subscription_data_set)
        return changed


class ClientRegistry:
    """All groups with a live member. Safe to use from several threads.

    `on_change` is called with each consumer group that got other members or subscribes to other topics, never under the
    registry's lock, and on whatever thread found out; `on_heard` with each consumer group of a heartbeat.
    """

    def __init__(self, clock_seconds: Callable[[], float] = time.monotonic) -> None:
        self._clock_seconds = clock_seconds
        self._lock = threading.Lock()
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[int, Member]] = {}
        self._groups_by_connection: dict[int, set[str]] = {}
        self._swept_seconds = clock_seconds()
        self.changes = 0
        """Counts up, at least, whenever a consumer group got other members or subscribes otherwise."""
        self.on_change: Callable[[ConsumerGroup], None] = _tell_nobody
        self.on_heard: Callable[[ConsumerGroup], None] | None = None

    def heartbeat(self, connection: ClientConnection, data: HeartbeatData, language: str, version: int) -> bool:
        """Note what the client of `connection` says of itself; False when there are too many groups to keep."""
        now_seconds = self._clock_seconds()
        if now_seconds - self._swept_seconds >= SWEEP_SECONDS:
            self.sweep()
        member = Member(connection, data.client_id, language, version, time.time_ns() // 1_000_000, now_seconds)
        with self._lock:
            new = len(data.consumer_data_set) + len(data.producer_data_set)
            if len(self._consumers) + len(self._producers) + new > GROUPS_LIMIT:
                return False
            changed = [
                group
                for consumer in data.consumer_data_set
                if (group := self._join(consumer, member, data.without_sub)) is not None
            ]
            for producer in data.producer_data_set:
                self._producers.setdefault(producer.group_name, {})[id(connection)] = member
        if self.on_heard is not None:
            for consumer in data.consumer_data_set:
                self.on_heard(self._consumers[consumer.group_name])
        self._tell(changed)
        return True

    def unregister(self, connection: ClientConnection, consumer_group: str | None, producer_group: str | None) -> None:
        """Forget the client of `connection` as a member of these groups."""
        changed = []
        with self._lock:
            group = None if consumer_group is None else self._consumers.get(consumer_group)
            if group is not None and group.members.pop(id(connection), None) is not None:
                changed.append(group)
            if producer_group in self._producers:
                self._producers[producer_group].pop(id(connection), None)
        self._tell(changed)

    def connection_lost(self, connection: ClientConnection) -> None:
        """Forget the client of a connection that is gone, in whatever groups it was."""
        key = id(connection)
        with self._lock:
            names = self._groups_by_connection.pop(key, set())
            groups = [group for name in names if (group := self._consumers.get(name)) is not None]
            changed = [group for group in groups if group.members.pop(key, None) is not None]
        self._tell(changed)

    def was_member(self, connection: ClientConnection, consumer_group: str) -> bool:
        """Whether the client of `connection` is in a consumer group, or was until it took leave."""
        with self._lock:
            return consumer_group in self._groups_by_connection.get(id(connection), ())

    def sweep(self) -> None:
        """Drop all members that are gone and all groups without a member."""
        self._swept_seconds = self._clock_seconds()
        with self._lock:
            groups = list(self._consumers.values())
            changed = [group for group in groups if self._drop_gone(group.members)]
            for name in [name for name, group in self._consumers.items() if not group.members]:
                del self._consumers[name]
            for name, members in list(self._producers.items()):
                self._drop_gone(members)
                if not members:
                    del self._producers[name]
        self._tell(changed)

    @property
    def has_consumers(self) -> bool:
        """Whether any consumer group has a member."""
        with self._lock:
            return any(group.members for group in self._consumers.values())

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """The group with its live members, None when it has none."""
        with self._lock:
            group = self._consumers.get(name)
            if group is None:
                return None
            changed = self._drop_gone(group.members)
            if not group.members:
                del self._consumers[name]
        if changed:
            self._tell([group])
        return group if group.members else None

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

    def filters_of(self, group: str) -> Mapping[str, GroupFilter]:
        """The expressions by which the live members of a group choose, by topic."""
        known = self.consumer_group(group)
        return {} if known is None else known.filters

    def groups_subscribed_to(self, topic: str) -> Iterable[str]:
        """The consumer groups with a live member that subscribe to a topic."""
        with self._lock:
            names = list(self._consumers)
        return [name for name in names if self.subscription(name, topic) is not None]

    def _join(self, data: ConsumerData, member: Member, without_sub: bool) -> ConsumerGroup | None:
        """Make a client a member of a group, or keep it one; the group if that changed anything the others act upon."""
        group = self._consumers.get(data.group_name)
        if group is None or not group.members:
            group = self._consumers[data.group_name] = ConsumerGroup(data.group_name)
        before = group.message_model, group.subscriptions, group.filters
        is_changed = not without_sub and group.update(data)
        if before != (group.message_model, group.subscriptions, group.filters):
            self.changes += 1
        is_new = id(member.connection) not in group.members
        group.members[id(member.connection)] = member
        self._groups_by_connection.setdefault(id(member.connection), set()).add(data.group_name)
        return group if is_new or is_changed else None

    def _tell(self, changed: Iterable[ConsumerGroup]) -> None:
        for group in changed:
            self.changes += 1
            self.on_change(group)

    def _drop_gone(self, members: dict[int, Member]) -> bool:
        """Drop members that are gone; whether there were any."""
        oldest = self._clock_seconds() - EXPIRY_SECONDS
        gone = [key for key, member in members.items() if member.seen_seconds < oldest or not member.connection.is_open]
        for key in gone:
            del members[key]
        return bool(gone)


def _tell_nobody(_group: ConsumerGroup) -> None:
    """Where nobody wants to know of changes."""
