"""Topics that a broker keeps for itself: what each holds, and where its records name their real topic and group.

A broker stores messages under topics of its own while they wait, after a group failed to consume them and at their
end. Rights, masks, searches for copies and the story of a message all ask for the topic that a message was sent to:
`origin_of` says it, or that it is not known. An origin that is not known denies and hides.

The constants are those of TopicValidator, PopAckConstants, TimerMessageStore and MixAll of RocketMQ 5.5.1; a test
compares them with the official jar. Source: store-format §2.11, other-formats §5, §6.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol, TypeAlias

from protocol.message import Message
from protocol.properties import (
    DLQ_ORIGIN_TOPIC,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    MASKED,
    ORIGIN_GROUP,
    REAL_TOPIC,
    RETRY_TOPIC,
)


class Stage(Enum):
    """Where in its life a message was when a record of it was stored."""

    DELIVERED = "delivered"
    """Under its own topic, where consumers find it."""
    SCHEDULED = "scheduled"
    """Waiting for a delay level, be it for the first time or to be consumed again."""
    TIMER = "timer"
    """Waiting for a point in time."""
    HALF = "half"
    """Waiting for the end of its transaction."""
    DISCARDED = "discarded"
    """Half of a transaction that the broker gave up: its producer was asked as often as allowed, or too late."""
    RETRY = "retry"
    """To be consumed again by one group."""
    DEAD_LETTER = "dead letter"
    """Given up by one group."""


class TopicContent(Enum):
    """What the records under a topic hold."""

    MESSAGES = "messages"
    """Messages of producers."""
    REPORTS = "reports"
    """What clients report about messages of other topics: keys, tags, ids and addresses are in their bodies."""
    NOTES = "notes"
    """Notes of brokers and proxies: offsets, checkpoints, connected clients."""


@dataclass(frozen=True, slots=True)
class SystemTopic:
    """One topic, or all whose names begin with `name`; `origin` is the property that names a record's real topic."""

    name: str
    stage: Stage = Stage.DELIVERED
    content: TopicContent = TopicContent.MESSAGES
    origin: str | None = None
    is_prefix: bool = False
    is_everywhere: bool = False
    """Whether every broker counts it among its system topics, stored or not (remoting-protocol §4.3)."""


DEFAULT_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
"""The topic in which delayed messages wait, those of delay level n in queue n − 1.

Their units have the time of delivery in the place of a tag.
"""
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
ROCKSDB_HALF_TOPIC: Final = "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC"
OP_TOPICS: Final = {
    HALF_TOPIC: "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    ROCKSDB_HALF_TOPIC: "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
}
"""Where the ends of transactions are noted, by the topic of their half messages: brokers with `transRocksDBEnable` have
topics of their own (other-formats §3)."""
DISCARDED_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
TRACE_TOPIC_PREFIX: Final = "rmq_sys_TRACE_DATA_"
REVIVE_TOPIC_PREFIX: Final = "rmq_sys_REVIVE_LOG_"
"""Before the cluster's name: the topic of the checkpoints and acknowledgements of popped messages."""
MEMBER_TOPIC_PREFIX: Final = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Before the broker's name: a topic that is only ever registered."""
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
PROXY_TOPIC: Final = "DefaultHeartBeatSyncerTopic"
"""In which the proxies of a cluster tell each other of their clients. One that finds no route to it creates it, or does
not start."""
REPLY_TOPIC_SUFFIX: Final = "_REPLY_TOPIC"
"""Behind the cluster's name: the topic of replies to requests of producers, which are not stored there."""
RETRY_PREFIX: Final = "%RETRY%"
"""Before a consumer group's name: the topic of the messages it failed to consume."""
DEAD_LETTER_PREFIX: Final = "%DLQ%"
LIGHT_PREFIX: Final = "%LMQ%"
"""The prefix in the names of light queues, which get messages of other topics."""
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
"""The beginning of the names of groups in which a broker itself consumes; they have no retry topics."""
POP_SEPARATORS: Final = "+_"
"""Between group and topic in the retry topic of popped messages: neither name contains the first; brokers that do
not set `enableRetryTopicV2` write the second, which both names may contain."""

