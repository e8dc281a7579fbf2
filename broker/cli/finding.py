"""Find the message that any id names: an offset message id, a physical offset in decimal, or a unique key."""

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from broker.client import Client, ClientError, Question, ResponseError
from broker.config import Endpoint
from protocol.codes import ResponseCode
from protocol.errors import StoreError
from protocol.message import Message, decode_message, decode_messages
from protocol.message_id import MessageId, decode_message_id, is_offset_message_id_candidate

if TYPE_CHECKING:
    from storage.message_store import MessageStore

LARGEST_OFFSET = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Finding:
    """What an id names: mostly one message, several when a producer sent again, none with the `reason`.

    `note` says what is odd about a message that was found.
    """

    messages: tuple[Message, ...] = ()
    note: str = ""
    reason: str = ""


def physical_offset_of(text: str) -> int | None:
    """A decimal physical offset, None for any other text."""
    return int(text) if re.fullmatch(r"[0-9]{1,19}", text) and int(text) <= LARGEST_OFFSET else None


def message_id_of(text: str) -> MessageId | None:
    """The parts of what may be an offset message id, None for any other text."""
    return decode_message_id(text) if is_offset_message_id_candidate(text) else None


def find_in_store(store: "MessageStore", text: str, *, topic: str | None = None, damaged: bool = False) -> Finding:
    """Find an id of any kind in a store; `topic` narrows the search for a unique key, `damaged` forgives a wrong CRC.

    The host in an offset message id need not be the store's: archives move.
    """
    message_id = message_id_of(text)
    if message_id is not None and store.message_by_offset_id(message_id) is not None:
        return _at(store, message_id.physical_offset, damaged)
    physical_offset = physical_offset_of(text)
    if physical_offset is not None:
        return _at(store, physical_offset, damaged)
    finding = _by_unique_key(store, text, topic)
    if finding.messages or message_id is None:
        return finding
    finding = _at(store, message_id.physical_offset, damaged)
    if not finding.messages:
        return finding
    note = f"the id names {message_id.address}, the message there was stored by {finding.messages[0].store_host}"
    return replace(finding, note="; ".join(filter(None, (note, finding.note))))


def _at(store: "MessageStore", physical_offset: int, damaged: bool) -> Finding:
    record = store.record_at(physical_offset)
    if record is not None:
        return Finding((decode_message(record, physical_offset=physical_offset),))
    reason = store.explain_absence(physical_offset)
    record = store.damaged_record_at(physical_offset)
    if record is None:
        return Finding(reason=f"no message there: {reason}")
    if not damaged:
        return Finding(reason=f"no message there: {reason}; --damaged shows the record")
    message = decode_message(record, physical_offset=physical_offset, check_crc=False)
    return Finding((message,), note=f"the message at physical offset {physical_offset} is damaged: {reason}")


def _by_unique_key(store: "MessageStore", key: str, topic: str | None) -> Finding:
    """Look a unique key up in each topic: the index hashes it together with its topic's name."""
    from storage.lookup_call import KeyKind, KeyQuery

    store.finish_scan()
    topics = [topic] if topic else sorted({*store.queues.topics(), *store.config.topics})
    messages: list[Message] = []
    reports = []
    for name in topics:
        answer = store.query(KeyQuery(topic=name, key=key, kind=KeyKind.UNIQUE, maximum=32))
        messages += decode_messages(answer.records)
        reports.append(answer.search)
    if messages:
        return Finding(tuple(sorted(messages, key=lambda message: message.physical_offset)))
    if not reports:
        return Finding(reason=f"no message with unique key {key}: the store knows no topic, name one with --topic")
    report = replace(
        reports[-1],
        entries_walked=sum(report.entries_walked for report in reports),
        refused=sum(report.refused for report in reports),
    )
    where = f"in topic {topic}" if topic else f"in any of {len(topics)} topics"
    unknown = None if topic else store.queues.why_unknown()
    if unknown is not None:
        where += f" that are known ({unknown})"
    return Finding(reason=f"no message with unique key {key} {where}: {report.sentence()}")


async def find_on_server(client: Client, server: Endpoint | None, text: str, *, topic: str | None = None) -> Finding:
    """Ask `server` for an id of any kind, None: the server whose address stands in the id.

    Raises `ClientError` when there is no server to ask, or none that answers.
    """
    message_id, physical_offset = message_id_of(text), physical_offset_of(text)
    if message_id is not None:
        physical_offset = message_id.physical_offset
        server = server or Endpoint(message_id.address.ip, message_id.address.port)
    if server is None:
        raise ClientError(f"{text}: only an offset message id holds an address to dial; name one with --server")
    if physical_offset is None:
        return await _ask_by_unique_key(client, server, text, topic)
    finding = await _ask_by_offset(client, server, physical_offset, topic)
    if finding.messages or message_id is None or not topic:
        return finding
    # As Java clients do: what looks like an offset id may be a unique key after all.
    by_unique_key = await _ask_by_unique_key(client, server, text, topic)
    return by_unique_key if by_unique_key.messages else finding


async def _ask_by_offset(client: Client, server: Endpoint, physical_offset: int, topic: str | None) -> Finding:
    try:
        record = await client.view(server, physical_offset, topic or "")
    except ResponseError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            raise ClientError(
                f"{server} is no broker (a name server, perhaps): --server takes a broker here"
            ) from error
        return Finding(reason=str(error))
    try:
        return Finding((decode_message(record, physical_offset=physical_offset),))
    except StoreError as error:
        return Finding(reason=f"{server} answered bytes that are no message: {error}")


async def _ask_by_unique_key(client: Client, server: Endpoint, key: str, topic: str | None) -> Finding:
    """Ask for a unique key in one topic, else in every topic that the server knows."""
    try:
        topics = [topic] if topic else await client.topics(server)
    except ResponseError as error:
        raise ClientError(f"{key} may be a unique key: name its topic with --topic ({error})") from error
    reasons = []
    for name in topics:
        page = await client.query(server, Question(name, key, "U", maximum=32))
        if page.records:
            return Finding(tuple(decode_messages(page.records)))
        reasons.append(page.remark)
    where = f"in topic {topic}" if topic else f"in any of {len(topics)} topics"
    last = f": {reasons[-1]}" if reasons else ""
    return Finding(reason=f"{server} has no message with unique key {key} {where}{last}")
