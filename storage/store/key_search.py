"""What key queries of the server and of the command line have in common."""

from protocol.errors import StoreError
from storage.query.lookup_call import KeyKind
from storage.store.message_store import MessageStore, QueryAnswer

FIRST_PAGE = 2**63 - 1
"""A physical offset above that of every match."""

KINDS = {"K": KeyKind.KEY, "U": KeyKind.UNIQUE, "T": KeyKind.TAG}
"""indexType on the wire; absent, empty or anything else looks up keys and unique keys alike, as a broker does."""


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
    return "" if ids else f"this store has no queue of topic {topic}"
