"""Messages by partition, and the directories of partitions: `topic=Orders/date=2026-11-23`, as Hive names them.

Characters that Hive and Spark escape in such names are `%` and two hexadecimal digits, so `%RETRY%group` lies in
`topic=%25RETRY%25group`. A date that no timestamp has is `__HIVE_DEFAULT_PARTITION__`, which readers take for null, and
so is a topic without a name; a topic that is called that has its first character escaped.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from protocol.errors import ConfigError
from spark_jobs.tables.days import DAY_MILLISECONDS, EPOCH
from spark_jobs.tables.table_names import DATE, TOPIC
from storage.columns.message_columns import numbers_of, topics_of
from storage.columns.names import FIRST_TIME, LAST_TIME
from storage.columns.rows import MessageRows
from storage.columns.texts import RepeatedTexts, Texts

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
_NO_DAY: Final = -(2**31)
_ESCAPED: Final = frozenset("\"#%'*/:=?\\\x7f{[]^") | {chr(code) for code in range(32)}

MOST_BYTES: Final = 255
"""Bytes of one name in a path, on nearly every file system."""


class Partition(NamedTuple):
    """A topic, and a day as its number since 1970; each None where the table is not partitioned by it.

    A day is `_NO_DAY` for times that no date has.
    """

    topic: str | None = None
    day: int | None = None

    def values(self) -> dict[str, str | None]:
        """The value of each column that the table is partitioned by, in order."""
        found: dict[str, str | None] = {} if self.topic is None else {TOPIC: self.topic}
        if self.day is not None:
            found[DATE] = None if self.day == _NO_DAY else (EPOCH + timedelta(days=self.day)).isoformat()
        return found


Split: TypeAlias = Callable[[MessageRows], Iterable[tuple[Partition, MessageRows]]]


def splitter(partition_by: Sequence[str]) -> Split:
    """What splits a block of rows by these columns, some of `PARTITIONS`; the rows of each part stay in order."""
    by_topic, by_day = TOPIC in partition_by, DATE in partition_by

    def split(rows: MessageRows) -> Iterator[tuple[Partition, MessageRows]]:
        if not (by_topic or by_day):
            yield Partition(), rows
            return
        topics, days = _topics(rows, by_topic=by_topic), _days(rows, by_day=by_day)
        words, codes = topics
        every, places = np.unique(days, return_inverse=True)
        keys = codes * len(every) + places
        order = np.argsort(keys, kind="stable")
        found, starts = np.unique(keys[order], return_index=True)
        stops = [*starts[1:].tolist(), len(rows)]
        for key, start, stop in zip(found.tolist(), starts.tolist(), stops, strict=True):
            word, day = divmod(key, len(every))
            partition = Partition(words[word] if by_topic else None, int(every[day]) if by_day else None)
            chosen = rows.table if len(found) == 1 else rows.table[order[start:stop]]
            yield partition, MessageRows(rows.region, rows.base_offset, chosen)

    return split


def _topics(rows: MessageRows, *, by_topic: bool) -> "tuple[list[str], np.ndarray[tuple[int], np.dtype[np.int64]]]":
    if not by_topic:
        return [], np.zeros(len(rows), np.int64)
    topics = topics_of(rows)
    if isinstance(topics, RepeatedTexts):
        return _words(topics.words), topics.codes.astype(np.int64)
    numbers: dict[str, int] = {}  # nearly every message has a topic of its own
    codes = [numbers.setdefault(word, len(numbers)) for word in _words(topics)]
    return list(numbers), np.array(codes, np.int64)


def _words(texts: Texts) -> list[str]:
    data = texts.data.tobytes()
    return [data[start:stop].decode() for start, stop in pairwise(texts.offsets.tolist())]


def _days(rows: MessageRows, *, by_day: bool) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    if not by_day:
        return np.zeros(len(rows), np.int64)
    times = numbers_of(rows, "store_timestamp")
    return np.where((times >= FIRST_TIME) & (times <= LAST_TIME), times // DAY_MILLISECONDS, _NO_DAY)


def directory_of(values: dict[str, str | None]) -> str:
    """The directory of a partition, "" of a table that is not partitioned."""
    return "/".join(f"{name}={_escaped(value)}" for name, value in values.items())


def has_room(directory: str) -> bool:
    """Whether file systems take the names of a partition's directory."""
    return all(len(os.fsencode(name)) <= MOST_BYTES for name in directory.split("/"))


def check_directory(directory: str) -> None:
    """Raise ConfigError for a topic whose name is too long for a directory."""
    if not has_room(directory):
        longest = max(directory.split("/"), key=len)
        raise ConfigError(
            f"--partition-by topic: {longest[:60]}… would be a directory of {len(os.fsencode(longest))} bytes, and "
            f"{MOST_BYTES} are possible: make another table by date alone, or one of --format iceberg or delta"
        )


def _escaped(value: str | None) -> str:
    if not value:
        return NO_VALUE
    if value == NO_VALUE:
        return f"%{ord(value[0]):02X}{value[1:]}"
    return "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in value)
