"""Offsets that were committed since they were last written to disk, in memory that outlives the worker process.

Worker 0 may die at any moment, when a file is truncated while it is mapped. The supervisor makes this memory before it
forks, so that the next worker 0 takes over what the one before had acknowledged and had not written to disk yet.

Notes are appended to one of two halves. When notes are dropped, the remaining ones are written into the other half, and
then that half becomes the valid one. Whenever the writer dies, one half is complete: a note is valid once the number of
used bytes includes it.
"""

import mmap
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple

import msgpack

JOURNAL_BYTES: Final = 2 * 1024 * 1024
"""Bytes of each half; pages that are never written take no memory."""

HEADER_BYTES: Final = 4096
HALF: Final = 0
"""The place of the number of the valid half; the numbers of used bytes of each half follow it."""
USED: Final = 1

Note = tuple[str, str, int, int]
"""Group, topic, queue id, offset."""


class Mark(NamedTuple):
    """The place after a note; no longer valid once the other half was made the valid one."""

    turns: int
    end: int


class OffsetJournal:
    """The notes of one store. Written by one process at a time, on any of its threads."""

    def __init__(self, size: int = JOURNAL_BYTES) -> None:
        """Make an empty journal, of two halves of `size` bytes."""
        self._size = size
        self._memory = mmap.mmap(-1, HEADER_BYTES + 2 * size)
        self._numbers = memoryview(self._memory)[:HEADER_BYTES].cast("q")
        self._halves = [memoryview(self._memory)[HEADER_BYTES + first :][:size] for first in (0, size)]
        self._lock = threading.Lock()
        self._turns = 0
        self._is_full = False

    def note(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Note that an offset was committed. If the journal is full it is not noted, and lost if the worker dies."""
        note = msgpack.packb((group, topic, queue_id, offset))
        with self._lock:
            if not self._append(note) and not self._is_full:
                self._turn_over(dict(_by_queue(self.notes())))
                # If the last notes of all queues fill more than half, each further note would search them all again.
                self._is_full = self._used_bytes > self._size // 2
                self._append(note)

    @property
    def _used_bytes(self) -> int:
        return self._numbers[USED + self._numbers[HALF]]

    def notes(self) -> Iterator[Note]:
        """Yield all notes, in the order in which they were made."""
        half = self._numbers[HALF]
        unpacker = msgpack.Unpacker(max_buffer_size=self._size)
        unpacker.feed(self._halves[half][: self._numbers[USED + half]])
        for note in unpacker:
            yield tuple(note)

    def mark(self) -> Mark:
        """The place after all present notes."""
        with self._lock:
            return Mark(self._turns, self._numbers[USED + self._numbers[HALF]])

    def forget(self, mark: Mark) -> None:
        """Drop the notes before a mark, whose offsets are on disk now."""
        with self._lock:
            if mark.turns == self._turns:
                half = self._numbers[HALF]
                self._write_other(bytes(self._halves[half][mark.end : self._numbers[USED + half]]))
                self._is_full = False

    def _append(self, note: bytes) -> bool:
        half = self._numbers[HALF]
        used = self._numbers[USED + half]
        end = used + len(note)
        if end > self._size:
            return False
        self._halves[half][used:end] = note
        self._numbers[USED + half] = end
        return True

    def _turn_over(self, latest: dict[tuple[str, str, int], Note]) -> None:
        """Keep only the last note of each queue, in the other half."""
        self._write_other(b"".join(map(msgpack.packb, latest.values())))

    def _write_other(self, content: bytes) -> None:
        other = 1 - self._numbers[HALF]
        self._halves[other][: len(content)] = content
        self._numbers[USED + other] = len(content)
        self._numbers[HALF] = other
        self._turns += 1


def _by_queue(notes: Iterator[Note]) -> Iterator[tuple[tuple[str, str, int], Note]]:
    for note in notes:
        yield note[:3], note
