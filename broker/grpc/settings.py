"""Settings that clients of RocketMQ 5 get by Telemetry: what they sent, with what the server decides.

The numbers are those of the official proxy 5.5.0 where nothing is configured (`GrpcClientSettingsManager`). It serves
no pull consumers; they get here what simple consumers get.
"""

from typing import Final

from google.protobuf.duration_pb2 import Duration

from broker.grpc.messages.definition_pb2 import (
    ClientType,
    CustomizedBackoff,
    ExponentialBackoff,
    RetryPolicy,
    Settings,
)
from storage.layout.store_config import SubscriptionGroup

CONSUMERS: Final = (ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER, ClientType.PULL_CONSUMER)
LIGHT_CONSUMERS: Final = (ClientType.LITE_PUSH_CONSUMER, ClientType.LITE_SIMPLE_CONSUMER)

BATCH: Final = 32
POLLING_SECONDS: Final = 20
LIGHT_TOPICS: Final = 2000
LONGEST_LIGHT_TOPIC: Final = 64
LONGEST_BODY: Final = 4 * 1024 * 1024
PRODUCER_ATTEMPTS: Final = 3

# CustomizedRetryPolicy and ExponentialRetryPolicy of RocketMQ 5.5, whose own numbers a store's groups do not keep here.
RETRIES_SECONDS: Final = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
FIRST_RETRY_SECONDS: Final = 5
LAST_RETRY_SECONDS: Final = 7200


def settings_of_producer(sent: Settings) -> Settings:
    """The settings of a client that would send."""
    settings = _copied(sent)
    initial, last = Duration(nanos=10_000_000), Duration(seconds=1)
    backoff = ExponentialBackoff(initial=initial, max=last, multiplier=2)
    settings.backoff_policy.CopyFrom(RetryPolicy(max_attempts=PRODUCER_ATTEMPTS, exponential_backoff=backoff))
    settings.publishing.validate_message_type = True
    settings.publishing.max_body_size = LONGEST_BODY
    return settings


def settings_of_consumer(sent: Settings, group: SubscriptionGroup) -> Settings:
    """The settings of a consumer of a group."""
    settings = _copied(sent)
    subscription = settings.subscription
    subscription.fifo = group.consume_message_orderly
    subscription.receive_batch_size = BATCH
    subscription.long_polling_timeout.CopyFrom(Duration(seconds=POLLING_SECONDS))
    subscription.lite_subscription_quota = LIGHT_TOPICS
    subscription.max_lite_topic_size = LONGEST_LIGHT_TOPIC
    policy = RetryPolicy(max_attempts=group.retry_max_times + 1)
    if group.group_retry_policy.type == "EXPONENTIAL":
        first, last = Duration(seconds=FIRST_RETRY_SECONDS), Duration(seconds=LAST_RETRY_SECONDS)
        policy.exponential_backoff.CopyFrom(ExponentialBackoff(initial=first, max=last, multiplier=2))
    else:
        policy.customized_backoff.CopyFrom(CustomizedBackoff(next=[Duration(seconds=each) for each in RETRIES_SECONDS]))
    settings.backoff_policy.CopyFrom(policy)
    return settings


def _copied(sent: Settings) -> Settings:
    settings = Settings()
    settings.CopyFrom(sent)
    settings.metric.Clear()
    settings.metric.on = False
    settings.metric.SetInParent()
    return settings
