"""Which messages are wanted, in the form in which the kernels take it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from storage.kernels import message_rows as kernel
from storage.kernels.memory import address_of

LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1

Numbers = npt.NDArray[np.int64]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the messages wanted have in common; None is any. Ranges include both ends; times are store times in ms.

    `where` is a SQL92 expression over the properties, as a consumer's subscription has it.
    """

    topics: frozenset[bytes] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[bytes] | None = None
    times: tuple[int, int] = (LOWEST, HIGHEST)
    queue_offsets: tuple[int, int] = (LOWEST, HIGHEST)
    physical_offsets: tuple[int, int] = (LOWEST, HIGHEST)
    where: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no message can be wanted."""
        sets: tuple[frozenset[object] | None, ...] = (self.topics, self.queue_ids, self.tags)
        ranges = (self.times, self.queue_offsets, self.physical_offsets)
        return any(each is not None and not each for each in sets) or any(first > last for first, last in ranges)

    def and_(self, other: "Wanted") -> "Wanted":
        """What both want; `where` is this one's, and the other must have none."""
        return replace(
            self,
            topics=_both(self.topics, other.topics),
            queue_ids=_both(self.queue_ids, other.queue_ids),
            tags=_both(self.tags, other.tags),
            times=_overlap(self.times, other.times),
            queue_offsets=_overlap(self.queue_offsets, other.queue_offsets),
            physical_offsets=_overlap(self.physical_offsets, other.physical_offsets),
        )


class KernelChoice:
    """The arrays that :func:`storage.kernels.message_rows.choose_records` takes, and the memory they point to."""

    def __init__(self, wanted: Wanted, *, places: bool, checksums: bool) -> None:
        """`places`: note where keys, tag and unique key lie; `checksums`: hold the chosen records against theirs."""
        self._held = [*(wanted.topics or ()), *(wanted.tags or ())]
        self.topics = _texts(wanted.topics or ())
        self.tags = _texts(wanted.tags or ())
        self.queues = np.array(sorted(wanted.queue_ids or ()), np.int64)
        self.numbers = np.zeros(kernel.WANTED, np.int64)
        self.numbers[[kernel.TIME_FROM, kernel.TIME_TO]] = wanted.times
        self.numbers[[kernel.OFFSET_FROM, kernel.OFFSET_TO]] = wanted.queue_offsets
        self.numbers[kernel.WANTS_PLACES] = places
        self.numbers[kernel.WANTS_CHECKSUMS] = checksums
        self.numbers[kernel.ANY_TOPIC] = wanted.topics is None
        self.numbers[kernel.ANY_QUEUE] = wanted.queue_ids is None
        self.numbers[kernel.ANY_TAG] = wanted.tags is None


def _texts(texts: Iterable[bytes]) -> Numbers:
    """Addresses and lengths of texts that somebody else holds."""
    return np.array([number for text in texts for number in (address_of(text), len(text))], np.int64)


def _both(left: frozenset[Value] | None, right: frozenset[Value] | None) -> frozenset[Value] | None:
    if left is None or right is None:
        return right if left is None else left
    return left & right


def _overlap(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    return max(left[0], right[0]), min(left[1], right[1])
