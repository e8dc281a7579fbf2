"""The search of the log for messages of a queue, by the records alone; the result is a unit for each of them.

What is found for runs of damaged units is kept (:mod:`storage.queue.queue_holes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from storage.arrays import np, npt
from storage.kernels.messages import NOT_FOUND, MessageSearch, find_messages
from storage.kernels.records import HEAD
from storage.log.commit_log import CommitLog
from storage.queue.queue_record import QueueName
from storage.queue.unit_struct import UNIT_DTYPE

MOST_BEYOND: Final = 64
"""Messages with later queue offsets after which a search ends; a single one may have a wrong queue offset."""


def search(log: CommitLog, name: QueueName, queue_offset: int, start: int, stop: int) -> int | None:
    """Return the physical offset in [start, stop) of a queue's message, None if there is none.

    With ANY_OFFSET as ``queue_offset`` the first message of the queue is searched.
    """
    wanted = SoughtMessages(name, queue_offset, 1)
    position = start
    while not wanted.is_found and position < stop:
        position = search_piece(log, [wanted], position, stop)
    return wanted.place(0)


class SoughtMessages:
    """Messages of one queue that are searched in the log, and their units, as in a plain queue's file."""

    __slots__ = ("name", "search", "units")

    def __init__(
        self,
        name: QueueName,
        first: int,
        count: int,
        known: npt.NDArray[np.void] | None = None,
        *,
        grows: bool = False,
    ) -> None:
        """Search for ``count`` queue offsets from ``first`` on; ``known`` are units that were found before.

        With ``grows`` later ones count too, for which :attr:`is_full` asks for room.
        """
        self.name = name
        self.units = np.zeros(count, UNIT_DTYPE)
        self.units["physical_offset"] = NOT_FOUND
        if known is not None:
            self.units[: known.size] = known
        units = self.units.view(np.uint8)
        self.search = MessageSearch(name.topic_bytes, name.queue_id, first, units, MOST_BEYOND, grows=grows)

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """The physical offsets of the messages, NOT_FOUND for others; a view."""
        return self.units["physical_offset"]

    @property
    def is_found(self) -> bool:
        """Whether all messages were found."""
        return self.search.left == 0

    @property
    def is_full(self) -> bool:
        """Whether there is no room for the unit of the message that comes next."""
        return self.search.is_full

    def place(self, number: int) -> int | None:
        """The physical offset of one of the messages by its number, or None."""
        found = int(self.places[number])
        return found if found >= 0 else None


def search_piece(log: CommitLog, wanted: Sequence[SoughtMessages], start: int, stop: int) -> int:
    """Search for messages in [start, stop) of the log, in one segment; return the physical offset to go on from.

    That is ``stop`` or more when the search is done; before that it is at most the end of the segment.
    """
    segment = next((segment for segment in log.segments if segment.end > start), None)
    if segment is None or segment.base_offset >= stop:
        return stop
    base, readable = segment.base_offset, segment.valid_length
    first, limit = max(start - base, 0), min(stop - base, readable)
    searches = [each.search for each in wanted]
    position = find_messages(segment.file.region, first, limit, readable, base, segment.boundary, searches)
    return segment.end if position + HEAD > readable else base + position
