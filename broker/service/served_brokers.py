"""The brokers that one process stands for, as its name server tells of them: mostly one, a few with several stores.

Each has its own ports; the name server on all of them is the same. Clients are told the address of another broker as
they have reached this one: the same host, and the port that belongs to it.
"""

from collections.abc import Iterator, Sequence

from broker.config import STORE_PORT_DISTANCE
from broker.service.broker_service import BrokerService
from broker.service.dispatcher import ClientConnection
from protocol.errors import StoreError
from storage.files.waiting import Lookup
from storage.layout.store_config import TopicConfig
from storage.store.topic_catalog import find_topic


class ServedBrokers:
    """All brokers, in the order of the command line; `ports` those of each, in the order of its addresses."""

    def __init__(self, services: Sequence[BrokerService], ports: Sequence[Sequence[int]] = ()) -> None:
        self.services = tuple(services)
        self._ports = ports

    def listed(self) -> Lookup[None]:
        """Find out of all stores what asking for their topics would wait for."""
        for service in self.services:
            yield from service.store.queues.listed()

    def with_topic(self, topic: str) -> Iterator[tuple[BrokerService, TopicConfig]]:
        """The brokers that have a topic, each with what is known of it there.

        What the configuration says is enough where the queues cannot be listed: who asks one of them is told. Raises
        StoreError where one broker does not know and no broker has the topic.
        """
        unknown: StoreError | None = None
        is_found = False
        for service in self.services:
            try:
                config = find_topic(service.store, topic)
            except StoreError as error:
                unknown, config = error, service.store.config.topics.get(topic)
            if config is not None:
                is_found = True
                yield service, config
        if unknown is not None and not is_found:
            raise unknown

    def address_of(self, service: BrokerService, asked: BrokerService, connection: ClientConnection) -> str:
        """Where a client that has asked one of the brokers reaches another one."""
        if service is asked or service.advertise is not None:
            return service.advertised_address(connection)
        host_and_port = connection.local_address
        number, own = self.services.index(service), self.services.index(asked)
        port = host_and_port.port + (number - own) * STORE_PORT_DISTANCE
        if self._ports and host_and_port.port in self._ports[own]:
            port = self._ports[number][self._ports[own].index(host_and_port.port)]
        return str(host_and_port._replace(port=port))
