"""The object that every processor is given: the store, the names of this server, and its registries."""

import time
from dataclasses import dataclass, field

from broker.config import ServeOptions
from broker.endpoint import Endpoint
from broker.metrics.metrics_meter import Meter
from broker.service._popped_counts import PoppedCounts
from broker.service.consumers.client_calls import ClientCalls
from broker.service.consumers.client_registry import ClientRegistry
from broker.service.consumers.consumer_offsets import ConsumerOffsets
from broker.service.consumers.group_notices import GroupNotices
from broker.service.consumers.member_commits import MemberCommits
from broker.service.consumers.offset_keeper import OffsetKeeper
from broker.service.consumers.pulled_offsets import PulledOffsets
from broker.service.consumers.queue_locks import QueueLocks
from broker.service.consumers.registries import Registries
from broker.service.consumers.subscriptions import Subscriptions
from broker.service.denials import Denials
from broker.service.dispatcher import ClientConnection
from broker.service.long_polling import LongPolling
from broker.service.registry_budget import RegistryBudget
from protocol.system_topics import RETRY_PREFIX
from storage.life.origins import Origins
from storage.store.message_store import MessageStore


def _now_timestamp() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class BrokerService:
    """One served store under one broker name, with the objects that all families of requests share.

    `advertise` is the address that routes name, None for the local address of the asking connection, never one read
    from the store; `advertise_ip` is that address with its host name resolved. `started_timestamp` is in
    milliseconds.
    `registries` hold what clients reported. `polls` are the pulls that wait, `subscriptions` their filters. `notices`
    notify members of changes in a group; `calls` are the requests that this server sends to members. `keeper` writes
    committed offsets to disk; where it is None they are kept in memory alone. `meter` counts for this process; it is
    None where nothing is counted. `origins` knows where messages were sent to, `popped` what groups popped.
    """

    store: MessageStore
    broker_name: str
    cluster: str
    options: ServeOptions
    registries: Registries
    polls: LongPolling
    subscriptions: Subscriptions
    notices: GroupNotices
    calls: ClientCalls
    advertise: Endpoint | None = None
    advertise_ip: Endpoint | None = None
    keeper: OffsetKeeper | None = None
    meter: Meter | None = None
    started_timestamp: int = field(default_factory=_now_timestamp)
    origins: Origins = field(init=False)
    popped: PoppedCounts = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "origins", Origins(self.store))
        object.__setattr__(self, "popped", PoppedCounts(self.store))

    @classmethod
    def of(
        cls,
        store: MessageStore,
        options: ServeOptions,
        registries: Registries | None = None,
        keeper: OffsetKeeper | None = None,
        meter: Meter | None = None,
    ) -> "BrokerService":
        """Make the service of a store; its names come from the options, else from the store's topics and properties.

        Without `registries` the service gets new ones of its own. Members are notified of changes in their group.

        Raises `ConfigError` when our address is to be written into records and its host name has no IP address.
        """
        if registries is None:
            registries = Registries.of(store, options)
        notices = GroupNotices(store)
        registries.clients.listen(on_change=notices.notify)
        return cls(
            store=store,
            broker_name=options.broker_name or store.identity.broker_name,
            cluster=options.cluster or store.identity.cluster,
            options=options,
            registries=registries,
            polls=LongPolling(store),
            subscriptions=Subscriptions(
                store,
                registries.clients.filters_of,
                registries.filters,
                supports_retry=options.filter_support_retry,
            ),
            notices=notices,
            calls=ClientCalls(),
            advertise=options.advertise,
            advertise_ip=options.advertise.resolved() if options.advertise and options.rewrite_store_host else None,
            keeper=keeper,
            meter=meter,
        )

    @property
    def budget(self) -> RegistryBudget:
        """The limit, in bytes, of all that is remembered of clients."""
        return self.registries.budget

    @property
    def clients(self) -> ClientRegistry:
        """The groups, and their members, that are connected."""
        return self.registries.clients

    @property
    def live_retry_topics(self) -> set[str]:
        """The retry topics of the groups that consume here, which a broker makes when it first hears of a group."""
        return {RETRY_PREFIX + group for group in self.clients.consumer_groups()}

    @property
    def offsets(self) -> ConsumerOffsets:
        """The offsets that consumer groups committed."""
        return self.registries.offsets

    @property
    def commits(self) -> MemberCommits:
        """The entrance for offsets that clients commit."""
        return self.registries.commits

    @property
    def pulled(self) -> PulledOffsets:
        """The offsets up to which groups have pulled."""
        return self.registries.pulled

    @property
    def locks(self) -> QueueLocks:
        """The queues that single members have locked."""
        return self.registries.locks

    @property
    def denials(self) -> Denials:
        """What accounts lacked whose requests were refused."""
        return self.registries.denials

    def connection_lost(self, connection: ClientConnection) -> None:
        """Forget the client of a connection that is gone. Called on the event loop."""
        self.clients.connection_lost(connection)
        self.commits.connection_lost(connection)
        self.calls.connection_lost(connection)

    def advertised_address(self, connection: ClientConnection) -> str:
        """The `host:port` under which the client of `connection` can reach this server."""
        return str(self.advertise or connection.local_address)
