"""What traced clients report about a message: the bodies of the trace topic (RMQ_SYS_TRACE_TOPIC, or one's own).

A body is a row of records, each ended by 0x02, of fields with 0x01 between them, the first naming the kind. What the
fields are can be read in `TraceDataEncoder` of the 5.5.0 client; older clients leave out the last ones.
"""

import re
from collections.abc import Iterator
from enum import Enum
from typing import Any, Final

import msgspec

FIELD_END: Final = "\x01"
RECORD_END: Final = "\x02"

OUTCOMES: Final = ("SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED")
"""ConsumeReturnType by its ordinal, which a consumer's last record has."""


class TraceKind(Enum):
    """What a client did; the value is its name in a record."""

    SENT = "Pub"
    CONSUMING = "SubBefore"
    CONSUMED = "SubAfter"
    ENDED_TRANSACTION = "EndTransaction"
    RECALLED = "Recall"


class Trace(msgspec.Struct, frozen=True, rename="camel"):
    """One record of a trace; times in milliseconds. Fields are None if the kind or the client does not report them."""

    kind: TraceKind
    message_id: str
    timestamp: int | None = None
    group: str | None = None
    topic: str | None = None
    success: bool | None = None
    cost_milliseconds: int | None = None
    request_id: str | None = None
    """What a consumer's first and second record have in common."""
    retry_times: int | None = None
    outcome: str | None = None
    """What the consumer returned, or the state that a transaction ended in."""
    client_host: str | None = None


_RECORD: Final = re.compile(rb"\x02(?:%b)\x01" % "|".join(kind.value for kind in TraceKind).encode())
_LONGEST: Final = 2 + max(len(kind.value) for kind in TraceKind)
_PIECE: Final = 1 << 20
"""Bytes of a body that are looked through at a time; between them other threads run."""


def holds_traces(body: bytes | memoryview) -> bool:
    """Whether a record begins in a body, complete or not."""
    for start in range(0, len(body), _PIECE):
        piece = bytes(body[start : start + _PIECE + _LONGEST])
        if b"\x01" in piece and _RECORD.search(piece if start else b"\x02" + piece) is not None:
            return True
    return False


def decode_traces(body: bytes | memoryview) -> Iterator[Trace]:
    """Yield the records of a trace message's body; bytes that are no record are left out."""
    for record in bytes(body).decode("utf-8", "replace").split(RECORD_END):
        fields = record.split(FIELD_END)
        kind = _KINDS.get(fields[0])
        if kind is None:
            continue
        try:
            yield _READERS[kind](kind, fields)
        except (ValueError, IndexError):
            continue


def _at_a_time(kind: TraceKind, fields: list[str], **more: Any) -> Trace:
    """A record of any kind that begins with its time and group."""
    return Trace(kind, message_id=fields[5], timestamp=int(fields[1]), group=fields[3], **more)


def _sent(kind: TraceKind, fields: list[str]) -> Trace:
    # The outcome of the sending moved by one when the offset message id was put before it.
    success = 12 if len(fields) == 13 else 13
    return _at_a_time(
        kind,
        fields,
        topic=fields[4],
        success=_truth(fields[success]) if len(fields) > success else None,
        cost_milliseconds=int(fields[10]),
        client_host=fields[14] if len(fields) > 14 else None,
    )


def _consuming(kind: TraceKind, fields: list[str]) -> Trace:
    return _at_a_time(kind, fields, request_id=fields[4], retry_times=int(fields[6]))


def _consumed(kind: TraceKind, fields: list[str]) -> Trace:
    outcome = int(fields[6]) if len(fields) > 6 else -1
    return Trace(
        kind,
        message_id=fields[2],
        request_id=fields[1],
        cost_milliseconds=int(fields[3]),
        success=_truth(fields[4]),
        outcome=OUTCOMES[outcome] if 0 <= outcome < len(OUTCOMES) else None,
        timestamp=int(fields[7]) if len(fields) > 8 else None,
        group=fields[8] if len(fields) > 8 else None,
    )


def _ended(kind: TraceKind, fields: list[str]) -> Trace:
    return _at_a_time(kind, fields, topic=fields[4], outcome=fields[11])


def _recalled(kind: TraceKind, fields: list[str]) -> Trace:
    return _at_a_time(kind, fields, topic=fields[4], success=_truth(fields[6]))


def _truth(text: str) -> bool:
    return text.lower() == "true"


_KINDS: Final = {kind.value: kind for kind in TraceKind}
_READERS: Final = {
    TraceKind.SENT: _sent,
    TraceKind.CONSUMING: _consuming,
    TraceKind.CONSUMED: _consumed,
    TraceKind.ENDED_TRANSACTION: _ended,
    TraceKind.RECALLED: _recalled,
}
