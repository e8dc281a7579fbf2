"""What key queries of the server and of the command line have in common."""

from protocol.errors import StoreError
from storage.store.message_store import MessageStore, QueryAnswer


def explain_nothing(store: MessageStore, topic: str, answer: QueryAnswer) -> str:
    """Say in one or two sentences what was searched in vain."""
    if answer.refusal is not None:
        return answer.refusal
    return "; ".join(filter(None, (explain_queues(store, topic), answer.search.sentence())))


def explain_queues(store: MessageStore, topic: str) -> str:
    """A sentence about the queues of a topic in which nothing was found; empty where there is nothing to say of them.

    May wait unless the store's queues are `listed`.
    """
    try:
        ids = store.queues.queue_ids(topic)
    except StoreError as error:
        return str(error)
    return "; ".join(store.config.notes_of_topics((topic,))) if ids else f"this store has no queue of topic {topic}"
