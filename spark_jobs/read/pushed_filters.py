"""Translate Spark's filters into the messages wanted, as far as our kernels can decide them.

Filters are known by the names of their classes: pyspark has them since 4.1, and hands none over before.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from spark_jobs.read.arrow_columns import FIRST_TIME, LAST_TIME
from storage.columns.wanted import HIGHEST, LOWEST, Wanted

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND: Final = timedelta(microseconds=1)
REPLACEMENT: Final = "\ufffd"

NOTHING: Final = (1, 0)
"""A range that holds no number."""

NEVER_EMPTY: Final = frozenset({"topic", "queue_id", "queue_offset", "physical_offset"})

Range = tuple[int, int]


def push(filters: Iterable[Any]) -> tuple[Wanted, list[Any]]:
    """Split filters into what the scan takes over, as one Wanted, and those that Spark must apply."""
    wanted, left = Wanted(), []
    for each in filters:
        taken = _take(each)
        if taken is None:
            left.append(each)
        else:
            wanted = wanted.and_(taken)
    return wanted, left


def _take(each: Any) -> Wanted | None:
    """Translate one filter, None where Spark has to decide."""
    path: tuple[str, ...] = getattr(each, "attribute", ())
    if len(path) != 1:
        return None
    name, kind = path[0], type(each).__name__
    if kind == "IsNotNull":
        return Wanted() if name in NEVER_EMPTY else None
    value = getattr(each, "value", None)
    if name in ("topic", "tags"):
        texts = _texts(kind, value)
        return None if texts is None else Wanted(topics=texts) if name == "topic" else Wanted(tags=texts)
    if name == "queue_id":
        numbers = _numbers(kind, value)
        return None if numbers is None else Wanted(queue_ids=numbers)
    if name in ("queue_offset", "physical_offset") and isinstance(value, int):
        range_ = _range(kind, value, value)
        if range_ is None:
            return None
        return Wanted(queue_offsets=range_) if name == "queue_offset" else Wanted(physical_offsets=range_)
    if name == "store_timestamp" and isinstance(value, datetime) and (times := _times(kind, value)) is not None:
        return Wanted(times=times)
    return None


def _several(kind: str, value: Any) -> list[Any] | None:
    """The values one of which is asked for; comparing with null is never true."""
    if kind in ("EqualTo", "In"):
        values = list(value) if kind == "In" else [value]
        return [each for each in values if each is not None]
    return [value] if kind == "EqualNullSafe" and value is not None else None


def _texts(kind: str, value: Any) -> frozenset[bytes] | None:
    """Texts as bytes, None for one that bytes may stand for unequally."""
    texts = _several(kind, value)
    if texts is None or not all(isinstance(text, str) and REPLACEMENT not in text for text in texts):
        return None
    try:
        return frozenset(text.encode() for text in texts)
    except UnicodeEncodeError:
        return None


def _numbers(kind: str, value: Any) -> frozenset[int] | None:
    numbers = _several(kind, value)
    return frozenset(numbers) if numbers is not None and all(isinstance(number, int) for number in numbers) else None


_BOUNDS: Final[dict[str, Callable[[int, int], Range]]] = {
    "EqualTo": lambda floor, ceiling: (floor, floor) if floor == ceiling else NOTHING,
    "EqualNullSafe": lambda floor, ceiling: (floor, floor) if floor == ceiling else NOTHING,
    "GreaterThan": lambda floor, _: (floor + 1, HIGHEST),
    "GreaterThanOrEqual": lambda _, ceiling: (ceiling, HIGHEST),
    "LessThan": lambda _, ceiling: (LOWEST, ceiling - 1),
    "LessThanOrEqual": lambda floor, _: (LOWEST, floor),
}
"""Ranges of whole numbers that compare so with a value, by the whole numbers next to it."""


def _range(kind: str, floor: int, ceiling: int) -> Range | None:
    bounds = _BOUNDS.get(kind)
    if bounds is None:
        return None
    first, last = bounds(floor, ceiling)
    return (first, last) if LOWEST <= first <= HIGHEST and LOWEST <= last <= HIGHEST else NOTHING


def _times(kind: str, moment: datetime) -> Range | None:
    """Milliseconds that compare so with a moment; only those that a timestamp can hold: other times are null."""
    microseconds = ((moment if moment.tzinfo else moment.astimezone()) - EPOCH) // MICROSECOND
    found = _range(kind, microseconds // 1000, -(-microseconds // 1000))
    return None if found is None else (max(found[0], FIRST_TIME), min(found[1], LAST_TIME))
