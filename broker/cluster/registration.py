"""Registers this server with real name servers, again and again, and removes it from their lists at the end.

As a *replica* it joins the broker whose store it serves, under a high id, so that consumers find it when the master is
gone; as a *broker* it stands for itself, with the store's topics to be read. What a name server does then is described
in remoting-protocol §5.3, whose points the code names. docs/serve.md describes what clients do.
"""

import asyncio
import contextlib
import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from broker.cluster.client import Client, ClientError
from broker.config import RegisterOptions
from broker.endpoint import Endpoint
from broker.service.broker_service import BrokerService
from protocol.bodies import BrokerData, ClusterInfo, decode_json, encode_json
from protocol.codes import RequestCode
from protocol.errors import RocketLensError
from protocol.system_topics import PROXY_TOPIC
from storage.layout.store_config import DataVersion, TopicConfig
from storage.store.topic_catalog import READ_ONLY_PERM, find_topic, own_topics, topic_names

logger = logging.getLogger(__name__)

REPEAT_SECONDS = 30.0
"""Between two registrations, as brokers do it; a name server forgets a broker that is silent four times as long."""

RETRY_SECONDS = 2.0
"""After one that failed, or when the connection was lost: with it a name server forgets a broker at once."""

EXPIRY_MILLISECONDS = 120_000
FAREWELL_SECONDS = 1.0
UNREGISTERED_TOPICS = frozenset({"TBW102"})
"""Producers make any topic on a broker that has this one."""


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """The entry of a registration: an address under a broker's name and id."""

    cluster: str
    broker_name: str
    broker_id: int
    address: Endpoint

    def fields(self) -> dict[str, str]:
        """The header fields of the entry."""
        return {
            "brokerName": self.broker_name,
            "brokerAddr": str(self.address),
            "clusterName": self.cluster,
            "brokerId": str(self.broker_id),
        }


class Registration:
    """Keeps one entry with all name servers that the options name; the event loop's."""

    def __init__(self, service: BrokerService, options: RegisterOptions, address: Endpoint) -> None:
        """``address`` is where clients reach this server."""
        self._service, self._options = service, options
        self.entry = RegisteredBroker(service.cluster, service.broker_name, options.registered_id, address)
        self._client = Client(connect_timeout_seconds=3.0, timeout_seconds=3.0)
        self._tasks: list[asyncio.Task[None]] = []
        self._outcomes: dict[Endpoint, str] = {}

    def start(self) -> None:
        """Register from now on."""
        self._tasks = [asyncio.create_task(self._keep(each)) for each in self._options.name_servers]

    async def stop(self) -> None:
        """Take the entry off all lists, as far as name servers answer within a second."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        farewells = (self._take_off(each) for each in self._options.name_servers if self._outcomes.get(each) == "")
        await asyncio.gather(*farewells)
        await self._client.__aexit__(None, None, None)

    @property
    def count(self) -> int:
        """How many name servers list the entry, if known."""
        return list(self._outcomes.values()).count("")

    async def _keep(self, name_server: Endpoint) -> None:
        """Register with one name server for ever; a problem is logged once."""
        while True:
            try:
                await self._register(name_server)
            except RocketLensError as error:
                self._report(name_server, str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._report(name_server, "")
            if await self._client.wait_lost(name_server, REPEAT_SECONDS):
                self._report(name_server, f"the connection to name server {name_server} was lost")
                await asyncio.sleep(RETRY_SECONDS)

    async def _register(self, name_server: Endpoint) -> None:
        known = await self._known(name_server)
        taken = known.broker_addrs.get(str(self.entry.broker_id)) if known else None
        if taken is not None and taken != str(self.entry.address):
            raise ClientError(
                f"name server {name_server} has {taken} as broker {self.entry.broker_name} "
                f"with id {self.entry.broker_id} already"
            )
        if known is not None and taken is not None and self._may_stand_in(known):
            # To register again, when the master has gone since we asked, could cost the broker its routes (point 3);
            # this request too shows that we are alive.
            version = encode_json(DataVersion())
            await self._client.call(name_server, RequestCode.QUERY_DATA_VERSION, self.entry.fields(), version)
            return
        # With many topics the event loop would stand still meanwhile.
        body = await asyncio.to_thread(self._encoded_body)
        fields = self.entry.fields() | {
            "haServerAddr": str(Endpoint(self.entry.address.host, self.entry.address.port + 1)),
            "heartbeatTimeoutMillis": str(EXPIRY_MILLISECONDS),
            "compressed": "false",
            "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF),
        }
        await self._client.call(name_server, RequestCode.REGISTER_BROKER, fields | _shared(known), body)

    def _may_stand_in(self, known: BrokerData) -> bool:
        """Whether a name server lets us stand in for the broker's master while it is gone."""
        return self._options.is_replica and known.enable_acting_master

    async def _known(self, name_server: Endpoint) -> BrokerData | None:
        """What the name server knows of the broker name."""
        answer = await self._client.call(name_server, RequestCode.GET_BROKER_CLUSTER_INFO, {})
        try:
            table = decode_json(answer.body, ClusterInfo).broker_addr_table
        except RocketLensError as error:
            raise ClientError(f"name server {name_server} did not answer with a list of brokers: {error}") from error
        return table.get(self.entry.broker_name)

    def _encoded_body(self) -> bytes:
        return encode_json(self._body())

    def _body(self) -> Mapping[str, object]:
        """The topics: none of a replica, which is always accepted and changes nothing (points 2 and 3)."""
        config = self._service.store.config
        topics = {} if self._options.is_replica else self._topics()
        return {
            "filterServerList": [],
            "topicConfigSerializeWrapper": {
                "dataVersion": msgspec.to_builtins(config.topics_version),
                "mappingDataVersion": msgspec.to_builtins(type(config.topics_version)()),
                "topicConfigTable": topics,
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {},
            },
        }

    def _topics(self) -> dict[str, object]:
        """The topics that can be read, that every broker has, or proxies need: one topic alone is refused (point 2)."""
        store, cluster = self._service.store, self.entry.cluster
        own = own_topics(self.entry.broker_name, cluster)
        names = {*own, PROXY_TOPIC, *topic_names(store)} - UNREGISTERED_TOPICS
        topics = {name: find_topic(store, name) or TopicConfig(name, 1, 1) for name in sorted(names)}
        return {name: {**msgspec.to_builtins(config), "perm": READ_ONLY_PERM} for name, config in topics.items()}

    async def _take_off(self, name_server: Endpoint) -> None:
        with contextlib.suppress(RocketLensError, TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._client.call(name_server, RequestCode.UNREGISTER_BROKER, self.entry.fields())

    def _report(self, name_server: Endpoint, problem: str) -> None:
        """Log the outcome of a registration, if it differs from the last one."""
        if self._outcomes.get(name_server) == problem:
            return
        self._outcomes[name_server] = problem
        if problem:
            logger.warning("not registered: %s", problem)
        else:
            logger.info(
                "registered with name server %s as broker %s with id %d at %s",
                *(name_server, self.entry.broker_name, self.entry.broker_id, self.entry.address),
            )


def _shared(known: BrokerData | None) -> dict[str, str]:
    """What each registration sets for all replicas of a broker: as it is (point 1).

    An `enableActingMaster` that is false is left out, which means the same. With it a name server takes the topics of
    the smallest id for the broker's, and one with `deleteTopicWithBrokerRegistration` would forget all others when the
    master is gone.
    """
    if known is None:
        return {}
    acting = {"enableActingMaster": "true"} if known.enable_acting_master else {}
    return acting | ({"__ZONE_NAME": known.zone_name} if isinstance(known.zone_name, str) else {})
