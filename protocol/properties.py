"""The property block of a message: `name 0x01 value 0x02`, parsed by the broker's own rules.

The rules decide what gets indexed (store-format §2.5). On the decoded text: split at 0x02, the last one may be missing;
of each piece, everything before the first 0x01 is the name and everything behind it (further 0x01 included) the value;
a piece without 0x01, with an empty name or with an empty value is dropped; of equal names the last wins. Here the split
runs on the bytes, and only names and values are decoded: both separators are ASCII, and no malformed UTF-8 sequence
reaches across one.

The block on disk is opaque: its order is that of a Java hash map, so it is cut or extended in place, never built anew.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final
from unicodedata import decimal

from protocol.java_hash import decode_java

NAME_SEPARATOR: Final = b"\x01"
PROPERTY_SEPARATOR: Final = b"\x02"

MASKED: Final = "***"
"""What replaces a value that may not be seen (:mod:`protocol.mask`)."""

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_GROUP: Final = "ORIGIN_GROUP"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RECONSUME_TIME: Final = "RECONSUME_TIME"
MSG_REGION: Final = "MSG_REGION"
TRACE_ON: Final = "TRACE_ON"
INNER_NUM: Final = "INNER_NUM"
INNER_BASE: Final = "INNER_BASE"
DUP_INFO: Final = "DUP_INFO"
TRAN_PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
INSTANCE_ID: Final = "INSTANCE_ID"
CLUSTER: Final = "CLUSTER"
INNER_MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
INNER_MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
SHARDING_KEY: Final = "__SHARDINGKEY"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
TRANS_OFFSET: Final = "TRANS_OFFSET"
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
PROPERTY_CRC: Final = "__CRC32#"
BORN_HOST: Final = "__BORNHOST"
"""Behind a proxy: the client's address or host name; the record's born host is the proxy's (remoting-protocol §7)."""
BORN_TIMESTAMP: Final = "BORN_TIMESTAMP"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
FIRST_POP_TIME: Final = "1ST_POP_TIME"


_INTEGER: Final = re.compile(r"[+-]?\d+")
_LONGEST_INTEGER: Final = 19  # digits of an i64
_LAST_UNIT: Final = "\uffff"


def parse_properties(data: bytes | memoryview) -> dict[str, str]:
    """All properties of a block, in the order in which their names first stand there. Never fails."""
    try:
        text = str(data, "utf-8")
    except UnicodeDecodeError:
        return {decode_java(name): decode_java(value) for name, value in _pairs(bytes(data))}
    # Decoded once, not piece by piece: the separators are where they are in the bytes.
    pieces = [piece.partition("\x01") for piece in text.split("\x02")]
    return {name: value for name, _, value in pieces if name and value}


def property_value(data: bytes | memoryview, name: str) -> str | None:
    """The value of one property, without parsing the others; `None` when the block has none.

    Equal to `parse_properties(data).get(name)` for every name without separators, U+FFFD and unpaired surrogates.
    """
    data = bytes(data)
    needle = name.encode("utf-8", "replace") + NAME_SEPARATOR
    position = data.rfind(needle)
    while position >= 0:  # from behind: the last of equal names wins
        start = position + len(needle)
        end = data.find(PROPERTY_SEPARATOR, start)
        end = len(data) if end < 0 else end
        if end > start and position + 1 < start and (position == 0 or data[position - 1] == PROPERTY_SEPARATOR[0]):
            return decode_java(data[start:end])
        position = data.rfind(needle, 0, start - 1)
    return None


def integer_in(text: str | None, bits: int) -> int | None:
    """What Java's `parseShort`, `parseInt` or `parseLong` makes of a property's value; None for what they refuse.

    Digits may be of any script, as long as one UTF-16 unit holds each; a value may have thousands of them.
    """
    if text is None or not _INTEGER.fullmatch(text) or max(text) > _LAST_UNIT:
        return None
    digits = "".join(str(decimal(each)) for each in text.lstrip("+-")).lstrip("0") or "0"
    if len(digits) > _LONGEST_INTEGER:
        return None
    number = -int(digits) if text[0] == "-" else int(digits)
    return number if -(1 << (bits - 1)) <= number < 1 << (bits - 1) else None


def split_keys(keys: str) -> list[str]:
    """The business keys joined in KEYS: only U+0020 separates, empty pieces vanish, repeats stay."""
    return [key for key in keys.split(" ") if key]


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The block for `properties` in their order, each terminated; an unpaired surrogate becomes `?`, as in Java."""
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items()).encode("utf-8", "replace")


def remove_property(data: bytes | memoryview, name: str) -> bytes:
    """The block without any entry named `name`; every other byte stays where it was, in its order."""
    prefix = name.encode("utf-8", "replace") + NAME_SEPARATOR
    pieces = bytes(data).split(PROPERTY_SEPARATOR)
    kept = [piece for piece in pieces if not piece.startswith(prefix)]
    if len(kept) == len(pieces):
        return bytes(data)
    if kept and not pieces[-1].startswith(prefix):
        return PROPERTY_SEPARATOR.join(kept)
    # The removed entry was the last and had no terminator: the one before keeps its own.
    return b"".join(piece + PROPERTY_SEPARATOR for piece in kept)


def _pairs(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Names and values that the broker's parser would keep, undecoded."""
    for piece in data.split(PROPERTY_SEPARATOR):
        name, _, value = piece.partition(NAME_SEPARATOR)
        if name and value:
            yield name, value
