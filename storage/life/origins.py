"""Where the messages of a store were sent to, by all that the store knows of its groups and topics.

A broker before 5.4 puts popped messages that come back into `%RETRY%GROUP_TOPIC`, with nothing in the record that says
where the one name ends and the other begins. Which groups and topics there are says it mostly, else the record that the
message has outside of retry topics, by its unique key. Where the broker itself mixes groups (`a` of `b_c` and `a_b` of
`c`), both stay possible; no third is invented.
"""

from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from protocol.message import Message
from protocol.question import KeyKind, Question
from protocol.system_topics import RETRY_PREFIX, GroupAndTopic, Origin, origin_of, said_by, splits
from storage.layout.store_config import StoreConfig
from storage.store.message_store import MessageStore, QueryAnswer

Search: TypeAlias = Callable[[Question], QueryAnswer]
"""Answers a query under one topic: `MessageStore.query`, or a function that counts its calls."""


class Origins:
    """Finds out where messages of a store were sent to. What the store knows is looked at when it is first needed."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._config: StoreConfig | None = None
        self._groups: Collection[str] = ()
        self._committed: dict[str, list[str]] = {}

    def of(self, message: Message) -> Origin:
        """Where a message was sent to, as far as names say it; never waits for the log."""
        return origin_of(message, self.readings)

    def found(self, message: Message, search: Search) -> Origin:
        """As `of`; where names leave a choice, the record with the same unique key outside of retry topics decides.

        Waits for the disk.
        """
        origin = self.of(message)
        if origin.topic is not None or origin.group is not None or not message.topic.startswith(RETRY_PREFIX):
            return origin
        held = list(self._with_record(origin, message, search))
        return Origin(held[0][1], held[0][0]) if len(held) == 1 else origin

    def topics(self) -> set[str]:
        """All topics that the store is known to have."""
        return {*self._store.config.topics, *self._store.queues.topics()}

    def may_be_a_group(self, name: str) -> bool:
        """Whether `%RETRY%name` may be the retry topic of the group `name`, in which it finds messages of any topic.

        It is where the store knows the group, and may become it where the store has no such topic.
        """
        self._read_names()
        return name in self._groups or not self._knows(f"{RETRY_PREFIX}{name}")

    def readings(self, name: str) -> tuple[GroupAndTopic, ...]:
        """The groups and topics that the name of a retry topic may stand for, without its prefix.

        A group that committed an offset in it is one of them; without such a group all that the store knows both of.
        """
        said = said_by(name)
        if said is not None:
            return (said,)
        self._read_names()
        pairs = tuple(splits(name))
        committed = self._committed.get(f"{RETRY_PREFIX}{name}", ())
        read = tuple(pair for pair in pairs if pair[0] in committed)
        return read or tuple(pair for pair in pairs if pair[0] in self._groups and self._knows(pair[1]))

    def _with_record(self, origin: Origin, message: Message, search: Search) -> Iterator[GroupAndTopic]:
        """The readings whose topic holds a record with the message's unique key."""
        key = message.unique_key
        if not key:
            return
        for group, topic in origin.readings or splits(message.topic.removeprefix(RETRY_PREFIX)):
            if self._knows(topic) and search(Question(topic=topic, text=key, kind=KeyKind.UNIQUE, maximum=1)).count:
                yield group, topic

    def _knows(self, topic: str) -> bool:
        return topic in self._store.config.topics or topic in self._store.queues.topics()

    def _read_names(self) -> None:
        config = self._store.config
        if config is self._config:
            return
        self._groups = {*config.subscription_groups, *(group for group, _ in config.consumer_offsets)}
        self._committed = {}
        for group, topic in config.consumer_offsets:
            if topic.startswith(RETRY_PREFIX) and topic != f"{RETRY_PREFIX}{group}":
                self._committed.setdefault(topic, []).append(group)
        self._config = config
