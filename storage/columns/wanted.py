"""Which messages are wanted."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from storage.filter.tag import parse_tag_expression
from storage.kernels.message_rows import RowQuery

LOWEST: Final = -(2**63)
HIGHEST: Final = 2**63 - 1
ALL_TIMES: Final = (LOWEST, HIGHEST)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The conditions on the wanted messages; None is any. Ranges include both ends; times are store times in ms.

    `where` is a SQL92 expression over the properties, as a consumer's subscription has it.
    """

    topics: frozenset[bytes] | None = None
    queue_ids: frozenset[int] | None = None
    tags: frozenset[bytes] | None = None
    times: tuple[int, int] = ALL_TIMES
    queue_offsets: tuple[int, int] = (LOWEST, HIGHEST)
    physical_offsets: tuple[int, int] = (LOWEST, HIGHEST)
    where: str | None = None

    @classmethod
    def asked(
        cls, topics: Iterable[str], begin: int | None, end: int | None, tag: str | None, where: str | None
    ) -> "Wanted":
        """The messages of some topics, or of all without any, and of store times; raises FilterSyntaxError.

        `tag` is a tag expression, as a consumer's subscription has it.
        """
        tags = parse_tag_expression(tag)
        return cls(
            topics=frozenset(topic.encode() for topic in topics) or None,
            tags=None if tags.matches_everything else frozenset(each.encode() for each in tags.tags),
            times=(LOWEST if begin is None else begin, HIGHEST if end is None else end),
            where=where,
        )

    @property
    def is_empty(self) -> bool:
        """Whether no message can be wanted."""
        sets: tuple[frozenset[object] | None, ...] = (self.topics, self.queue_ids, self.tags)
        ranges = (self.times, self.queue_offsets, self.physical_offsets)
        return any(each is not None and not each for each in sets) or any(first > last for first, last in ranges)

    def query(self, *, names: bool, checksums: bool, apart: bool = True) -> RowQuery:
        """These conditions as the kernel takes them; `physical_offsets` and `where` are decided by its callers."""
        return RowQuery(
            topics=self.topics,
            tags=self.tags,
            queue_ids=None if self.queue_ids is None else np.array(_of_32_bits(self.queue_ids), np.int32),
            times=self.times,
            queue_offsets=self.queue_offsets,
            names=names,
            checksums=checksums,
            apart=apart,
        )


def _of_32_bits(numbers: Iterable[int]) -> list[int]:
    """The numbers among these that can be a queue id, which has 32 bits."""
    return [number for number in numbers if -(2**31) <= number < 2**31]
