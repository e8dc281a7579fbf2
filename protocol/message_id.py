"""Offset message ids: where a message is stored, in 32 (IPv4) or 56 (IPv6) hex digits.

Such an id is the store host's address and the physical offset; Java prints upper-case digits:

V4_MESSAGE_ID
offset  size  type   field            meaning
0       4     bytes  ip               16 bytes in the long form
4       4     i32    port             0 to 65535 in any id that a client can dial
8       8     i64    physical_offset

A unique key, made by the producer, has the same lengths, and its process id is where the port's upper half is: so the
two can be distinguished, except for process ids that are multiples of 65536.
Source: store-format §2.12, remoting-protocol §8.1.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final

from protocol.errors import BadMessageId, quote
from protocol.host_address import HIDDEN, HostAddress

V4_MESSAGE_ID: Final = Struct(">4siq")
V6_MESSAGE_ID: Final = Struct(">16siq")

V4_ID_LENGTH: Final = 2 * V4_MESSAGE_ID.size
V6_ID_LENGTH: Final = 2 * V6_MESSAGE_ID.size
MAXIMUM_PORT: Final = 65535

_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


@dataclass(frozen=True, slots=True)
class MessageId:
    """An offset message id: the broker that stored the message, and where in its commit log it starts."""

    address: HostAddress
    physical_offset: int

    def __str__(self) -> str:
        return encode_message_id(self.address, self.physical_offset)


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
    """The offset message id as Java prints it: 32 or 56 upper-case hex digits; asterisks for a hidden address."""
    if address.is_hidden:
        return HIDDEN
    layout = V6_MESSAGE_ID if address.is_ipv6 else V4_MESSAGE_ID
    return layout.pack(address.raw_ip, address.port, physical_offset).hex().upper()


def is_offset_message_id_candidate(text: str) -> bool:
    """Whether `text` may be an offset message id: of its length, all hex, and with a port that can be."""
    if len(text) not in (V4_ID_LENGTH, V6_ID_LENGTH):
        return False
    # The port first: it rules out nearly every unique key, and costs less.
    port_digits = len(text) - 2 * (V4_MESSAGE_ID.size - 4)
    return text.startswith("0000", port_digits) and _HEX_DIGITS.issuperset(text)


def _raw_id(text: str) -> bytes:
    if len(text) not in (V4_ID_LENGTH, V6_ID_LENGTH):
        expected = f"{V4_ID_LENGTH} hex digits (IPv4) or {V6_ID_LENGTH} (IPv6)"
        raise BadMessageId(f"message id {quote(text)}: length {len(text)}, expected {expected}")
    for position, character in enumerate(text):
        if character not in _HEX_DIGITS:
            raise BadMessageId(f"message id {text!r}: {character!r} at position {position} is no hex digit")
    return bytes.fromhex(text)
