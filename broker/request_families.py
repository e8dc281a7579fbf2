"""The list of all processor families; importing it fails when two of them answer one request code."""

from typing import Any

from broker.dispatcher import check_families
from broker.processors.ask_consumer import AskConsumerProcessor
from broker.processors.broker_admin import BrokerAdminProcessor
from broker.processors.client_manage import ClientManageProcessor
from broker.processors.consume_stats import ConsumeStatsProcessor
from broker.processors.consumer_manage import ConsumerManageProcessor
from broker.processors.name_server import NameServerProcessor
from broker.processors.pull_message import PullMessageProcessor
from broker.processors.query_assignment import QueryAssignmentProcessor
from broker.processors.query_message import QueryMessageProcessor
from broker.processors.queue_lock import QueueLockProcessor
from broker.processors.topic_admin import TopicAdminProcessor

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
