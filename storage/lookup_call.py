"""Calling the lookup kernel: the query in Python terms, scratch memory a thread, and what came back."""

import threading
from enum import IntEnum

import msgspec
import numpy as np

from storage.kernels import lookup as kernel

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
        """What is hashed, UTF-8; the length of its topic; the position of its key."""
        infix = "#T#" if self.kind is TAG else "#"
        try:
            topic = len(self.topic.encode())
            return f"{self.topic}{infix}{self.key}".encode(), topic, topic + len(infix)
        except UnicodeEncodeError:  # a lone surrogate, which no stored text can hold
            topic = len(self.topic.encode("utf-8", "surrogatepass"))
            whole = f"{self.topic}{infix}{self.key}"
            return whole.encode("utf-8", "surrogatepass"), topic, topic + len(infix)


class Scratch:
    """Memory that the kernel reads its needle from and writes its answer to; one query at a time."""

    __slots__ = ("address", "body", "hits", "memory", "needle", "query", "results", "results_bytes")

    def __init__(self) -> None:
        """Allocate, and slice the parts once."""
        body = kernel.NEEDLE_BYTES + kernel.RESULT_BYTES
        self.memory = np.zeros(body + kernel.BODY_BYTES, dtype=np.uint8)
        self.address: int = self.memory.ctypes.data
        self.results = self.memory[kernel.NEEDLE_BYTES : body].view(np.int64)
        self.query = np.zeros(16, dtype=np.int64)
        view = self.memory.data
        self.needle = view[: kernel.NEEDLE_BYTES]
        self.results_bytes = view[kernel.NEEDLE_BYTES : body]
        self.hits = self.results_bytes[8 * kernel.RESULT_HITS :]
        self.body = view[body:]


class _Scratches(threading.local):
    """The scratch of the calling thread, allocated when it first asks."""

    def __init__(self) -> None:
        self.own = Scratch()


scratches = _Scratches()


def run_lookup(
    scratch: Scratch,
    catalog: np.ndarray,
    query: KeyQuery,
    needle: bytes,
    topic: int,
    key: int,
    tick: int,
    tags_only: int,
) -> int:
    """Run the kernel into a scratch; its status. The needle must fit NEEDLE_BYTES; MAXIMUM_HITS are kept at most."""
    length = len(needle)
    scratch.needle[:length] = needle
    kind = query.kind
    unbounded = kind is UNIQUE
    status: int = kernel.lookup(
        catalog,
        scratch.query,
        scratch.results,
        scratch.address,
        topic,
        key,
        length,
        int(kind),  # an enum member would take the slow way into compiled code
        query.maximum if query.maximum < kernel.MAXIMUM_HITS else kernel.MAXIMUM_HITS,
        -MAXIMUM_OFFSET if unbounded else query.begin_timestamp,
        MAXIMUM_OFFSET if unbounded else query.end_timestamp,
        query.before_physical_offset,
        query.maximum_bytes,
        tick,
        STEPS_AT_ONCE if tick else STEPS_UNBOUNDED,
        tags_only,
    )
    return status
