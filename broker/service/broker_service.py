"""What every processor is given: the store, and who this server says it is."""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from broker.cluster.served_brokers import ServedBrokers
from broker.config import ServeOptions
from broker.endpoint import Endpoint
from broker.lane.found_pulls import FoundPull
from broker.service.consumers.client_calls import ClientCalls
from broker.service.consumers.client_registry import ClientRegistry
from broker.service.consumers.consumer_offsets import ConsumerOffsets
from broker.service.consumers.group_notices import GroupNotices
from broker.service.consumers.kept_filters import KeptFilters
from broker.service.consumers.member_commits import MemberCommits
from broker.service.consumers.offset_keeper import OffsetKeeper
from broker.service.consumers.pulled_offsets import PulledOffsets
from broker.service.consumers.queue_locks import QueueLocks
from broker.service.consumers.subscriptions import Subscriptions
from broker.service.dispatcher import ClientConnection
from broker.service.long_polling import LongPolling
from broker.service.registry_budget import Budget

if TYPE_CHECKING:
    from broker.metrics.metrics_meter import Meter
    from storage.store.message_store import MessageStore


def _now_timestamp() -> int:
    return time.time_ns() // 1_000_000


@dataclass(slots=True)
class BrokerService:
    """One served store under one broker name; processors take this alone.

    `advertise` is the address that routes name, None for the local address of the asking connection, never one read
    from the store; `advertise_ip` is the same with its host name resolved. `started_timestamp` in milliseconds.
    `clients`, `offsets`, `pulled`, `polls`, `subscriptions` and `locks` are what the families share: who is connected,
    how far consumer groups have come, and how far ahead of that they have pulled, which pulls wait, what they choose
    by, and which member has which queue to itself. `budget` bounds what all of them remember of what clients told.
    `commits` takes offsets from clients for `offsets`.
    `notices` tell members of changes in their group, `calls` ask them what only they know. `keeper` writes offsets
    down, None keeps them in memory alone. `found_pulls` is where pulls that found messages are noted, on any thread,
    None while nobody takes notice.
    `meter` counts for this process, None where nothing is counted. `brokers` are all that this process stands for.
    """

    store: "MessageStore"
    broker_name: str
    cluster: str
    options: ServeOptions
    advertise: Endpoint | None = None
    advertise_ip: Endpoint | None = None
    started_timestamp: int = field(default_factory=_now_timestamp)
    clients: ClientRegistry = field(default_factory=ClientRegistry)
    locks: QueueLocks = field(default_factory=QueueLocks)
    pulled: PulledOffsets = field(default_factory=PulledOffsets)
    calls: ClientCalls = field(default_factory=ClientCalls)
    offsets: ConsumerOffsets = field(init=False)
    commits: MemberCommits = field(init=False)
    polls: LongPolling = field(init=False)
    subscriptions: Subscriptions = field(init=False)
    budget: Budget = field(init=False)
    notices: GroupNotices = field(init=False)
    keeper: OffsetKeeper | None = None
    found_pulls: deque[FoundPull] | None = None
    meter: "Meter | None" = None
    brokers: ServedBrokers = field(init=False)

    def __post_init__(self) -> None:
        """Lay the offsets of live groups over those of the store, and tell members of changes in their group.

        Until told otherwise the service is alone.
        """
        self.brokers = ServedBrokers([self])
        self.budget = budget = Budget(self.options.limits.registry_bytes)
        self.offsets = ConsumerOffsets(self.store, gives_way=self.options.register.told_id > 0)
        self.commits = MemberCommits(self.clients, lambda: self.offsets)
        self.polls = LongPolling(self.store)
        filters = KeptFilters(budget.room("filters", 2))
        self.subscriptions = Subscriptions(
            self.store, self.clients.filters_of, filters, supports_retry=self.options.filter_support_retry
        )
        # No part is more than half, so that no kind of flood leaves the others without any.
        self.clients.room = budget.room("groups and subscriptions", 2)
        self.offsets.room = budget.room("committed offsets", 2)
        self.commits.room = budget.room("offsets before a first heartbeat", 8)
        self.offsets.rates.room = budget.room("rates", 8)
        self.locks.room = budget.room("locks", 4)
        self.pulled.room = budget.room("pulled queues", 8)
        self.notices = GroupNotices(self.store)
        self.clients.on_change = self.notices.tell

    @classmethod
    def of(cls, store: "MessageStore", options: ServeOptions, clients: ClientRegistry | None = None) -> "BrokerService":
        """Name the service by the options, else by what the store's system topics and properties tell.

        `clients` is where groups are known, when another process keeps them.

        Raises `ConfigError` when our address shall go into records and its host name has no IP.
        """
        return cls(
            store=store,
            broker_name=options.broker_name or store.identity.broker_name,
            cluster=options.cluster or store.identity.cluster,
            options=options,
            clients=ClientRegistry() if clients is None else clients,
            advertise=options.advertise,
            advertise_ip=options.advertise.resolved() if options.advertise and options.rewrite_store_host else None,
        )

    def connection_lost(self, connection: ClientConnection) -> None:
        """Forget the client of a connection that is gone; on the event loop."""
        self.clients.connection_lost(connection)
        self.commits.connection_lost(connection)
        self.calls.connection_lost(connection)

    def advertised_address(self, connection: ClientConnection) -> str:
        """The `host:port` under which the client of `connection` can reach this server."""
        return str(self.advertise or connection.local_address)


def build_processors(service: BrokerService) -> list[object]:
    """One processor of each family in `broker.service.request_families`, all answering for `service`."""
    # Imported here: each family imports this module for BrokerService.
    from broker.service.request_families import PROCESSORS

    return [processor(service) for processor in PROCESSORS]
