"""A picture of coverage for a terminal: how much of each stretch of the log is there, in queues and in the index."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from storage.doctor.examine import Coverage
from storage.ranges import Range, intersect, total_length

FULL: Final = "█"
PART: Final = "▒"
NONE: Final = "·"
LABEL_WIDTH: Final = 8
NARROWEST: Final = 20
WIDEST: Final = 120


def draw_coverage(coverage: Coverage, width: int, time_text: Callable[[int], str]) -> Iterator[str]:
    """Lines of at most `width` columns: log, queues, index, and below them offsets and times; none of an empty log.

    `time_text` makes a text of a time in ms.
    """
    columns = max(min(width - LABEL_WIDTH, WIDEST), NARROWEST)
    if coverage.end <= coverage.minimum:
        return
    for label, ranges in (("log", coverage.log), ("queues", coverage.queues), ("index", coverage.index)):
        yield f"{label:<{LABEL_WIDTH}}{_bar(coverage, ranges, columns)}"
    yield f"{'offset':<{LABEL_WIDTH}}{_scale(str(coverage.minimum), str(coverage.end), columns)}"
    if coverage.times:
        middle = _time_near(coverage, (coverage.minimum + coverage.end) // 2)
        first, last = coverage.times[0][1], coverage.times[-1][1]
        yield f"{'time':<{LABEL_WIDTH}}{_scale(time_text(first), time_text(last), columns, time_text(middle))}"


def _bar(coverage: Coverage, ranges: Sequence[Range], columns: int) -> str:
    """One character a column: all, some or none of its stretch is covered."""
    return "".join(_character(coverage, ranges, column, columns) for column in range(columns))


def _character(coverage: Coverage, ranges: Sequence[Range], column: int, columns: int) -> str:
    length = coverage.end - coverage.minimum
    start = coverage.minimum + length * column // columns
    stop = coverage.minimum + length * (column + 1) // columns
    if stop <= start:
        stop = start + 1
    covered = total_length(intersect([(start, stop)], ranges))
    return FULL if covered == stop - start else PART if covered else NONE


def _scale(left: str, right: str, columns: int, middle: str = "") -> str:
    """Two or three texts under the ends and the middle of a bar, as far as there is room."""
    if len(left) + len(right) + 2 > columns:
        return left
    gap = columns - len(left) - len(right)
    if middle and len(middle) + 4 <= gap:
        before = max((columns - len(middle)) // 2 - len(left), 2)
        return f"{left}{' ' * before}{middle}{right.rjust(columns - len(left) - before - len(middle))}"
    return f"{left}{right.rjust(columns - len(left))}"


def _time_near(coverage: Coverage, physical_offset: int) -> int:
    return min(coverage.times, key=lambda point: abs(point[0] - physical_offset))[1]
