"""All processor families; importing them fails when two of them answer one request code.

This is a module apart from `broker.app`, its one importer, so that a new family of codes does not change that.
"""

from typing import Any

from broker.service.broker_service import BrokerService
from broker.service.dispatcher import check_families
from broker.service.processors.ask_consumer import AskConsumerProcessor
from broker.service.processors.broker_admin import BrokerAdminProcessor
from broker.service.processors.client_manage import ClientManageProcessor
from broker.service.processors.consume_stats import ConsumeStatsProcessor
from broker.service.processors.consumer_manage import ConsumerManageProcessor
from broker.service.processors.name_server import NameServerProcessor
from broker.service.processors.pull_message import Learn, PullMessageProcessor
from broker.service.processors.query_assignment import QueryAssignmentProcessor
from broker.service.processors.query_message import QueryMessageProcessor
from broker.service.processors.queue_lock import QueueLockProcessor
from broker.service.processors.topic_admin import TopicAdminProcessor
from broker.service.processors.whole_store import WholeStoreProcessor
from broker.service.served_brokers import ServedBrokers

PROCESSORS: tuple[type[Any], ...] = (
    QueryMessageProcessor,
    PullMessageProcessor,
    NameServerProcessor,
    TopicAdminProcessor,
    ConsumerManageProcessor,
    ConsumeStatsProcessor,
    AskConsumerProcessor,
    ClientManageProcessor,
    QueueLockProcessor,
    QueryAssignmentProcessor,
    BrokerAdminProcessor,
    WholeStoreProcessor,
)
check_families(PROCESSORS)


def build_processors(
    service: BrokerService, brokers: ServedBrokers | None = None, learn: Learn | None = None
) -> list[object]:
    """Make one processor of each family, all for `service`.

    `brokers` are all brokers of this process; None means `service` alone. `learn` is called with the pulls that found
    messages.
    """
    brokers = ServedBrokers([service]) if brokers is None else brokers
    return [
        QueryMessageProcessor(service),
        PullMessageProcessor(service, learn),
        NameServerProcessor(service, brokers),
        TopicAdminProcessor(service),
        ConsumerManageProcessor(service),
        ConsumeStatsProcessor(service),
        AskConsumerProcessor(service),
        ClientManageProcessor(service),
        QueueLockProcessor(service),
        QueryAssignmentProcessor(service, brokers),
        BrokerAdminProcessor(service),
        WholeStoreProcessor(service),
    ]
