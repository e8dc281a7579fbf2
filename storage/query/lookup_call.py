"""The call of the kernel for key queries, with the query as a Python object."""

from enum import IntEnum

import msgspec

from storage.kernels import lookups as kernel
from storage.kernels.store_view import StoreView

MAXIMUM_OFFSET = 2**63 - 1
DEFAULT_BYTES = 15 * 1024 * 1024
"""Most bytes of records in one answer by default: less than the 16 MiB that clients accept in a frame."""

STEPS_AT_ONCE = 4096
"""Most entries that are walked on the event loop; a longer chain is walked on a thread that may wait."""

STEPS_UNBOUNDED = 2**62


class KeyKind(IntEnum):
    """The part of a message that a key query compares: KEYS or the unique key, only one of them, or the tag."""

    ANY = kernel.KIND_ANY
    KEY = kernel.KIND_KEY
    UNIQUE = kernel.KIND_UNIQUE
    TAG = kernel.KIND_TAG


UNIQUE = KeyKind.UNIQUE
TAG = KeyKind.TAG


class KeyQuery(msgspec.Struct, gc=False):
    """A query for the newest ``maximum`` messages of a topic that have a key.

    Their store times are from ``begin_timestamp`` to ``end_timestamp``, in ms and inclusive; for unique keys times do
    not count. Only records that start below ``before_physical_offset`` are found. An answer has at most
    ``maximum_bytes`` of records; the oldest are left out first.
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
        """Return the text that is hashed, in UTF-8, the length of its topic, and the position of its key."""
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
    """Run the kernel with the result of :meth:`KeyQuery.needle`; it finds at most MAXIMUM_HITS records."""
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
