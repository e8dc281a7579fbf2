"""Find the message of a store that an id of any kind names: offset message id, physical offset, unique key."""

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

from protocol.errors import ConfigError
from protocol.mask import NO_MASK, Mask
from protocol.message import Message, decode_message, decode_messages
from protocol.message_id import MessageId
from protocol.question import Answer, KeyKind, Question, other_host, other_topic, places_of, taken_apart
from storage.amounts import counted

if TYPE_CHECKING:
    from storage.layout.store_layout import StoreLayout
    from storage.store.message_store import MessageStore


def find_surely(layout: "StoreLayout", text: str, topic: str | None = None, kind: str | None = None) -> Answer | None:
    """Find the message at an offset of either kind, as `find_in_store` would; None where the store must be opened."""
    from storage.query.sure_record import sure_record_at

    for _, physical_offset, message_id in places_of(text, kind)[:1]:
        record = sure_record_at(layout, physical_offset)
        if record is not None:
            message = decode_message(bytes(record), physical_offset=physical_offset)
            found = Answer(tuple(taken_apart(message)))
            return None if other_host(message, message_id) else at_place(found, topic)
    return None


def find_in_store(
    store: "MessageStore", text: str, *, topic: str | None = None, damaged: bool = False, mask: Mask = NO_MASK
) -> Answer:
    """Find an id of any kind in a store; `topic` is the message's, `damaged` forgives a wrong CRC.

    The host in an offset message id need not be the store's: archives move. By what `mask` hides nothing is found,
    though messages are given whole; raises ConfigError where nothing else may be meant.
    """
    places = places_of(text)
    for _, physical_offset, message_id in places:
        if message_id is None or store.message_by_offset_id(message_id) is not None:
            return at_place(_at(store, physical_offset, damaged), topic)
    try:
        mask.refuse_value("unique_key", text)
    except ConfigError:
        if not places:
            raise
        found = Answer()
    else:
        found = _by_unique_key(store, text, topic)
    if found.messages or not places:
        return found
    ((_, physical_offset, message_id),) = places
    return at_place(_at(store, physical_offset, damaged), topic, None if "store_host" in mask.fields else message_id)


def at_place(found: Answer, topic: str | None, message_id: MessageId | None = None) -> Answer:
    """Return the answer at a physical offset, empty for another topic's; with a note if an id names another host."""
    if not found.messages:
        return found
    if elsewhere := other_topic(found.messages[0], topic):
        return Answer(reason=elsewhere)
    note = other_host(found.messages[0], message_id)
    return replace(found, notes=(note, *found.notes)) if note else found


def _at(store: "MessageStore", physical_offset: int, damaged: bool) -> Answer:
    record = store.record_at(physical_offset)
    if record is not None:
        return Answer(tuple(taken_apart(decode_message(bytes(record), physical_offset=physical_offset))))
    reason = store.explain_absence(physical_offset)
    record = store.damaged_record_at(physical_offset)
    if record is None:
        return Answer(reason=f"no message there: {reason}")
    if not damaged:
        return Answer(reason=f"no message there: {reason}; `damaged` shows the record")
    message = decode_message(bytes(record), physical_offset=physical_offset, check_crc=False)
    return Answer(
        tuple(taken_apart(message)), notes=(f"the message at physical offset {physical_offset} is damaged: {reason}",)
    )


def _by_unique_key(store: "MessageStore", key: str, topic: str | None) -> Answer:
    """Look a unique key up in each topic: the index hashes it together with its topic's name."""
    from storage.query.search_report import summed
    from storage.store.topic_catalog import absence_of_topic

    store.finish_scan()
    topics = [topic] if topic else sorted({*store.queues.topics(), *store.config.topics})
    messages: list[Message] = []
    reports = []
    for name in topics:
        question = Question(topic=name, text=key, kind=KeyKind.UNIQUE, maximum=32)
        answer = store.query(question)
        messages += chain.from_iterable(map(question.messages_in, decode_messages(answer.records)))
        reports.append(answer.search)
    if messages:
        return Answer(tuple(sorted(messages, key=lambda message: message.physical_offset)))
    if not reports:
        return Answer(reason=f"no message with unique key {key}: the store knows no topic, name the message's")
    where = f"in topic {topic}" if topic else f"in any of {counted(len(topics), 'topic')}"
    unknown = None if topic else store.queues.why_unknown()
    if unknown is not None:
        where += f" that are known ({unknown})"
    absence = absence_of_topic(store, topic) if topic else ()
    notes = store.config.notes_of_topics(topics)
    reason = "; ".join((f"no message with unique key {key} {where}", *absence, *notes))
    return Answer(reason=reason, details=summed(reports).sentence())
