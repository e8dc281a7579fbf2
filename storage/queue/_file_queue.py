"""What plain queues and those of batches have in common: files of units, their log, and bounds that are found once."""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from pathlib import Path
from typing import Self, cast

from storage.files.open_files import OpenFiles
from storage.files.waiting import Lookup, finish
from storage.log.commit_log import CommitLog
from storage.queue._queue_growth import KnownEnd, QueueMemory
from storage.queue.queue import QueuePart, SourceQueue
from storage.queue.queue_files import QueueFiles
from storage.queue.queue_holes import LostQueues, QueueHoles
from storage.queue.queue_record import QueueName


class FileQueue(SourceQueue):
    """A queue as its files are now; its beginning and end are found when first asked for.

    With a `memory` of earlier results only units that came since are checked.
    """

    __slots__ = (
        "_beside", "_bounds", "_commit_log", "_files", "_generation", "_keep", "_known", "holes", "is_part", "name",
        "sound_part",
    )  # fmt: skip
    unit_size: int
    sound_part: Self | None
    """The queue up to its last sound unit, while the log is searched for what comes behind that."""
    is_part: bool
    """Whether this is such a part of a queue, behind whose last unit there are others."""
    _bounds: tuple[int, ...] | None

    def __init__(
        self,
        name: QueueName,
        directory: Path | QueueFiles,
        commit_log: CommitLog,
        open_files: OpenFiles,
        memory: QueueMemory | None = None,
        holes: QueueHoles | None = None,
        beside: LostQueues | None = None,
    ) -> None:
        """Open the files of `directory`, or of a listing of it; with `beside` a queue without it is lost, not new."""
        self.name, self._commit_log, self._beside = name, commit_log, beside
        self._generation, known, self._keep = memory or QueueMemory()
        self._known = None if known is None else self._renewed(known)
        if isinstance(directory, QueueFiles):
            self._files = directory
        else:
            self._files = self._known.files if self._known else QueueFiles(directory, self.unit_size, open_files)
        self._bounds = None
        self.sound_part, self.is_part = None, False
        self.holes = QueueHoles() if holes is None else holes

    @abstractmethod
    def _renewed(self, known: KnownEnd) -> KnownEnd | None:
        """Return what is known of the queue if it holds for the files that exist now, else None."""

    @abstractmethod
    def _measure(self) -> Lookup[tuple[int, ...]]:
        """Find min and max, and keep them; two threads that do so at once get the same result."""

    def _keep_part(self, minimum: int, end: int, *more: int) -> None:
        """Keep what is known by the units alone, for reads that need no end; nothing where no unit leads to a message.

        Such a part would say that the log has no message before `end`, which nobody has looked for.
        """
        if minimum < end:
            part = cast("Self", copy(self))
            part._bounds = (minimum, end, *more)
            part.sound_part, part.is_part = None, True
            self.sound_part = part

    @property
    def is_measured(self) -> bool:
        return self._bounds is not None

    def measured(self) -> Lookup[Self]:
        if self._bounds is None:
            yield from self._measure()
        return self

    @property
    def min_offset(self) -> int:
        return (self._bounds or finish(self._measure()))[0]

    @property
    def max_offset(self) -> int:
        return (self._bounds or finish(self._measure()))[1]

    @property
    def parts(self) -> tuple[QueuePart]:
        return (QueuePart(self.min_offset, self.max_offset, self),)

    def source_at(self, _: int) -> Self:
        """Return the queue itself: it has no other part."""
        return self

    @property
    def files(self) -> QueueFiles:
        return self._files

    @property
    def log(self) -> CommitLog:
        return self._commit_log
