"""The two ids of a message, both 32 (IPv4) or 56 (IPv6) hex digits: where it is stored, and who made it when.

An offset message id is the store host's address and the physical offset; Java prints upper-case digits:

V4_MESSAGE_ID
offset  size  type   field            meaning
0       4     bytes  ip               16 bytes in the long form
4       4     i32    port             0 to 65535 in any id that a client can dial
8       8     i64    physical_offset

A unique key is made by the producer:

V4_UNIQUE_KEY
offset  size  type   field              meaning
0       4     bytes  ip                 16 bytes in the long form
4       2     u16    pid                the low 16 bits
6       4     i32    class_loader_hash
10      4     u32    month_timestamp    ms since the month began on the producer's clock, in its time zone
14      2     u16    counter

Read as an offset message id, a unique key's pid becomes the port's upper half: that tells the two apart, but for pids
that are multiples of 65536. Neither month nor time zone stands in a unique key: its time is a list of candidates.
Source: store-format §2.12, remoting-protocol §8.1.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from struct import Struct
from typing import Final

from protocol.errors import BadMessageId, quote
from protocol.host_address import HostAddress

V4_MESSAGE_ID: Final = Struct(">4siq")
V6_MESSAGE_ID: Final = Struct(">16siq")
V4_UNIQUE_KEY: Final = Struct(">4sHiIH")
V6_UNIQUE_KEY: Final = Struct(">16sHiIH")

V4_ID_LENGTH: Final = 2 * V4_MESSAGE_ID.size
V6_ID_LENGTH: Final = 2 * V6_MESSAGE_ID.size
MAXIMUM_PORT: Final = 65535
CANDIDATE_MONTHS: Final = 12

_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class MessageId:
    """An offset message id: the broker that stored the message, and where in its commit log it starts."""

    address: HostAddress
    physical_offset: int

    def __str__(self) -> str:
        return encode_message_id(self.address, self.physical_offset)


@dataclass(frozen=True, slots=True)
class UniqueKey:
    """A unique key's parts. `timestamps` are the candidates for when it was made, in ms, the most likely first."""

    host: str
    pid: int
    class_loader_hash: int
    timestamps: tuple[int, ...]
    counter: int


def decode_message_id(text: str) -> MessageId:
    """The address and physical offset in an offset message id, in either case.

    Raises `BadMessageId` naming the length, the first character that is no hex digit, or the port.
    """
    raw = _raw_id(text)
    layout = V4_MESSAGE_ID if len(text) == V4_ID_LENGTH else V6_MESSAGE_ID
    ip, port, physical_offset = layout.unpack(raw)
    if not 0 <= port <= MAXIMUM_PORT:
        raise BadMessageId(f"message id {text!r}: port {port} is outside 0 to {MAXIMUM_PORT} (a unique key, perhaps)")
    return MessageId(HostAddress.from_raw(ip, port), physical_offset)


def encode_message_id(address: HostAddress, physical_offset: int) -> str:
    """The offset message id as Java prints it: 32 or 56 upper-case hex digits."""
    layout = V6_MESSAGE_ID if address.is_ipv6 else V4_MESSAGE_ID
    return layout.pack(address.raw_ip, address.port, physical_offset).hex().upper()


def is_offset_message_id_candidate(text: str) -> bool:
    """Whether `text` may be an offset message id: of its length, all hex, and with a port that can be."""
    if len(text) not in (V4_ID_LENGTH, V6_ID_LENGTH):
        return False
    # The port first: it tells nearly every unique key apart, and costs less.
    port_digits = len(text) - 2 * (V4_MESSAGE_ID.size - 4)
    return text.startswith("0000", port_digits) and _HEX_DIGITS.issuperset(text)


def decode_unique_key(text: str, *, now_timestamp: int, utc_offset_minutes: int = 0) -> UniqueKey | None:
    """The parts of a unique key, `None` for a text of another shape (clients may set any string as unique key).

    The time candidates are one a month for the 12 months up to `now_timestamp` (ms), newest first: never later than
    `now_timestamp`, and only months that are long enough. They hold for producers at `utc_offset_minutes` from UTC.
    """
    if len(text) not in (V4_ID_LENGTH, V6_ID_LENGTH) or not _HEX_DIGITS.issuperset(text):
        return None
    layout = V4_UNIQUE_KEY if len(text) == V4_ID_LENGTH else V6_UNIQUE_KEY
    ip, pid, class_loader_hash, since_month_start, counter = layout.unpack(bytes.fromhex(text))
    timestamps = _time_candidates(since_month_start, now_timestamp, utc_offset_minutes)
    return UniqueKey(HostAddress.from_raw(ip, 0).ip, pid, class_loader_hash, timestamps, counter)


def _raw_id(text: str) -> bytes:
    if len(text) not in (V4_ID_LENGTH, V6_ID_LENGTH):
        expected = f"{V4_ID_LENGTH} hex digits (IPv4) or {V6_ID_LENGTH} (IPv6)"
        raise BadMessageId(f"message id {quote(text)}: length {len(text)}, expected {expected}")
    for position, character in enumerate(text):
        if character not in _HEX_DIGITS:
            raise BadMessageId(f"message id {text!r}: {character!r} at position {position} is no hex digit")
    return bytes.fromhex(text)


def _time_candidates(since_month_start: int, now_timestamp: int, utc_offset_minutes: int) -> tuple[int, ...]:
    """The times `since_month_start` ms into each of the latest months, newest first; none outside Python's calendar."""
    candidates = []
    try:
        now = (_EPOCH + now_timestamp * _MILLISECOND).astimezone(timezone(timedelta(minutes=utc_offset_minutes)))
        start, end = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0), now + _MILLISECOND
        for _ in range(CANDIDATE_MONTHS):
            candidate = start + since_month_start * _MILLISECOND
            if candidate < end:
                candidates.append((candidate - _EPOCH) // _MILLISECOND)
            start, end = (start - timedelta(days=1)).replace(day=1), start
    except (OverflowError, ValueError):
        pass
    return tuple(candidates)
