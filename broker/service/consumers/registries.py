"""All registries of what clients reported to one server, each with its part of one budget."""

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
from broker.service.denials import Denials
from broker.service.registry_budget import RegistryBudget, Room
from storage.store.message_store import MessageStore

MakeClients: TypeAlias = Callable[[KeptFilters, Room], ClientRegistry]
"""Makes the registry of groups from the kept filters and its part of the budget."""


@dataclass(frozen=True, slots=True)
class Registries:
    """The registries that all families of requests share.

    `clients` are the groups with their members, `filters` the filters of their subscriptions, `offsets` the committed
    offsets of groups, `pulled` the offsets up to which groups have pulled, and `locks` the queues that members have
    locked. `commits` takes offsets from clients for `offsets`. `budget` limits the memory of all these. What accounts
    lacked is in `denials`.
    """

    budget: RegistryBudget
    filters: KeptFilters
    clients: ClientRegistry
    offsets: ConsumerOffsets
    commits: MemberCommits
    pulled: PulledOffsets
    locks: QueueLocks
    denials: Denials

    @classmethod
    def of(cls, store: MessageStore, options: ServeOptions, make_clients: MakeClients | None = None) -> "Registries":
        """Make the registries of a store: offsets are the store's until groups commit; all others begin empty."""
        budget = RegistryBudget(options.limits.registry_bytes)
        filters = KeptFilters(budget.room("filters", 2))
        # No part is more than half, so that a flood of one kind leaves memory for the others.
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
            Denials(logs=make_clients is None),
        )
