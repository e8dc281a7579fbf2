"""Messages that are sent again: what of them stays as it was, and what does not.

| | |
|---|---|
| body, flag, compression | as stored |
| keys, tags, unique key, sharding key, properties of applications | as stored |
| properties that only speak of the way it went (`protocol.system_properties.LEFT_BEHIND`) | left behind |
| born time and host, store time, offsets | the target's own; those of the source are in ROCKETLENS_ORIGIN |
"""

import hashlib
import struct
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from protocol.host_address import HostAddress
from protocol.java_hash import decode_java
from protocol.message import Message
from protocol.properties import (
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    RETRY_TOPIC,
    SHARDING_KEY,
    UNIQ_KEY,
    encode_properties,
    integer_in,
)
from protocol.sending import MOST_PROPERTIES, OutgoingMessage
from protocol.sys_flag import COMPRESSION_TYPE_MASK, SysFlag, has_inner_messages
from protocol.system_properties import LEFT_BEHIND
from protocol.system_topics import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    Stage,
    TopicContent,
    content_of,
    origin_of,
    stage_of,
    system_topic,
)
from rocketlens.replay.account import ReplayWay, ReplayWays
from storage.kernels.resending import ResendRules

ORIGIN: Final = "ROCKETLENS_ORIGIN"
"""The property that says where a message was first stored: offset message id, born and store time in ms, cluster."""

KNOWN_TOPICS: Final = 1024
"""Topics of which it is remembered what they are for."""

LONGEST_CLUSTER: Final = 255
"""Characters of a cluster's name with which messages are sent by a kernel."""

_KEPT_FLAGS: Final = int(SysFlag.COMPRESSED) | COMPRESSION_TYPE_MASK | int(SysFlag.MULTI_TAGS)
_ID: Final = struct.Struct(">10sI2s")
_ID_SPAN: Final = 28 * 24 * 3600 * 1000
"""Milliseconds of the shortest month: clients read a time of the month from the ids of producers."""


class RetriedGoal(Enum):
    """Where messages of `%RETRY%` and `%DLQ%` topics go."""

    ORIGIN = "--to-origin"
    """The topic that they were sent to: every group of it gets them."""
    RETRY = "--to-retry"
    """The retry topic of the group that failed: it alone gets them."""
    TOPIC = "--to-topic"
    """One topic, as all other messages."""


@dataclass(frozen=True, slots=True)
class ResendManner:
    """How messages are sent: where to, whether with new keys, and what is said of where they are from.

    With `new_ids` all messages get new keys, else those that brokers at `own_hosts` stored: these have the key already.
    """

    goal: RetriedGoal | None = None
    topic: str = ""
    new_ids: bool = False
    cluster: str = ""
    copies: bool = False
    own_hosts: frozenset[HostAddress] = frozenset()
    retry_topics: frozenset[str] = frozenset()
    """Those that the target has, where messages go to them."""


class NotResent(Exception):
    """A message is not sent, for a reason that is a sentence."""


def origin_property(message: Message, cluster: str) -> str:
    """The value of `ORIGIN` for a message of a cluster, whose name may not be known."""
    place = "-" if message.store_host.is_hidden else message.offset_message_id
    return f"{place} {message.born_timestamp} {message.store_timestamp} {cluster or '-'}"


def resent(message: Message, manner: ResendManner) -> OutgoingMessage:
    """Make the message that is sent for a stored one; raises `NotResent`."""
    topic = target_topic(message, manner)
    if _kind(topic)[1]:
        raise NotResent(f"topic {topic}, to which it would go, is the broker's own")
    if has_inner_messages(message.sys_flag):
        raise NotResent("it is a batch that cannot be taken apart")
    kept = {name: value for name, value in message.properties.items() if name not in LEFT_BEHIND}
    kept[ORIGIN] = origin_property(message, manner.cluster)
    if manner.new_ids or message.store_host in manner.own_hosts or not kept.get(UNIQ_KEY):
        kept[UNIQ_KEY] = new_id(message, kept[ORIGIN])
    times = 0
    if topic.startswith(RETRY_PREFIX):
        source = origin_of(message)
        if source.topic is None:
            raise NotResent("the topic that it was sent to is not known, and a retry needs it")
        kept[RETRY_TOPIC] = source.topic
        kept[ORIGIN_MESSAGE_ID] = message.properties.get(ORIGIN_MESSAGE_ID, message.offset_message_id)
        # A dead letter with its count would be one again at once.
        times = message.reconsume_times if stage_of(message.topic) is Stage.RETRY else 0
    properties = encode_properties(kept)
    if len(properties) > MOST_PROPERTIES:
        raise NotResent(
            f"its properties with those added are {len(properties):,} bytes, {MOST_PROPERTIES:,} are allowed"
        )
    body = bytes(message.stored_body)
    sys_flag = message.sys_flag & _KEPT_FLAGS
    return OutgoingMessage(topic, message.flag, sys_flag, properties, body, times)


