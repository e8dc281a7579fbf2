"""All that one server remembers of what clients reported, each part with its room in one budget."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from broker.config import ServeOptions
from broker.service.consumers.client_registry import ClientRegistry
from broker.service.consumers.consume_rates import ConsumeRates
from broker.service.consumers.consumer_offsets import ConsumerOffsets
from broker.service.consumers.kept_filters import KeptFilters
from broker.service.consumers.member_commits import MemberCommits
from broker.service.consumers.pulled_offsets import PulledOffsets
from broker.service.consumers.queue_locks import QueueLocks
from broker.service.registry_budget import RegistryBudget, Room
from storage.store.message_store import MessageStore

MakeClients: TypeAlias = Callable[[KeptFilters, Room], ClientRegistry]
"""Makes the registry of groups with the filters that its members choose by, and the room for it."""


@dataclass(frozen=True, slots=True)
class Registries:
    """What the families share of what clients reported.

    `clients` are who is connected, `filters` what they choose by, `offsets` how far consumer groups have come, `pulled`
    how far ahead of that they have pulled, and `locks` which member has which queue to itself. `commits` takes offsets
    from clients for `offsets`. `budget` bounds what all of them remember.
    """

    budget: RegistryBudget
    filters: KeptFilters
    clients: ClientRegistry
    offsets: ConsumerOffsets
    commits: MemberCommits
    pulled: PulledOffsets
    locks: QueueLocks

    @classmethod
    def of(cls, store: MessageStore, options: ServeOptions, make_clients: MakeClients | None = None) -> "Registries":
        """Lay the offsets of live groups over those of the store; everything else begins empty."""
        budget = RegistryBudget(options.limits.registry_bytes)
        filters = KeptFilters(budget.room("filters", 2))
        # No part is more than half, so that no kind of flood leaves the others without any.
        groups_room = budget.room("groups and subscriptions", 2)
        clients = ClientRegistry(room=groups_room) if make_clients is None else make_clients(filters, groups_room)
        offsets = ConsumerOffsets(
            store,
            gives_way=options.register.registered_id > 0,
            room=budget.room("committed offsets", 2),
            rates=ConsumeRates(room=budget.room("rates", 8)),
        )
        commits_room = budget.room("offsets before a first heartbeat", 8)
        return cls(
            budget,
            filters,
            clients,
            offsets,
            MemberCommits(clients, lambda: offsets, time.monotonic, commits_room),
            PulledOffsets(room=budget.room("pulled queues", 8)),
            QueueLocks(room=budget.room("locks", 4)),
        )
