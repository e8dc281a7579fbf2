"""What kernels see of a store at one moment: its segments, its index files, and entries that were scanned.

A view never changes, and holds the files that it shows. `tick` is what :func:`storage.files.waiting.current_tick`
says: 0 where the thread may wait; else what is not known to be in memory is not looked at.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, final

from _typeshed import ReadableBuffer
from typing_extensions import Buffer, disjoint_base

from storage.kernels.region import Region

class _HasDescriptor(Protocol):
    def fileno(self) -> int: ...

PROBE_BYTES: Final = 65536
"""Pages count as hot or cold in units of this many bytes."""
PROBE_SHIFT: Final = 16

@disjoint_base
class FileView:
    """A file in memory, and how hot its pages are."""

    def __init__(self, view: memoryview, heat: Buffer, descriptor: int) -> None:
        """See a map; `heat` has a zero for each 64 KiB and one more: the tick at which they were last found in memory.

        `descriptor` is asked whether pages are in memory; with −1, where the file system does not support that, all
        count as hot.
        """
    @property
    def region(self) -> Region:
        """What kernels read."""
    @property
    def view(self) -> memoryview:
        """The map."""
    @property
    def heat(self) -> Any:
        """For each 64 KiB the tick at which they were last found in memory."""
    @property
    def descriptor(self) -> int:
        """What is asked whether pages are in memory, or −1."""
    def is_hot(self, position: int, length: int, tick: int) -> bool:
        """Whether bytes of the file, at least one, are in memory, as far as is known.

        Asked is by reads with RWF_NOWAIT, which come back short rather than wait; an answer holds for a second.
        """

def stay_alike(places: Sequence[tuple[_HasDescriptor, int, int, bytes]], pause_seconds: float, looks: int) -> bool:
    """Wait as long as places of files say what they said: a pause, then a look, up to so many times; whether they do.

    Of each place, four at most, its file, its position, how many bytes are read there, 64 at most, and which
    came: fewer at the end of the file. They are read and not mapped, and meanwhile nothing of Python runs: a thread
    that waits so does not keep the event loop from running.
    """

@final
class LogView:
    """The segments of a log."""

    def __new__(cls, segments: Iterable[tuple[int, FileView, int]] = ()) -> LogView:
        """Of each segment its base offset, its file, and how many bytes may hold records; ascending.

        Raises ValueError for segments in another order, or longer than their files.
        """
    def __len__(self) -> int: ...
    def grown(self, valid_length: int) -> LogView:
        """Return the log with so many valid bytes in its last segment."""
    def find_segment(self, physical_offset: int) -> int:
        """The number of the segment whose valid part holds a physical offset, or −1."""
    def record_at(self, physical_offset: int, tick: int) -> memoryview | int:
        """The intact record that starts at a physical offset, a slice of its segment's map; else why there is none.

        That is a code of :mod:`storage.kernels.records`; COLD where its pages are not known to be in memory.
        """
    def unchecked_record_at(self, physical_offset: int, tick: int) -> memoryview | int:
        """As :meth:`record_at`, without a look at the checksums."""

@final
class Shortcuts:
    """Where look-ups may leave out many entries of one hash in a chain; they note it themselves.

    For one index file with one number of slots, for as long as it only grows: entries that are put into it lead down
    to those known, and what those lead to stays.
    """

    def __len__(self) -> int:
        """How many are noted."""

@final
class IndexFilesView:
    """The index files of a store."""

    def __new__(cls, files: Iterable[tuple[FileView, int, int, int, bool, bool, Shortcuts]] = ()) -> IndexFilesView:
        """Of each file how many slots it has and how many entries fit it (a broker may put some behind those known).

        Then the largest physical offset of an entry, whether physical offsets never fall from one entry to the next,
        whether there is an entry for each tagged record, and the file's shortcuts. Raises ValueError where that does
        not lie in the file.
        """
    def __len__(self) -> int: ...

@final
class RunsView:
    """Entries found by scanning the log."""

    def __new__(cls, runs: Iterable[tuple[ReadableBuffer, ReadableBuffer]] = ()) -> RunsView:
        """Of each scan the hashes and the physical offsets, sorted by both; the latest is the last."""
    def __len__(self) -> int: ...

@final
class StoreView:
    """Log, index files and scanned entries together."""

    def __new__(
        cls, log: LogView, index: IndexFilesView, runs: RunsView, damage: ReadableBuffer | None = None
    ) -> StoreView:
        """`damage` are places where no record starts although the index rightly points there, ascending."""
    @property
    def log(self) -> LogView:
        """The segments."""
    def with_runs(self, runs: RunsView) -> StoreView:
        """Return the store with other entries found by scanning."""
