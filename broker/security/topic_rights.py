"""What an account may see of topics and messages: by the name of a topic, and by the topic that a message was sent to.

A broker keeps copies of messages under topics of its own. Whether a request about such a topic is admitted is decided
by its name; each record is then checked by what it says of its origin. An origin that is not known denies.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from broker.security.accounts import Account, Permission
from protocol.body_content import unpack
from protocol.errors import StoreError
from protocol.message import Message
from protocol.system_topics import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    Origin,
    Stage,
    TopicContent,
    content_of,
    splits,
    stage_of,
)
from protocol.trace import holds_traces
from storage.life.origins import Origins

UNREADABLE: Final = "this is about topics that this account may not read; ask an administrator"
_NAMES: Final = re.compile(r"[\w%|+-]+")


def permits_topic(
    account: Account, topic: str, origins: Iterable[Origins], needed: Permission = Permission.SUB
) -> bool:
    """Whether an account has one of the needed rights to a topic that a request or an answer names.

    A group's right serves for its dead letters. The retry topic of messages that it popped takes its right and that to
    their topic, for one of the groups and topics that the name may stand for in some of the stores of `origins`; where
    none is known, the right to every topic that it may name. A right to the very name comes first.
    """
    if topic in account.permissions or account.is_unbounded or not needed & Permission.SUB:
        return account.permits(topic, needed)
    if topic.startswith(DEAD_LETTER_PREFIX):
        return account.permits(topic, needed) or _permits_group(account, topic.removeprefix(DEAD_LETTER_PREFIX))
    if not topic.startswith(RETRY_PREFIX):
        return account.permits(topic, needed)
    name, is_permitted, stores = topic.removeprefix(RETRY_PREFIX), account.permits(topic, needed), tuple(origins)
    is_group = all(store.may_be_a_group(name) for store in stores)
    readings = [pair for store in stores for pair in store.readings(name)]
    if is_permitted and is_group:
        return True
    if readings:
        return any(_permits_group(account, group) and account.permits(popped, needed) for group, popped in readings)
    return is_permitted and not is_group and all(account.permits(popped, needed) for _, popped in splits(name))


def readable(account: Account, text: str, origins: Origins, asked: Iterable[str]) -> str:
    """Return a sentence about the store, or another one if it names a topic that is denied and was not asked for."""
    if account.is_unbounded:
        return text
    named = origins.topics().intersection(_NAMES.findall(text)).difference(asked)
    return text if all(permits_topic(account, topic, (origins,)) for topic in named) else UNREADABLE


def may_read(account: Account, message: Message, origins: Origins) -> bool:
    """Whether an account may see a message: by the topic that it is stored under, and by that it was sent to."""
    return account.is_unbounded or denied_resource(account, StoredOrigin.of(message, origins)) is None


@dataclass(frozen=True, slots=True)
class StoredOrigin:
    """What decides about a message: the topic that it is stored under, where it was sent to, whether it is a trace.

    Traces, which name keys and ids of messages of others, may be sent to any topic.
    """

    topic: str
    origin: Origin
    is_trace: bool

    @classmethod
    def of(cls, message: Message, origins: Origins) -> "StoredOrigin":
        """What a message says of itself, and its store of its origin."""
        try:
            body = unpack(message.decoded_body()).data
        except StoreError:
            body = message.stored_body
        return cls(message.topic, origins.of(message), holds_traces(body))


def denied_resource(account: Account, message: StoredOrigin) -> str | None:
    """The topic for which an account lacks the right to see a message; None where it lacks none.

    The copies that a group failed to consume are the group's: its right serves as well as one to their topic. A message
    of which it is not known where it was sent to, notes of brokers and what clients report of others' messages are for
    accounts to which no topic is denied, notes and reports for those as well that the topic is granted to by name.
    """
    origin = message.origin
    if not _permits_stored(account, message.topic, origin):
        return message.topic
    if origin.topic is None:
        topics = tuple(topic for _, topic in origin.readings)
        if not topics and not account.reads_every_topic:
            return message.topic
    else:
        topics = (origin.topic,)
    for topic in topics:
        if not account.permits(topic, Permission.SUB):
            return topic
        is_of_others = message.is_trace or content_of(topic) is not TopicContent.MESSAGES
        if is_of_others and not (account.reads_every_topic or topic in account.permissions):
            return topic
    return None


def _permits_stored(account: Account, topic: str, origin: Origin) -> bool:
    if topic in account.permissions:
        return account.permits(topic, Permission.SUB)
    stage = stage_of(topic)
    groups = (origin.group,) if origin.group is not None else tuple(group for group, _ in origin.readings)
    if stage is Stage.RETRY and groups:
        return all(_permits_group(account, group) for group in groups)
    if account.permits(topic, Permission.SUB):
        return True
    return stage is Stage.DEAD_LETTER and bool(groups) and all(_permits_group(account, group) for group in groups)


def _permits_group(account: Account, group: str) -> bool:
    return account.permits(f"{RETRY_PREFIX}{group}", Permission.SUB)
