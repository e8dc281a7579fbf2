"""Which topics a store has, and how many queues each: by its configuration and by what lies on the disk, together.

An archive may lack topics.json, may hold queues of a topic that was deleted, or more queues than a shrunken topic still
counts (store-format §5 traps, §9): all of them can be read, so all of them are listed.
"""

from msgspec.structs import replace

from protocol.errors import NoSuchTopic, StoreError
from protocol.system_topics import (
    PROXY_TOPIC,
    REPLY_TOPIC_SUFFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    TOPICS_OF_EVERY_BROKER,
)
from storage.layout.store_config import TOPICS, TopicConfig
from storage.names import did_you_mean, similar_names
from storage.store.message_store import MessageStore

READ_ONLY_PERM = 4
"""PERM_READ alone: producers build no queues of such a topic and fail cleanly (remoting-protocol §3.1, §3.6)."""

QUEUES_LIMIT = 16_384
"""Queues of one topic that are reported; clients make an object of each, and a damaged number may name billions."""


def topic_names(store: MessageStore) -> list[str]:
    """All topics, sorted. Raises StoreError where it is not known which there are.

    Where no configuration of topics is left, the retry topics of the groups that committed offsets are among them, as
    they would be with it: it is by these that tools find groups (remoting-protocol §2.2, consumerProgress). Where
    both are in RocksDB, and nothing is there that reads it, they are not.
    """
    store.config.refuse_unknown(TOPICS)
    names = {*store.config.topics, *store.queues.all_topics()}
    if not store.config.topics and not store.config.lacks_reader:
        store.config.refuse_unknown_offsets()
        groups = {group for group, _ in store.config.consumer_offsets if not group.startswith(SYSTEM_GROUP_PREFIX)}
        names.update(f"{RETRY_PREFIX}{group}" for group in groups)
    return sorted(names)


def known_names(store: MessageStore) -> tuple[list[str], str]:
    """List the known topics, sorted, with the reason why the list may be incomplete; empty if it is complete.

    Where their configuration cannot be read, those that have queues. Raises StoreError where these are not known.
    """
    try:
        return topic_names(store), ""
    except StoreError as error:
        return sorted({*store.config.topics, *store.queues.all_topics()}), f"topics may be missing: {error}"


def known_topics(store: MessageStore) -> tuple[list[tuple[str, int | None, int | None]], str]:
    """As :func:`known_names`, each with its queues to read and to write; None where these cannot be listed."""
    names, more = known_names(store)
    found: list[tuple[str, int | None, int | None]] = []
    for name in names:
        try:
            config = stored_topic(store, name)
        except StoreError:  # its queues cannot be listed
            config = None
        found.append((name, None, None) if config is None else (name, config.read_queue_nums, config.write_queue_nums))
    return found, more


def similar_topics(store: MessageStore, topic: str) -> list[str]:
    """List topics of the store that are similar to an unknown name; empty if the store has that topic. Waits."""
    try:
        names = topic_names(store)
    except StoreError:  # what there is is not known
        return []
    return [] if topic in names else similar_names(topic, names)


def refuse_absent(store: MessageStore, topic: str) -> None:
    """Raise NoSuchTopic for a topic that the store is known not to have. Waits."""
    try:
        names = topic_names(store)
        is_there = topic in names or store.queues.has_topic(topic)
    except StoreError:  # what there is is not known
        return
    if not is_there:
        raise NoSuchTopic(topic, did_you_mean(similar_names(topic, names)))


def absence_of_topic(store: MessageStore, topic: str) -> tuple[str, ...]:
    """A sentence, in a tuple, if the store has no queue of a topic, with the topics that may be meant. Waits."""
    absence = store.queues.absence_of(topic)
    proposed = similar_topics(store, topic) if absence else []
    return (f"{absence[0]}; {did_you_mean(proposed)}",) if proposed else absence


def find_topic(store: MessageStore, topic: str) -> TopicConfig | None:
    """As :func:`stored_topic`, with the topics that clients need before anything is stored under them.

    The retry topic of any consumer group is one, with one queue: clients ask for its route before the first message
    that failed, and some do nothing without it. So is the topic of proxies.
    """
    if topic == PROXY_TOPIC or (topic.startswith(RETRY_PREFIX) and topic != RETRY_PREFIX):
        queue_ids = store.queues.queue_ids(topic)
        if topic not in store.config.topics:
            return _of_queues(topic, queue_ids[-1] + 1 if queue_ids else 1)
    return stored_topic(store, topic)


def stored_topic(store: MessageStore, topic: str) -> TopicConfig | None:
    """How a topic is configured, with as many queues at least as it has on the disk; None for one that is nowhere.

    Raises StoreError where it is not known what there is. May wait unless the store's queues are `listed`, as that of
    all topics' names.
    """
    config = store.config.topics.get(topic)
    queue_ids = store.queues.queue_ids(topic)
    on_disk = queue_ids[-1] + 1 if queue_ids else 0
    if config is None:
        is_there = store.queues.has_topic(topic) or topic in topic_names(store)
        return _of_queues(topic, max(on_disk, 1)) if is_there else None
    if config.read_queue_nums >= on_disk and max(config.read_queue_nums, config.write_queue_nums) <= QUEUES_LIMIT:
        return config
    return replace(
        config,
        read_queue_nums=min(max(config.read_queue_nums, on_disk), QUEUES_LIMIT),
        write_queue_nums=min(config.write_queue_nums, QUEUES_LIMIT),
    )


def queues_of_topic(store: MessageStore, topic: str) -> list[int]:
    """The ids of a topic's queues, those in which no message was ever stored among them, ascending. Raises, and waits.

    As :func:`stored_topic`; none for a topic that is nowhere.
    """
    config = stored_topic(store, topic)
    count = 0 if config is None else max(config.read_queue_nums, config.write_queue_nums)
    return sorted({*store.queues.queue_ids(topic), *range(count)})


def _of_queues(topic: str, queues: int) -> TopicConfig:
    queues = min(queues, QUEUES_LIMIT)
    return TopicConfig(topic, read_queue_nums=queues, write_queue_nums=queues, perm=READ_ONLY_PERM)


def own_topics(broker_name: str, cluster: str) -> tuple[str, ...]:
    """The topics that every broker has, in which nothing is stored: by these names tools and proxies find brokers."""
    return (broker_name, cluster, f"{cluster}{REPLY_TOPIC_SUFFIX}")


def system_topics(store: MessageStore, broker_name: str, cluster: str) -> list[str]:
    """The topics that a broker of this name counts as its own, sorted."""
    names = topic_names(store)
    stored = {topic for topic in names if topic.startswith(("RMQ_SYS_", SYSTEM_TOPIC_PREFIX))}
    own = set(own_topics(broker_name, cluster)).intersection(names)
    return sorted({*TOPICS_OF_EVERY_BROKER, *stored, *own})
