"""What key queries of the server and of the command line have in common."""

from collections.abc import Iterable
from typing import Final

from protocol.errors import StoreError
from storage.store.message_store import MessageStore, QueryAnswer

MOST_NAMED: Final = 3
"""Topics of batches that are named one by one."""


def explain_nothing(store: MessageStore, topic: str, answer: QueryAnswer) -> str:
    """Say in one or two sentences what was searched in vain."""
    if answer.refusal is not None:
        return answer.refusal
    return "; ".join(filter(None, (explain_queues(store, topic), answer.search.sentence())))


def explain_queues(store: MessageStore, topic: str) -> str:
    """A sentence about the queues of a topic in which nothing was found; empty where there is nothing to say of them.

    May wait unless the store's queues are `listed`.
    """
    if store.layout.lacks_queues:
        return "consumequeue/ is missing, the store is served without it"
    try:
        ids = store.queues.queue_ids(topic)
    except StoreError as error:
        return str(error)
    return notes_of_topics(store, (topic,)) if ids else f"this store has no queue of topic {topic}"


def notes_of_topics(store: MessageStore, topics: Iterable[str]) -> str:
    """What no search for keys finds of some topics, as sentences: batches, and parts of the store that are not read."""
    names = list(topics)
    return "; ".join(filter(None, (note_of_batches(store, names), *store.config.notes_of_topics(names))))


def note_of_batches(store: MessageStore, topics: Iterable[str]) -> str:
    """A sentence that some topics hold batches, whose messages no index knows; empty where none does."""
    names = [topic for topic in topics if store.queues.has_batches(topic)]
    if not names:
        return ""
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"the ids and keys of messages in batches are in no index, a search finds them; "
        f"there are batches in {', '.join(names[:MOST_NAMED])}{more}"
    )
