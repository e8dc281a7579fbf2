"""Calling the lookup kernel: the query in Python terms."""

from enum import IntEnum

import msgspec

from storage.kernels import lookups as kernel
from storage.kernels.store_view import StoreView

MAXIMUM_OFFSET = 2**63 - 1
DEFAULT_BYTES = 15 * 1024 * 1024
"""Bytes of records in one answer, unless asked otherwise: below the 16 MiB that clients accept in a frame."""

STEPS_AT_ONCE = 4096
"""Entries walked on a thread that may not wait; a longer chain is walked on another."""

STEPS_UNBOUNDED = 2**62


class KeyKind(IntEnum):
    """What a key query compares: KEYS or the unique key, KEYS alone, the unique key alone, the tag."""

    ANY = kernel.KIND_ANY
    KEY = kernel.KIND_KEY
    UNIQUE = kernel.KIND_UNIQUE
    TAG = kernel.KIND_TAG


UNIQUE = KeyKind.UNIQUE
TAG = KeyKind.TAG


class KeyQuery(msgspec.Struct, gc=False):
    """Which messages are wanted: the newest ``maximum`` of a topic that carry a key.

    ``begin_timestamp`` ≤ store time ≤ ``end_timestamp`` in ms (unique keys have no window); only records that start
    below ``before_physical_offset``; at most ``maximum_bytes`` of records, the oldest dropped first.
    """

    topic: str
    key: str
    kind: KeyKind = KeyKind.ANY
    maximum: int = 64
    begin_timestamp: int = 0
    end_timestamp: int = MAXIMUM_OFFSET
    before_physical_offset: int = MAXIMUM_OFFSET
    maximum_bytes: int = DEFAULT_BYTES

    def needle(self) -> tuple[bytes, int, int]:
        """The text that is hashed, in UTF-8, the length of its topic, and the position of its key."""
        infix = "#T#" if self.kind is TAG else "#"
        try:
            topic = len(self.topic.encode())
            return f"{self.topic}{infix}{self.key}".encode(), topic, topic + len(infix)
        except UnicodeEncodeError:  # a lone surrogate, which no stored text can hold
            topic = len(self.topic.encode("utf-8", "surrogatepass"))
            whole = f"{self.topic}{infix}{self.key}"
            return whole.encode("utf-8", "surrogatepass"), topic, topic + len(infix)


def run_lookup(
    view: StoreView, query: KeyQuery, needle: bytes, topic: int, key: int, tick: int, *, tags_only: bool = False
) -> kernel.Found:
    """Run the kernel, with what :meth:`KeyQuery.needle` says; MAXIMUM_HITS are found at most."""
    return kernel.look_up(
        view,
        needle,
        topic,
        key,
        query.kind,
        min(query.maximum, kernel.MAXIMUM_HITS),
        query.begin_timestamp,
        query.end_timestamp,
        query.before_physical_offset,
        query.maximum_bytes,
        tick,
        STEPS_AT_ONCE if tick else STEPS_UNBOUNDED,
        tags_only,
    )