def plain_rules(manner: ResendManner, ways: ReplayWays) -> ResendRules | None:
    """The same for records of which nothing but bytes is copied, by a kernel; None where each gets a new key.

    Their ways are added to `ways`.
    """
    if manner.new_ids or not manner.cluster.isascii() or len(manner.cluster) > LONGEST_CLUSTER:
        return None
    own_hosts = {host.pack() for host in manner.own_hosts if not host.is_ipv6}

    def way_of(name: bytes, host: bytes, queue_id: int) -> int:
        topic = decode_java(name)
        target = manner.topic or topic
        is_plain = _kind(topic) == (Stage.DELIVERED, False) and not _kind(target)[1] and topic.isascii()
        if not is_plain or target.startswith(RETRY_PREFIX) or host in own_hosts:
            return -1
        return ways.number(ReplayWay(target, str(HostAddress.unpack(host)), queue_id), host.hex().upper())

    return ResendRules(
        left_behind=[name.encode() for name in LEFT_BEHIND],
        origin=ORIGIN.encode(),
        cluster=cluster_text(manner).encode(),
        kept_flags=_KEPT_FLAGS,
        way_of=way_of,
    )


def cluster_text(manner: ResendManner) -> str:
    """How the cluster of the source is named in `ORIGIN`."""
    return manner.cluster or "-"


def target_topic(message: Message, manner: ResendManner) -> str:
    """The topic that a message is sent to; raises `NotResent` where there is none, or it is not asked for."""
    stage, is_own = _kind(message.topic)
    if stage is Stage.DELIVERED:
        if is_own:
            raise NotResent(f"topic {message.topic} is the broker's own")
        return manner.topic or message.topic
    if stage in (Stage.RETRY, Stage.DEAD_LETTER):
        return _retried_topic(message, manner)
    if not manner.copies:
        raise NotResent(f"it waits in the broker's own topic {message.topic} (--copies sends such to their real topic)")
    origin = origin_of(message)
    if manner.topic:
        return manner.topic
    if origin.topic is None:
        raise NotResent("the topic that it was sent to is not known")
    return origin.topic


@lru_cache(KNOWN_TOPICS)
def _kind(topic: str) -> tuple[Stage, bool]:
    """The stage of a topic's messages, and whether these are the broker's own."""
    return stage_of(topic), system_topic(topic) is not None or content_of(topic) is not TopicContent.MESSAGES


def _retried_topic(message: Message, manner: ResendManner) -> str:
    """The topic for a message that a group failed to consume."""
    origin = origin_of(message)
    if manner.goal is RetriedGoal.TOPIC:
        return manner.topic
    if manner.goal is RetriedGoal.ORIGIN:
        if origin.topic is None:
            raise NotResent("the topic that it was sent to is not known")
        return origin.topic
    if manner.goal is RetriedGoal.RETRY:
        if origin.group is None:
            raise NotResent("the group that failed to consume it is not known")
        name = f"{RETRY_PREFIX}{origin.group}"
        # A group that only pops has one for each topic, named so since 5.2 and before.
        of_topic = () if name in manner.retry_topics else (f"{name}+{origin.topic}", f"{name}_{origin.topic}")
        return next((each for each in of_topic if each in manner.retry_topics), name)
    kind = "dead letters" if message.topic.startswith(DEAD_LETTER_PREFIX) else "messages that are retried"
    raise NotResent(f"{kind} need one of {', '.join(goal.value for goal in RetriedGoal)}: there is no default")


def new_id(message: Message, origin: str) -> str:
    """A unique key for a message that keeps none, the same each time: 32 hex digits, as producers make them."""
    seed = b"\0".join((origin.encode(), str(message.queue_offset).encode(), bytes(message.stored_body)))
    digest = hashlib.blake2b(seed, digest_size=12).digest()
    return _ID.pack(digest[:10], max(message.store_timestamp, 0) % _ID_SPAN, digest[10:]).hex().upper()


def source_queue(message: Message) -> int:
    """The queue that a message was sent to: one that waits for something says it in a property."""
    if _kind(message.topic)[0] is Stage.DELIVERED:
        return message.queue_id
    real = integer_in(message.properties.get(REAL_QID), 32)
    return message.queue_id if real is None else real


def order_key(message: Message) -> str:
    """What messages share whose order counts: the sharding key, or the first key; empty where there is none."""
    return message.properties.get(SHARDING_KEY) or next(iter(message.keys), "")
