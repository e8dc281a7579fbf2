"""The bytes behind the end of a log that was cut: new records are known from old ones by differing from them.

Old bytes may well be intact records. What differs from the bytes that were seen there is new, and nothing else is.
"""

from typing import Final

from storage.log.log_place import RecordPlace, Watched

MOST_BYTES: Final = 16 * 1024 * 1024
LEAST_BYTES: Final = 4 * 1024 * 1024
"""So many bytes ahead of the end are remembered at least: more than is written between two looks."""
FIRST_BYTES: Final = 64
"""So many bytes are compared to see whether old ones are still there; no two records share them."""


class OldBytes:
    """Bytes of one segment from a place on, as they were when the log's end was there or before it; immutable."""

    def __init__(self, start: RecordPlace, content: bytes) -> None:
        self._start = start
        self._content = content

    @classmethod
    def at(cls, start: RecordPlace) -> "OldBytes":
        """Read what lies at a place and behind it now, whatever it is."""
        return cls(start, start.peek(MOST_BYTES))

    @classmethod
    def behind(cls, end: RecordPlace, known: "OldBytes | None" = None) -> "OldBytes | None":
        """Read what lies behind an end; None where nothing was written.

        What is known of it was seen when the end was still far away, and stays so. None behind the segment that the
        log was cut in, too: the others were removed.
        """
        if end.has_nothing() or (known is not None and known._start.base_offset != end.base_offset):
            return None
        if known is None:
            return cls.at(end)
        kept = known._start.position + len(known._content) - end.position
        if kept >= LEAST_BYTES or end.position + kept >= end.file.size:
            return known
        start = end._replace(position=end.position + max(kept, 0))
        return cls(end, known._content[len(known._content) - max(kept, 0) :] + start.peek(MOST_BYTES - max(kept, 0)))

    @property
    def physical_offset(self) -> int:
        """Where they start."""
        return self._start.physical_offset

    def watched(self) -> Watched:
        """The first of them, where they stood."""
        return self._start.watched(FIRST_BYTES, self._content[:FIRST_BYTES])

    def lay_at(self, place: RecordPlace, end: int) -> bool:
        """Whether what lies between a place and a position behind it lay there before, or may have."""
        if place.base_offset != self._start.base_offset:
            return False
        start, stop = place.position - self._start.position, end - self._start.position
        return stop > len(self._content) or self._content[start:stop] == place.file.view[place.position : end]
