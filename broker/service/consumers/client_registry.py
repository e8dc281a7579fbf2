"""The members of consumer and producer groups, as their heartbeats report them.

They are kept in memory alone. A member is one connection of one group. It is removed when its client unregisters, when
its connection is closed, and when no heartbeat came for two minutes (remoting-protocol §1.12, §3.2). Go clients never
unregister.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from broker.service.consumers.kept_filters import Key, Made
from broker.service.consumers.subscriptions import GroupFilter, reported_filters
from broker.service.dispatcher import ClientConnection
from broker.service.registry_budget import BudgetSpent, Room, room_apart, size_of
from protocol.bodies import ConnectedClient, ConsumerData, HeartbeatData, SubscriptionData

EXPIRY_SECONDS = 120.0
"""Seconds without a heartbeat after which a member counts as gone (channelExpiredTimeout)."""

SWEEP_SECONDS = 10.0
"""Seconds between two searches for members whose heartbeats have stopped."""

SWEPT_AT_ONCE = 4096
"""Groups that one such search looks at; the next search goes on with the others."""

GROUPS_LIMIT = 100_000
"""Most groups of either kind that are kept; a heartbeat that would add more is refused."""

GROUPS_OF_ONE = 4096
"""Consumer groups that one connection may join as long as it is open."""

MANY_MEMBERS = 256
CHECK_SECONDS = 1.0
"""How often so many members of one group are looked at whether they are still there, at most."""

GROUP_BYTES: Final = 1536
MEMBER_BYTES: Final = 1024
SUBSCRIPTION_BYTES: Final = 1024
ENTRY_BYTES: Final = 128
"""Bytes that a group, a member, a subscription and an entry in its lists are counted with, besides their texts."""

CHARACTER_BYTES: Final = 6
"""Bytes that a character of a subscription is counted with: the most that it takes in a report to another worker."""

NOTHING_MADE: Final[Mapping[Key, Made]] = MappingProxyType({})


@dataclass(slots=True)
class Member:
    """One connection of a group.

    `last_update_timestamp` is the time of its last heartbeat in milliseconds, `seen_seconds` that time on the monotonic
    clock.
    """

    connection: ClientConnection
    client_id: str
    language: str
    version: int
    last_update_timestamp: int
    seen_seconds: float


def as_connection(member: Member) -> ConnectedClient:
    """A member in the form that tools read."""
    return ConnectedClient(str(member.connection.peer_address), member.client_id, member.language, member.version)


@dataclass(slots=True)
class ConsumerGroup:
    """One consumer group as its members report it; the latest heartbeat counts.

    `filters` are the expressions among its subscriptions, by topic; they may be older or newer than the subscriptions
    (filters §3.4). `size` is the number of bytes that its subscriptions are counted with. `checked_seconds` is when it
    was last checked that its members are still there, on the monotonic clock.
    """

    name: str
    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    filters: dict[str, GroupFilter] = field(default_factory=dict)
    members: dict[int, Member] = field(default_factory=dict)
    size: int = 0
    checked_seconds: float = 0.0

    def update(self, data: ConsumerData, subscriptions: dict[str, SubscriptionData], made: Mapping[Key, Made]) -> bool:
        """Update the group from one member's heartbeat; `subscriptions` are what `merged` returned for it.

        `made` has the filters of its expressions. Returns whether the group now subscribes to other topics than before.
        """
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        changed = subscriptions.keys() != self.subscriptions.keys()
        self.subscriptions = subscriptions
        self.filters = reported_filters(self.filters, data.subscription_data_set, made)
        return changed

    def merged(self, data: ConsumerData) -> dict[str, SubscriptionData]:
        """Return the group's subscriptions after a member's heartbeat; only newer ones replace those that it has."""
        kept = {}
        for subscription in data.subscription_data_set:
            known = self.subscriptions.get(subscription.topic)
            is_old = known is not None and known.sub_version >= subscription.sub_version
            kept[subscription.topic] = known if is_old and known is not None else subscription
        return kept


def size_of_subscriptions(subscriptions: Iterable[SubscriptionData]) -> int:
    """Return the number of bytes that subscriptions are counted with, their filters left out."""
    size = 0
    for each in subscriptions:
        characters = len(each.topic) + len(each.sub_string) + len(each.filter_class_source or "")
        characters += sum(map(len, each.tags_set))
        size += SUBSCRIPTION_BYTES + CHARACTER_BYTES * characters
        size += ENTRY_BYTES * (len(each.tags_set) + len(each.code_set))
    return size


class ClientRegistry:
    """All groups with a live member. Safe to use from several threads."""

    def __init__(self, clock_seconds: Callable[[], float] = time.monotonic, room: Room | None = None) -> None:
        self._clock_seconds = clock_seconds
        self.room = room_apart("groups and subscriptions") if room is None else room
        """The part of the budget in which groups, members and subscriptions are counted."""
        self._lock = threading.Lock()
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[int, Member]] = {}
        self._groups_by_connection: dict[int, set[str]] = {}
        self._swept_seconds = clock_seconds()
        self._left_to_sweep: list[str] = []
        self.changes = 0
        """Grows at least whenever the members or subscriptions of a consumer group change."""
        self._on_change: list[Callable[[ConsumerGroup], None]] = []
        self._on_heard: list[Callable[[ConsumerGroup], None]] = []

    def listen(
        self,
        on_change: Callable[[ConsumerGroup], None] | None = None,
        on_heard: Callable[[ConsumerGroup], None] | None = None,
    ) -> None:
        """Call `on_change` with each consumer group whose members or subscribed topics change.

        It is called without the registry's lock, on the thread that made the change. `on_heard` is called with each
        consumer group of a heartbeat.
        """
        if on_change is not None:
            self._on_change.append(on_change)
        if on_heard is not None:
            self._on_heard.append(on_heard)

    def __len__(self) -> int:
        """The number of consumer and producer groups."""
        return len(self._consumers) + len(self._producers)

    def heartbeat(
        self,
        connection: ClientConnection,
        data: HeartbeatData,
        language: str,
        version: int,
        made: Mapping[Key, Made] = NOTHING_MADE,
    ) -> bool:
        """Update the registry from a heartbeat of the client of `connection`; False when there are too many groups.

        `made` has the filters of the expressions in the heartbeat. Raises `BudgetSpent` where the budget does not allow
        what is new in it. In both cases the client stays a member of the groups in which it is, and their
        subscriptions do not change.
        """
        now_seconds = self._clock_seconds()
        if now_seconds - self._swept_seconds >= SWEEP_SECONDS:
            self.sweep()
        member = Member(connection, data.client_id, language, version, time.time_ns() // 1_000_000, now_seconds)
        heard: list[ConsumerGroup] = []
        changed: list[ConsumerGroup] = []
        try:
            with self._lock:
                self._renew(data, member)
                if self._is_too_many(data, member):
                    return False
                for consumer in data.consumer_data_set:
                    group, is_changed = self._join(consumer, member, data.without_sub, made)
                    heard.append(group)
                    if is_changed:
                        changed.append(group)
                for producer in data.producer_data_set:
                    self._join_producers(producer.group_name, member)
        finally:
            for on_heard in self._on_heard:
                for group in heard:
                    on_heard(group)
            self._notify(changed)
            if not connection.is_open:
                # The connection was closed while this thread worked.
                self.connection_lost(connection)
        spent = next((each for each in made.values() if isinstance(each, BudgetSpent)), None)
        if spent is not None:
            raise spent
        return True

    def unregister(self, connection: ClientConnection, consumer_group: str | None, producer_group: str | None) -> None:
        """Remove the client of `connection` from these groups."""
        changed = []
        with self._lock:
            group = None if consumer_group is None else self._consumers.get(consumer_group)
            if group is not None and self._leave(group.members, id(connection)):
                changed.append(group)
            if producer_group in self._producers:
                self._leave(self._producers[producer_group], id(connection))
        self._notify(changed)

    def connection_lost(self, connection: ClientConnection) -> None:
        """Remove the client of a connection that is gone from all its groups."""
        key = id(connection)
        with self._lock:
            names = self._groups_by_connection.pop(key, set())
            self.room.give_back(sum(map(_size_of_name, names)))
            groups = [group for name in names if (group := self._consumers.get(name)) is not None]
            changed = [group for group in groups if self._leave(group.members, key)]
        self._notify(changed)

    def was_member(self, connection: ClientConnection, consumer_group: str) -> bool:
        """Whether the client of `connection` is in a consumer group, or was until it unregistered."""
        with self._lock:
            return consumer_group in self._groups_by_connection.get(id(connection), ())

    def sweep(self) -> None:
        """Drop members that are gone and groups without a member; of many groups one call looks at some only."""
        with self._lock:
            if not self._left_to_sweep:
                self._left_to_sweep = [*self._consumers, *(self._producers.keys() - self._consumers.keys())]
            names = self._left_to_sweep[-SWEPT_AT_ONCE:]
            del self._left_to_sweep[-SWEPT_AT_ONCE:]
            if not self._left_to_sweep:
                self._swept_seconds = self._clock_seconds()
            changed = []
            for name in names:
                group = self._consumers.get(name)
                if group is not None and self._drop_gone(group.members):
                    changed.append(group)
                if group is not None and not group.members:
                    self._forget(group)
                members = self._producers.get(name)
                if members is not None:
                    self._drop_gone(members)
                    self._forget_producers_without_member(name)
        self._notify(changed)

    @property
    def has_consumers(self) -> bool:
        """Whether any consumer group has a member."""
        with self._lock:
            return any(group.members for group in self._consumers.values())

    def consumer_groups(self) -> list[str]:
        """The names of the consumer groups with a member."""
        with self._lock:
            return [name for name, group in self._consumers.items() if group.members]

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """The group with its live members, None when it has none."""
        with self._lock:
            group = self._consumers.get(name)
            if group is None:
                return None
            now_seconds = self._clock_seconds()
            if len(group.members) > MANY_MEMBERS and now_seconds - group.checked_seconds < CHECK_SECONDS:
                return group
            group.checked_seconds = now_seconds
            changed = self._drop_gone(group.members)
            if not group.members:
                self._forget(group)
        if changed:
            self._notify([group])
        return group if group.members else None

    def count_of(self, group: str) -> int:
        """The number of clients of the consumer and the producer group of a name, those included that may be gone."""
        with self._lock:
            known = self._consumers.get(group)
            return (0 if known is None else len(known.members)) + len(self._producers.get(group, ()))

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
            self._forget_producers_without_member(name)
            return tuple(members.values())

    def producer_groups(self) -> dict[str, tuple[Member, ...]]:
        """All producer groups with their live members."""
        with self._lock:
            names = list(self._producers)
        return {name: members for name in names if (members := self.producers(name))}

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """The subscription of a group's live members to a topic, None where they reported none."""
        known = self.consumer_group(group)
        return None if known is None else known.subscriptions.get(topic)

    def filters_of(self, group: str) -> Mapping[str, GroupFilter]:
        """The filters of a group with live members, by topic; those by expressions alone."""
        known = self.consumer_group(group)
        return {} if known is None else known.filters

    def groups_subscribed_to(self, topic: str) -> Iterable[str]:
        """The consumer groups with a live member that subscribe to a topic."""
        return [name for name in self.consumer_groups() if self.subscription(name, topic) is not None]

    # ------------------------------------------------------------------ under the lock

    def _renew(self, data: HeartbeatData, member: Member) -> None:
        """Note the time of a heartbeat in those of its groups in which the client is, even if the rest is refused."""
        key = id(member.connection)
        groups = (self._consumers.get(each.group_name) for each in data.consumer_data_set)
        consumers = (group.members for group in groups if group is not None)
        producers = (self._producers.get(each.group_name, {}) for each in data.producer_data_set)
        for members in (*consumers, *producers):
            if key in members:
                members[key] = replace(member, client_id=members[key].client_id)

    def _is_too_many(self, data: HeartbeatData, member: Member) -> bool:
        """Whether a heartbeat would add more groups than are kept, of all clients or of this one."""
        consumers = {each.group_name for each in data.consumer_data_set}
        producers = {each.group_name for each in data.producer_data_set}
        joined = self._groups_by_connection.get(id(member.connection), set())
        new = len(consumers - self._consumers.keys()) + len(producers - self._producers.keys())
        return len(self) + new > max(GROUPS_LIMIT, len(self)) or len(joined | consumers) > GROUPS_OF_ONE

    def _join(
        self, data: ConsumerData, member: Member, without_sub: bool, made: Mapping[Key, Made]
    ) -> tuple[ConsumerGroup, bool]:
        """Make a client a member of a group, or keep it one; return the group and whether `on_change` is to be called.

        Raises `BudgetSpent` where the budget does not allow what is new; nothing is changed then.
        """
        key, name = id(member.connection), data.group_name
        known = self._consumers.get(name)
        group = ConsumerGroup(name) if known is None or not known.members else known
        subscriptions = group.subscriptions if without_sub else group.merged(data)
        size = group.size if subscriptions is group.subscriptions else size_of_subscriptions(subscriptions.values())
        names = self._groups_by_connection.get(key, set())
        self._take(
            (GROUP_BYTES + _size_of_name(name)) * (group is not known)
            + size
            - group.size
            + _size_of(member)
            - _size_of(group.members.get(key))
            + _size_of_name(name) * (name not in names)
        )
        if group is not known:
            if known is not None:
                self._forget(known)
            self._consumers[name] = group
        before = group.message_model, group.subscriptions, group.filters
        group.size = size
        is_changed = not without_sub and group.update(data, subscriptions, made)
        if before != (group.message_model, group.subscriptions, group.filters):
            self.changes += 1
        is_new = key not in group.members
        group.members[key] = member
        names.add(name)
        self._groups_by_connection[key] = names
        return group, is_new or is_changed

    def _join_producers(self, name: str, member: Member) -> None:
        known = self._producers.get(name)
        members = {} if known is None else known
        key = id(member.connection)
        new = (GROUP_BYTES + _size_of_name(name)) * (known is None)
        self._take(new + _size_of(member) - _size_of(members.get(key)))
        members[key] = member
        self._producers[name] = members

    def _take(self, size: int) -> None:
        if not self.room.take(size):
            raise self.room.spent

    def _leave(self, members: dict[int, Member], key: int) -> bool:
        """Drop a member; return whether it was one."""
        member = members.pop(key, None)
        self.room.give_back(_size_of(member))
        return member is not None

    def _forget(self, group: ConsumerGroup) -> None:
        """Drop a group that has no member."""
        del self._consumers[group.name]
        self.room.give_back(GROUP_BYTES + _size_of_name(group.name) + group.size)

    def _forget_producers_without_member(self, name: str) -> None:
        if not self._producers[name]:
            del self._producers[name]
            self.room.give_back(GROUP_BYTES + _size_of_name(name))

    def _drop_gone(self, members: dict[int, Member]) -> bool:
        """Drop members that are gone; return whether there were any."""
        oldest = self._clock_seconds() - EXPIRY_SECONDS
        gone = [key for key, member in members.items() if member.seen_seconds < oldest or not member.connection.is_open]
        for key in gone:
            self._leave(members, key)
        return bool(gone)

    # ------------------------------------------------------------------ not under the lock

    def _notify(self, changed: Iterable[ConsumerGroup]) -> None:
        for group in changed:
            self.changes += 1
            for on_change in self._on_change:
                on_change(group)


def _size_of(member: Member | None) -> int:
    """Return the number of bytes that a member is counted with, 0 for None."""
    return 0 if member is None else MEMBER_BYTES + size_of(member.client_id)


def _size_of_name(name: str) -> int:
    """Return the number of bytes that a name in a set or table is counted with."""
    return ENTRY_BYTES + size_of(name)
