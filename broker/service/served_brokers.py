"""The brokers that one process serves and its name server lists: one for each store, mostly a single one.

Each has its own ports; the name server on all of them is the same. For another broker clients get the host by which
they reached this one, and the port that belongs to the other.
"""

from collections.abc import Iterator, Sequence

from broker.config import STORE_PORT_DISTANCE
from broker.service.broker_service import BrokerService
from broker.service.dispatcher import ClientConnection
from protocol.errors import StoreError
from storage.files.waiting import Lookup
from storage.layout.store_config import TopicConfig
from storage.store.topic_catalog import find_topic, own_topics


class ServedBrokers:
    """All brokers, in the order of the command line; `ports` are the ports of each, in the order of its addresses."""

    def __init__(self, services: Sequence[BrokerService], ports: Sequence[Sequence[int]] = ()) -> None:
        self.services = tuple(services)
        self._ports = ports

    def listed(self) -> Lookup[None]:
        """List the queues of all stores, so that asking for their topics does not wait afterwards."""
        for service in self.services:
            yield from service.store.queues.listed()

    def with_topic(self, topic: str) -> Iterator[tuple[BrokerService, TopicConfig]]:
        """Yield the brokers that have a topic, each with the topic's configuration there.

        A broker has the topics by which it is found, whatever the store knows: it may bear another name than there.
        Where the queues of a store cannot be listed its configuration alone decides; requests for such a queue get the
        error. Raises StoreError if the queues of a store cannot be listed and no broker has the topic.
        """
        unknown: StoreError | None = None
        is_found = False
        for service in self.services:
            try:
                config = find_topic(service.store, topic)
            except StoreError as error:
                unknown, config = error, service.store.config.topics.get(topic)
            if config is None and topic in own_topics(service.broker_name, service.cluster):
                config = TopicConfig(topic, 1, 1)
            if config is not None:
                is_found = True
                yield service, config
        if unknown is not None and not is_found:
            raise unknown

    def address_of(self, service: BrokerService, asked: BrokerService, connection: ClientConnection) -> str:
        """The `host:port` at which the client that asks the broker `asked` reaches the broker `service`."""
        if service is asked or service.advertise is not None:
            return service.advertised_address(connection)
        host_and_port = connection.local_address
        number, own = self.services.index(service), self.services.index(asked)
        port = host_and_port.port + (number - own) * STORE_PORT_DISTANCE
        if self._ports and host_and_port.port in self._ports[own]:
            port = self._ports[number][self._ports[own].index(host_and_port.port)]
        return str(host_and_port._replace(port=port))
