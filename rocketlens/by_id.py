"""Find the message of a store that an id of any kind names: offset message id, physical offset, unique key."""

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from protocol.errors import ConfigError
from protocol.mask import NO_MASK, Mask
from protocol.message import Message, decode_message, decode_messages
from protocol.message_id import MessageId, decode_message_id, is_offset_message_id_candidate
from rocketlens.answers import Messages
from storage.amounts import counted

if TYPE_CHECKING:
    from storage.layout.store_layout import StoreLayout
    from storage.store.message_store import MessageStore

LARGEST_OFFSET: Final = 2**63 - 1


def physical_offset_of(text: str) -> int | None:
    """A decimal physical offset, None for any other text."""
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) and int(text) <= LARGEST_OFFSET else None


def message_id_of(text: str) -> MessageId | None:
    """The parts of what may be an offset message id, None for any other text."""
    return decode_message_id(text) if is_offset_message_id_candidate(text) else None


def find_surely(layout: "StoreLayout", text: str) -> Messages | None:
    """Find the message at an offset of either kind, as `find_in_store` would; None where the store must be opened."""
    from storage.query.sure_record import sure_record_at

    message_id, physical_offset = message_id_of(text), physical_offset_of(text)
    if message_id is not None:
        physical_offset = message_id.physical_offset
    record = None if physical_offset is None else sure_record_at(layout, physical_offset)
    if record is None:
        return None
    message = decode_message(bytes(record), physical_offset=physical_offset)
    is_other = message_id is not None and message.store_host != message_id.address
    return None if is_other else Messages((message,))


def find_in_store(
    store: "MessageStore", text: str, *, topic: str | None = None, damaged: bool = False, mask: Mask = NO_MASK
) -> Messages:
    """Find an id of any kind in a store; `topic` narrows the search for a unique key, `damaged` forgives a wrong CRC.

    The host in an offset message id need not be the store's: archives move. By what `mask` hides nothing is found,
    though messages are given whole; raises ConfigError where nothing else may be meant.
    """
    message_id = message_id_of(text)
    if message_id is not None and store.message_by_offset_id(message_id) is not None:
        return _at(store, message_id.physical_offset, damaged)
    physical_offset = physical_offset_of(text)
    if physical_offset is not None:
        return _at(store, physical_offset, damaged)
    try:
        mask.refuse_value("unique_key", text)
    except ConfigError:
        if message_id is None:
            raise
        found = Messages()
    else:
        found = _by_unique_key(store, text, topic)
    if found.messages or message_id is None:
        return found
    found = _at(store, message_id.physical_offset, damaged)
    if not found.messages:
        return found
    if "store_host" in mask.fields:
        return found
    note = f"the id names {message_id.address}, the message there was stored by {found.messages[0].store_host}"
    return replace(found, notes=(note, *found.notes))


def _at(store: "MessageStore", physical_offset: int, damaged: bool) -> Messages:
    record = store.record_at(physical_offset)
    if record is not None:
        return Messages((decode_message(bytes(record), physical_offset=physical_offset),))
    reason = store.explain_absence(physical_offset)
    record = store.damaged_record_at(physical_offset)
    if record is None:
        return Messages(reason=f"no message there: {reason}")
    if not damaged:
        return Messages(reason=f"no message there: {reason}; the option damaged shows the record")
    message = decode_message(bytes(record), physical_offset=physical_offset, check_crc=False)
    return Messages((message,), notes=(f"the message at physical offset {physical_offset} is damaged: {reason}",))


def _by_unique_key(store: "MessageStore", key: str, topic: str | None) -> Messages:
    """Look a unique key up in each topic: the index hashes it together with its topic's name."""
    from storage.query.lookup_call import KeyKind, KeyQuery
    from storage.query.search_report import summed
    from storage.store.topic_catalog import absence_of_topic

    store.finish_scan()
    topics = [topic] if topic else sorted({*store.queues.topics(), *store.config.topics})
    messages: list[Message] = []
    reports = []
    for name in topics:
        answer = store.query(KeyQuery(topic=name, key=key, kind=KeyKind.UNIQUE, maximum=32))
        messages += decode_messages(answer.records)
        reports.append(answer.search)
    if messages:
        return Messages(tuple(sorted(messages, key=lambda message: message.physical_offset)))
    if not reports:
        return Messages(reason=f"no message with unique key {key}: the store knows no topic, name the message's")
    where = f"in topic {topic}" if topic else f"in any of {counted(len(topics), 'topic')}"
    unknown = None if topic else store.queues.why_unknown()
    if unknown is not None:
        where += f" that are known ({unknown})"
    absence = absence_of_topic(store, topic) if topic else ()
    reason = "; ".join((f"no message with unique key {key} {where}", *absence))
    return Messages(reason=reason, details=summed(reports).sentence())
