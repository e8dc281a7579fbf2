"""Java's way with strings: `String.hashCode`, and `new String(bytes, UTF_8)` for bytes that are no UTF-8.

Index slots, index entries and tag codes all come from `String.hashCode`, which runs over UTF-16 code units: a character
beyond U+FFFF counts as two surrogates. Keys are hashed after decoding, so the decoder has to agree with Java's on
malformed bytes as well. Source: store-format §2.5 and §3.3; compared with a JDK in `tests/protocol/test_message.py`.
"""

import re
import sys
from collections.abc import Iterable
from operator import mul

_BLOCK = 256
_POWERS = tuple(pow(31, exponent, 1 << 32) for exponent in range(_BLOCK + 1))
_UTF_16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"
# An encoded surrogate, whole or cut off after its second byte: one replacement in Java, one a byte in Python.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT = "\ufffd".encode()


def java_hash(text: str) -> int:
    """`text.hashCode()` of Java: an i32, h = 31·h + unit over the UTF-16 code units, wrapping."""
    # Powers meet the units from the end, so that one C-speed pass serves all keys of usual length.
    units: Iterable[int]
    if text.isascii():
        units, length = text[::-1].encode(), len(text)
    else:
        view = memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H")
        units, length = view[::-1], len(view)
    value = sum(map(mul, units, _POWERS)) if length <= _BLOCK else _long_hash(list(units))
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def _long_hash(reversed_units: list[int]) -> int:
    """The hash of any number of units, last unit first, a block at a time; not yet wrapped."""
    value, scale = 0, 1
    for start in range(0, len(reversed_units), _BLOCK):
        value += scale * sum(map(mul, reversed_units[start : start + _BLOCK], _POWERS))
        scale = scale * _POWERS[_BLOCK] & 0xFFFFFFFF
    return value


def index_hash(text: str) -> int:
    """The hash an index file stores for `text` (`topic#key`): 0 … 2³¹−1.

    Java's abs() of the smallest int is negative; the broker then stores 0, so that is where to look.
    """
    value = java_hash(text)
    return 0 if value == -(1 << 31) else abs(value)


def decode_java(data: bytes | memoryview) -> str:
    """Decode UTF-8 as Java does: every malformed sequence becomes U+FFFD, nothing is an error."""
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError:
        return _ENCODED_SURROGATE.sub(_REPLACEMENT, data).decode("utf-8", "replace")
