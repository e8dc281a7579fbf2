"""Which records carry a key, by the index files and what was scanned besides them.

One of the ways to a search's messages, beside `_by_queue` and `_by_time`, between which `plan` chooses.
"""

from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from protocol.question import Question
from protocol.system_topics import LIGHT_PREFIX
from storage.kernels.lookups import MAXIMUM_HITS, NEEDLE_BYTES
from storage.search.criteria import Criteria
from storage.store.message_store import MessageStore

MOST_PAGES: Final = 50
"""Of a key that more messages carry than fit so many pages: to walk its chain again and again would take longer."""


def offsets_by_index(store: MessageStore, criteria: Criteria) -> npt.NDArray[np.int64] | None:
    """Physical offsets, ascending, of all records of the topic with the key; None where the index does not know them.

    It does not know them for a search without topic or key, while something is still to be scanned or checked, for a
    topic of batches, whose messages have keys that are in no index, for a light topic, whose messages bear others, and
    for a key of very many messages. Waits.
    """
    if criteria.topic is None or criteria.key is None or criteria.topic.startswith(LIGHT_PREFIX):
        return None
    snapshot = store.snapshot
    config = snapshot.config.topics.get(criteria.topic)
    if snapshot.queues.has_batches(criteria.topic) or (config and config.has_batches):
        return None
    query = Question(
        topic=criteria.topic,
        text=criteria.key,
        maximum=MAXIMUM_HITS,
        begin_timestamp=criteria.begin_timestamp,
        end_timestamp=criteria.end_timestamp,
    )
    if snapshot.tail.remaining or snapshot.index.unchecked or len(query.needle()[0]) > NEEDLE_BYTES:
        return None
    found: list[int] = []
    for _ in range(MOST_PAGES):
        answer = store.query(query)
        found += answer.physical_offsets
        if not answer.truncated:
            return np.unique(np.array(found, np.int64))
        query = msgspec.structs.replace(query, before_physical_offset=answer.physical_offsets[0])
    return None
