"""What key queries of the server and of the command line have in common."""

from protocol.errors import StoreError
from storage.query.lookup_call import KeyKind
from storage.store.message_store import MessageStore, QueryAnswer

FIRST_PAGE = 2**63 - 1
"""A physical offset above that of every match."""

KINDS = {"K": KeyKind.KEY, "U": KeyKind.UNIQUE, "T": KeyKind.TAG}
"""indexType on the wire; absent, empty or anything else looks up keys and unique keys alike, as a broker does."""


def explain_nothing(store: MessageStore, topic: str, answer: QueryAnswer) -> str:
    """Say in one or two sentences what was searched in vain; the command line prints the same."""
    if answer.refusal is not None:
        return answer.refusal
    sentence = answer.search.sentence()
    if store.layout.lacks_queues:
        return f"consumequeue/ is missing, the store is served without it; {sentence}"
    try:
        ids = store.queues.queue_ids(topic)
    except StoreError as error:
        return f"{error}; {sentence}"
    return sentence if ids else f"this store has no queue of topic {topic}; {sentence}"