SYSTEM_TOPICS: Final = (
    SystemTopic(DEFAULT_TOPIC, is_everywhere=True),
    SystemTopic("BenchmarkTest", is_everywhere=True),
    SystemTopic("SELF_TEST_TOPIC", is_everywhere=True),
    SystemTopic(SCHEDULE_TOPIC, Stage.SCHEDULED, origin=REAL_TOPIC, is_everywhere=True),
    SystemTopic(TIMER_TOPIC, Stage.TIMER, origin=REAL_TOPIC),
    SystemTopic(HALF_TOPIC, Stage.HALF, origin=REAL_TOPIC, is_everywhere=True),
    SystemTopic(ROCKSDB_HALF_TOPIC, Stage.HALF, origin=REAL_TOPIC),
    SystemTopic(OP_TOPICS[HALF_TOPIC], content=TopicContent.NOTES, is_everywhere=True),
    SystemTopic(OP_TOPICS[ROCKSDB_HALF_TOPIC], content=TopicContent.NOTES),
    SystemTopic(DISCARDED_TOPIC, Stage.DISCARDED, origin=REAL_TOPIC, is_everywhere=True),
    SystemTopic(TRACE_TOPIC, content=TopicContent.REPORTS, is_everywhere=True),
    SystemTopic("OFFSET_MOVED_EVENT", content=TopicContent.NOTES, is_everywhere=True),
    SystemTopic("CHECKPOINT_TOPIC", content=TopicContent.NOTES, is_everywhere=True),
    SystemTopic(PROXY_TOPIC, content=TopicContent.NOTES),
    SystemTopic(TRACE_TOPIC_PREFIX, content=TopicContent.REPORTS, is_prefix=True),
    SystemTopic(REVIVE_TOPIC_PREFIX, content=TopicContent.NOTES, is_prefix=True),
    SystemTopic(MEMBER_TOPIC_PREFIX, content=TopicContent.NOTES, is_prefix=True),
    SystemTopic(SYSTEM_TOPIC_PREFIX, content=TopicContent.NOTES, is_prefix=True),
    SystemTopic("RMQ_SYS_", content=TopicContent.NOTES, is_prefix=True),
)
"""Every topic of a broker's own. Of several prefixes that fit the first one counts."""

_BY_NAME: Final = {row.name: row for row in SYSTEM_TOPICS if not row.is_prefix}
_BY_PREFIX: Final = tuple(row for row in SYSTEM_TOPICS if row.is_prefix)

TOPICS_OF_EVERY_BROKER: Final = frozenset(row.name for row in SYSTEM_TOPICS if row.is_everywhere)


def system_topic(topic: str) -> SystemTopic | None:
    """The row of the table for a topic, None for one that is no broker's own."""
    known = _BY_NAME.get(topic)
    return known if known is not None else next((row for row in _BY_PREFIX if topic.startswith(row.name)), None)


def stage_of(topic: str) -> Stage:
    """The stage of the messages that are stored under a topic."""
    if topic.startswith(RETRY_PREFIX):
        return Stage.RETRY
    if topic.startswith(DEAD_LETTER_PREFIX):
        return Stage.DEAD_LETTER
    known = _BY_NAME.get(topic)
    return Stage.DELIVERED if known is None else known.stage


def content_of(topic: str) -> TopicContent:
    """What the records that were sent to a topic hold, as far as its name says it."""
    known = system_topic(topic)
    return TopicContent.MESSAGES if known is None else known.content


def holds_its_own_alone(topic: str) -> bool:
    """Whether all that is stored under a topic was sent to it, and says nothing of messages of others."""
    return stage_of(topic) is Stage.DELIVERED and content_of(topic) is TopicContent.MESSAGES


def kind_of(topic: str) -> str:
    """What a topic is for: normal, retry, dead letter, or the broker's own."""
    stage = stage_of(topic)
    if stage in (Stage.RETRY, Stage.DEAD_LETTER):
        return str(stage.value)
    return "normal" if system_topic(topic) is None else "system"


GroupAndTopic: TypeAlias = tuple[str, str]


class OriginSource(Protocol):
    """A record, as far as its origin is in it."""

    @property
    def topic(self) -> str:
        """The topic that it is stored under."""
        ...

    @property
    def properties(self) -> Mapping[str, str]:
        """Its properties."""
        ...


Readings: TypeAlias = Callable[[str], tuple[GroupAndTopic, ...]]
"""Gives the groups and topics that `GROUP_TOPIC` may stand for, of which a store knows both."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The topic that a message was sent to, and the group whose failure to consume it made this copy.

    `topic` is None where it is not known, `group` likewise, and where no group failed. `readings` are then the groups
    and topics among which the name of a retry topic leaves the choice.
    """

    topic: str | None
    group: str | None = None
    readings: tuple[GroupAndTopic, ...] = ()

    def may_be_of(self, group: str) -> bool:
        """Whether the failure of a group may have made the copy."""
        return group in ((self.group,) if self.group is not None else tuple(owner for owner, _ in self.readings))


_NAMING: Final = (REAL_TOPIC, RETRY_TOPIC, ORIGIN_GROUP, DLQ_ORIGIN_TOPIC)


