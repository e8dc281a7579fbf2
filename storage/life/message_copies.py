"""The copies of a message that a broker keeps under topics of its own: while it waits, after it failed, at its end.

A delayed message waits under the schedule topic or the timer's, one of a transaction under the half topic; one that a
group failed to consume comes back under the group's retry topic, by way of the schedule topic, and ends under its
dead-letter topic. Each keeps its unique key, keys and tag and says where it belongs, and is indexed under the topic
where it waits. Source: store-format §2.11.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from protocol.message import Message, decode_message
from protocol.question import Question
from protocol.system_topics import Origin, Stage, stage_of
from storage.life.origins import Origins, Search
from storage.query.search_report import joined_clauses
from storage.store.message_store import MessageStore, QueryAnswer


def copy_topics(store: MessageStore) -> list[str]:
    """The topics of a store under which copies may be found."""
    topics = {*store.queues.topics(), *store.config.topics}
    return sorted(topic for topic in topics if stage_of(topic) is not Stage.DELIVERED)


_Record: TypeAlias = tuple[Message, memoryview, int]
"""A message, its record, and where that is in the store's log; negative for one of a tier."""


def query_with_copies(search: Search, query: Question, topics: Iterable[str], origins: Origins) -> QueryAnswer:
    """The newest `query.maximum` matches of a topic, their copies under `topics` among them. Waits for the disk.

    A copy of which it is not known whether it was sent to this topic or to another one counts as a match. Where nothing
    is found the answer says what was searched under the topic itself.
    """
    own = search(query)
    found = [*_records(own)]
    # Below the highest place where a search was cut nothing is complete.
    complete_from = own.cursor
    incomplete = own.incomplete
    for topic in topics:
        if topic != query.topic:
            copies, cut_at, note = _copies_under(search, topic, query, origins)
            found += copies
            complete_from = max(complete_from or 0, cut_at) if cut_at is not None else complete_from
            incomplete = joined_clauses((incomplete, note))
    found = [each for each in found if complete_from is None or each[2] >= complete_from]
    found.sort(key=lambda each: -each[2])
    kept = _within_limits(found, query)[::-1]
    return msgspec.structs.replace(
        own,
        records=b"".join(record for _, record, _ in kept),
        count=len(kept),
        truncated=complete_from is not None or len(kept) < len(found) or (own.truncated and not kept),
        incomplete=incomplete,
        decoded=tuple((place, len(record)) for _, record, place in kept),
    )


def _within_limits(newest_first: list[_Record], query: Question) -> list[_Record]:
    """As many records as the query allows by number and bytes, one at least."""
    kept: list[_Record] = []
    total = 0
    for each in newest_first:
        total += len(each[1])
        if kept and (len(kept) == query.maximum or total > query.maximum_bytes):
            break
        kept.append(each)
    return kept


def _copies_under(
    search: Search, topic: str, query: Question, origins: Origins
) -> tuple[list[_Record], int | None, str | None]:
    """The newest copies under one topic of messages of `query.topic`; where the search was cut; what may be missing."""
    found: list[_Record] = []
    missing: str | None = None
    page = msgspec.structs.replace(query, topic=topic)
    while True:
        answer = search(page)
        missing = joined_clauses((missing, answer.incomplete))
        found += [each for each in _records(answer) if _may_be_of(query.topic, origins.found(each[0], search))]
        before = answer.cursor
        if before is None or len(found) >= query.maximum:
            return found, before, missing
        page = msgspec.structs.replace(page, before_physical_offset=before)


def _may_be_of(topic: str, origin: Origin) -> bool:
    return topic == origin.topic or any(topic == popped for _, popped in origin.readings)


def _records(answer: QueryAnswer) -> Iterator[_Record]:
    records, position = memoryview(answer.records), 0
    for physical_offset, size in zip(answer.physical_offsets, answer.sizes, strict=True):
        record = records[position : position + size]
        own = physical_offset if physical_offset >= 0 else None
        yield decode_message(record, physical_offset=own), record, physical_offset
        position += size
