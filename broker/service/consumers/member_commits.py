"""Accept committed offsets from members of a group and from proxies; those of a client that has not joined are held.

A Java client commits every five seconds and sends heartbeats every thirty: after a restart of this server its first
commits come before its first heartbeat. They are held, and committed when the client joins the group on the same
connection within `HOLD_SECONDS`. If it does not join they are dropped: otherwise any client could move the offset of a
group, and its messages would be skipped or delivered again.

A proxy passes the commits of its clients on over several connections of its own, and keeps their heartbeats to itself.
All connections from its address are believed; it is known there by the group in which proxies hear of each other.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from broker.service.consumers.client_registry import ClientRegistry
from broker.service.consumers.consumer_offsets import ConsumerOffsets
from broker.service.consumers.report_limits import LONGEST_GROUP
from broker.service.dispatcher import ClientConnection
from broker.service.registry_budget import Room, room_apart, size_of
from protocol.system_topics import PROXY_TOPIC

HOLD_SECONDS = 60.0
"""How long an offset is held: twice the time between two heartbeats of a client."""

PROXY_GROUP = f"CID_{PROXY_TOPIC}"
"""The group in which each proxy consumes the topic of proxies."""

HELD_COST = 256
"""Bytes that a held offset is counted with, besides its names."""


class QueueOfGroup(NamedTuple):
    """The group and queue of an offset."""

    group: str
    topic: str
    queue_id: int


class MemberCommits:
    """Commits offsets of members, and holds others by connection. Safe to use from several threads.

    `offsets` returns the object that keeps committed offsets at the moment.
    """

    def __init__(
        self,
        clients: ClientRegistry,
        offsets: Callable[[], ConsumerOffsets],
        clock_seconds: Callable[[], float] = time.monotonic,
        room: Room | None = None,
    ) -> None:
        self._clients, self._offsets, self._clock_seconds = clients, offsets, clock_seconds
        self.room = room_apart("offsets before a first heartbeat") if room is None else room
        """The limit of held offsets, in bytes; an offset beyond it is dropped, and its client commits again later."""
        self._lock = threading.Lock()
        self._held: dict[ClientConnection, dict[QueueOfGroup, tuple[int, float]]] = {}
        self._count = 0

    def commit(self, connection: ClientConnection, group: str, topic: str, queue_id: int, offset: int) -> bool:
        """Commit the offset of a member, hold that of a client that has not joined; the last one for a queue counts.

        What comes through a proxy is a member's. Returns False where the budget refuses it.
        """
        if self._clients.was_member(connection, group) or self._is_of_proxy(connection):
            if self._held:
                self._drop(connection, QueueOfGroup(group, topic, queue_id))
            return self._offsets().commit(group, topic, queue_id, offset)
        if offset < 0 or len(group) > LONGEST_GROUP:
            return True  # a negative offset is ignored, and so is one of a group that no client can join
        return self._hold(connection, QueueOfGroup(group, topic, queue_id), offset)

    def joined(self, connection: ClientConnection, groups: Iterable[str]) -> None:
        """Commit the held offsets of a client for groups that it has joined now; of a proxy, all from its address."""
        names, oldest = set(groups), self._clock_seconds() - HOLD_SECONDS
        with self._lock:
            taken = self._take(connection, lambda place: place.group in names)
            if PROXY_GROUP in names:
                for each in [each for each in self._held if _is_same_host(each, connection)]:
                    taken += self._take(each, lambda _place: True)
        offsets = self._offsets()
        for since, offset, place in sorted(taken):
            if since >= oldest:
                offsets.commit(*place, offset)

    def _is_of_proxy(self, connection: ClientConnection) -> bool:
        return any(_is_same_host(each.connection, connection) for each in self._clients.members_of(PROXY_GROUP))

    def _take(
        self, connection: ClientConnection, is_wanted: Callable[[QueueOfGroup], bool]
    ) -> list[tuple[float, int, QueueOfGroup]]:
        """Remove what is held of a connection for some queues: since when, the offset, the queue."""
        held = self._held.get(connection, {})
        taken = {place: held.pop(place) for place in [*filter(is_wanted, held)]}
        self._count_out(taken)
        if not held:
            self._held.pop(connection, None)
        return [(since, offset, place) for place, (offset, since) in taken.items()]

    def connection_lost(self, connection: ClientConnection) -> None:
        """Drop the held offsets of a client that is gone."""
        with self._lock:
            self._count_out(self._held.pop(connection, ()))

    @property
    def held(self) -> int:
        """The number of held offsets."""
        return self._count

    def _hold(self, connection: ClientConnection, place: QueueOfGroup, offset: int) -> bool:
        now = self._clock_seconds()
        with self._lock:
            if not connection.is_open:
                return True
            if place not in self._held.get(connection, ()):
                if not self.room.fits(_cost(place)):
                    self._drop_old(now - HOLD_SECONDS)
                if not self.room.take(_cost(place)):
                    return False
                self._count += 1
            self._held.setdefault(connection, {})[place] = offset, now
            return True

    def _drop(self, connection: ClientConnection, place: QueueOfGroup) -> None:
        """Drop a held offset when a newer one is committed: otherwise a later heartbeat would set the group back."""
        with self._lock:
            held = self._held.get(connection, {})
            if held.pop(place, None) is not None:
                self._count_out([place])
            if not held:
                self._held.pop(connection, None)

    def _drop_old(self, oldest: float) -> None:
        for connection, held in list(self._held.items()):
            old = [place for place, (_, since) in held.items() if since < oldest]
            for place in old:
                del held[place]
            self._count_out(old)
            if not held:
                del self._held[connection]

    def _count_out(self, places: Collection[QueueOfGroup]) -> None:
        self._count -= len(places)
        self.room.give_back(sum(map(_cost, places)))


def _is_same_host(one: ClientConnection, other: ClientConnection) -> bool:
    return one.peer_address.host == other.peer_address.host


def _cost(place: QueueOfGroup) -> int:
    return HELD_COST + size_of(place.group, place.topic)