def origin_of(message: OriginSource, readings: Readings = lambda _name: ()) -> Origin:
    """Where a message was sent to, by the names that its record has and, where these are not enough, by `readings`.

    It is not known where one of these names is masked. Copies of popped messages in retry topics say their group since
    5.4; for older ones there is only the name of the retry topic, `%RETRY%GROUP_TOPIC`.
    """
    properties = message.properties
    if stage_of(message.topic) is not Stage.DELIVERED and MASKED in map(properties.get, _NAMING):
        return Origin(None)
    topic: str | None = message.topic
    group = None
    row = _BY_NAME.get(message.topic)
    if row is not None and row.origin is not None:
        topic = properties.get(row.origin)
    if topic is not None and topic.startswith(DEAD_LETTER_PREFIX):
        group = topic.removeprefix(DEAD_LETTER_PREFIX)
        topic = properties.get(DLQ_ORIGIN_TOPIC) or properties.get(RETRY_TOPIC)
    if topic is None or not topic.startswith(RETRY_PREFIX):
        return Origin(topic, group)
    return _origin_of_retry(topic.removeprefix(RETRY_PREFIX), group, message, readings)


def _origin_of_retry(name: str, group: str | None, message: OriginSource, readings: Readings) -> Origin:
    """Where a message was sent to that is, was or is to be in the retry topic `%RETRY%name`."""
    properties = message.properties
    for owner in filter(None, (group, properties.get(ORIGIN_GROUP))):
        popped = _popped_topic(name, owner)
        if popped is not None:
            return Origin(popped, owner)
    sent_to = properties.get(RETRY_TOPIC, RETRY_PREFIX)
    if not sent_to.startswith(RETRY_PREFIX):
        return Origin(sent_to, group or name)
    if group is not None:
        return Origin(None, group)
    said = said_by(name)
    pairs = readings(name) if said is None else (said,)
    return Origin(pairs[0][1], pairs[0][0]) if len(pairs) == 1 else Origin(None, None, pairs)


def _popped_topic(name: str, group: str) -> str | None:
    """The topic of which a group popped messages that are in the retry topic `%RETRY%name`."""
    rest = name[len(group) :]
    return rest[1:] if name.startswith(group) and len(rest) > 1 and rest[0] in POP_SEPARATORS else None


def said_by(name: str) -> GroupAndTopic | None:
    """The group and topic of which the name of a retry topic, without its prefix, is made, where it alone says them."""
    owner, separator, popped = name.partition(POP_SEPARATORS[0])
    return (owner, popped) if owner and popped and separator not in popped else None


def splits(name: str) -> Iterator[GroupAndTopic]:
    """All groups and topics of which the name of a retry topic, without its prefix, may be made."""
    for position, character in enumerate(name):
        if character in POP_SEPARATORS and 0 < position < len(name) - 1:
            yield name[:position], name[position + 1 :]


def queue_offset_in(message: Message, topic: str) -> int:
    """The queue offset of a message in the queue that it was read from, which of a light queue is another one."""
    light = light_queue_offset(message, topic) if topic.startswith(LIGHT_PREFIX) else None
    return message.queue_offset if light is None else light


def light_queue_offset(message: Message, topic: str) -> int | None:
    """The queue offset of a message in a light queue; None for one that is not in it, as a copy that waits is not.

    A broker puts none into it that waits under topics of its own (store-format §2.10). A dead letter has the offset of
    the message that it was, and whether it is in the queue in its place, the queue alone says.
    """
    names = message.properties.get(INNER_MULTI_DISPATCH, "").split(",")
    offsets = message.properties.get(INNER_MULTI_QUEUE_OFFSET, "").split(",")
    if message.topic.startswith((RETRY_PREFIX, SYSTEM_TOPIC_PREFIX, SCHEDULE_TOPIC)) or len(names) != len(offsets):
        return None
    digits = dict(zip(names, offsets, strict=True)).get(topic, "")
    return int(digits) if re.fullmatch(r"[0-9]{1,19}", digits, re.ASCII) else None


def is_known_by(message: Message, topic: str) -> bool:
    """Whether clients may know a message by a topic: the one it is stored under, waits for or was first sent to.

    Or one of the light queues it is in.
    """
    if topic == message.topic:
        return True
    properties = message.properties
    if topic.startswith(LIGHT_PREFIX):
        return topic in properties.get(INNER_MULTI_DISPATCH, "").split(",")
    if message.topic.startswith(RETRY_PREFIX) and origin_of(message).topic is None:
        return any(topic == popped for _, popped in splits(message.topic.removeprefix(RETRY_PREFIX)))
    return topic in (properties.get(REAL_TOPIC), origin_of(message).topic)
