"""One query, one call: walk the chains of a key in every index file, check each record, copy the hits out.

The index is only a hint. An entry proposes a physical offset; what lies there counts only if it is an intact record
whose topic, key (or unique key, or tag) and store time match, so hash collisions, whole seconds, wild pointers and
stale entries can neither hide nor invent a message. A chain may only go down, which bounds every walk by the number
of entries.
"""

from typing import Final, Protocol, final

from storage.kernels.store_view import FileView, StoreView

KIND_ANY: Final = 0
"""What a key is compared with: KEYS or the unique key."""
KIND_KEY: Final = 1
"""KEYS alone."""
KIND_UNIQUE: Final = 2
"""The unique key alone, whenever the message was stored."""
KIND_TAG: Final = 3
"""The tag."""

FOUND: Final = 0
STOPPED_COLD: Final = -1
"""The search ended at bytes that are not in memory."""
STOPPED_LONG: Final = -2
"""The search ended after as many entries as it was allowed."""

MAXIMUM_HITS: Final = 512
"""Most hits of one search."""
NEEDLE_BYTES: Final = 65536
"""Topic and key of a message and what stands between them never have more bytes."""
MOST_DAMAGED: Final = 16
"""Most damaged records of one search that are kept apart."""

@final
class Found:
    """What a search found, and what it looked at."""

    @property
    def status(self) -> int:
        """FOUND, or why the search ended before anything was found."""
    @property
    def records(self) -> bytes:
        """The records one after the other, ascending by physical offset."""
    @property
    def count(self) -> int:
        """How many records there are."""
    @property
    def physical_offsets(self) -> tuple[int, ...]:
        """The physical offsets at which they start."""
    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of each."""
    @property
    def truncated(self) -> bool:
        """Whether more match than were asked for, or fit."""
    @property
    def files(self) -> int:
        """Index files that were searched."""
    @property
    def walked(self) -> int:
        """Entries that were looked at."""
    @property
    def refused(self) -> int:
        """Entries with the key's hash whose record does not match."""
    @property
    def bad_pointers(self) -> int:
        """Slots and entries that point where no chain leads."""
    @property
    def strays(self) -> int:
        """Entries with the key's hash that point into the log where no record starts, unless damage is known there."""
    @property
    def stray_file(self) -> FileView | None:
        """The index file in which the last of them stands, None where there is none."""
    @property
    def stray_offset(self) -> int:
        """The physical offset in that entry."""
    @property
    def damaged(self) -> tuple[int, ...]:
        """Physical offsets of records that match but for their checksums, ascending, MOST_DAMAGED at most."""
    @property
    def cold_file(self) -> FileView | None:
        """The file of which something is not in memory."""
    @property
    def cold_position(self) -> int:
        """Position of the bytes that are not in memory."""
    @property
    def cold_length(self) -> int:
        """How many bytes are not in memory."""

class _Question(Protocol):  # As protocol.question.Question has them.
    @property
    def kind(self) -> int: ...
    @property
    def maximum(self) -> int: ...
    @property
    def begin_timestamp(self) -> int: ...
    @property
    def end_timestamp(self) -> int: ...
    @property
    def before_physical_offset(self) -> int: ...
    @property
    def maximum_bytes(self) -> int: ...
    def needle(self) -> tuple[bytes, int, int]: ...

@final
class KeyQuery:
    """A question for the messages of a topic that carry a key, as `look_up` takes it; made once for several views."""

    def __new__(cls, question: _Question, *, tags_only: bool = False) -> KeyQuery:
        """Find at most MAXIMUM_HITS messages, and one at least; `tags_only` leaves index files without tags out.

        Raises ValueError for a needle that does not have its topic before its key, and for another kind.
        """
    @property
    def needle(self) -> bytes:
        """The text that an index hashes: ``topic#key`` or ``topic#T#tag``."""

def look_up(view: StoreView, query: KeyQuery, tick: int, steps: int) -> Found:
    """Answer one query with the newest messages that match; `steps` entries may be walked.

    Records have no more bytes in all than the question allows: the oldest are dropped first.
    """
