"""The list of all processor families; importing it fails when two of them answer one request code."""

from typing import Any

from broker.service.dispatcher import check_families
from broker.service.processors.ask_consumer import AskConsumerProcessor
from broker.service.processors.broker_admin import BrokerAdminProcessor
from broker.service.processors.client_manage import ClientManageProcessor
from broker.service.processors.consume_stats import ConsumeStatsProcessor
from broker.service.processors.consumer_manage import ConsumerManageProcessor
from broker.service.processors.name_server import NameServerProcessor
from broker.service.processors.pull_message import PullMessageProcessor
from broker.service.processors.query_assignment import QueryAssignmentProcessor
from broker.service.processors.query_message import QueryMessageProcessor
from broker.service.processors.queue_lock import QueueLockProcessor
from broker.service.processors.topic_admin import TopicAdminProcessor

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
)
check_families(PROCESSORS)
