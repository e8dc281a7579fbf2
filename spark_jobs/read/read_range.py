"""Read one stretch of the log: blocks of columns, batches of Arrow, or what of it is damaged."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from protocol.errors import CorruptRecord
from protocol.printable import one_line
from spark_jobs.read.log_ranges import LogRange, LogRanges, Problem
from storage.amounts import counted
from storage.columns.body_content import BodyContent, BodyCounts
from storage.columns.mask import read_mask
from storage.columns.message_columns import Columns, gather, needs_names
from storage.columns.rows import MessageRows, RowReader
from storage.columns.texts import Texts
from storage.columns.wanted import Wanted
from storage.log.damaged_ranges import DamagedRange, reason_of
from storage.patterns.mask import hidden_sentence

if TYPE_CHECKING:  # an export into other formats than Parquet does without
    import pyarrow as pa

MOST_REPORTED: Final = 5
"""Places of damage of one stretch that are reported one by one."""

Notify: TypeAlias = Callable[[Sequence[Problem]], None]
"""Names damage that was passed over."""

Part = TypeVar("Part")


class RangeReader:
    """One stretch, read once; afterwards `problems` says what of it is damaged, and `messages` how many there were.

    `bodies` counts what was met in theirs. `end` is the physical offset behind what was read.

    With `fails_fast` damage is raised instead, as CorruptRecord, where it is come to. `content` is what becomes of
    bodies, None: nothing.
    """

    def __init__(
        self,
        range_: LogRange,
        wanted: Wanted,
        columns: Sequence[str],
        *,
        fails_fast: bool = False,
        content: BodyContent | None = None,
    ) -> None:
        """The columns are those of :mod:`storage.columns.message_columns`."""
        self._range, self._wanted, self._fails_fast, self._content = range_, wanted, fails_fast, content
        self._names = tuple(columns)
        self.problems: list[Problem] = []
        self.messages, self.bodies = 0, BodyCounts()
        self.end = range_.base_offset + range_.start

    def read(self) -> Iterator[Columns]:
        """The messages that are wanted, in blocks of columns."""
        for _, columns in self.read_split(_not_split):
            yield columns

    def read_split(
        self, split: Callable[[MessageRows], Iterable[tuple[Part, MessageRows]]]
    ) -> Iterator[tuple[Part, Columns]]:
        """The messages that are wanted, each block of rows split into parts, in blocks of columns beside their part."""
        range_ = self._range
        with range_.open() as window:
            names, boundary = needs_names(self._names), range_.boundary
            reader = RowReader(window, self._wanted, names=names, is_last=range_.is_last, boundary=boundary)
            for rows in reader.read(range_.start, range_.stop):
                self._check(reader.damage)
                for part, chosen in split(rows):
                    for columns in gather(chosen, self._names, self._content):
                        self._check_bodies(columns)
                        self.messages += columns.count
                        self.bodies = self.bodies.plus(columns.bodies)
                        yield part, columns
            self._check(reader.damage)
            self.end = range_.base_offset + (reader.position if range_.is_last else range_.stop)

    def _check(self, damage: list[DamagedRange]) -> None:
        """Take over the damage that is new."""
        for each in damage[len(self.problems) :]:
            if self._fails_fast:
                raise CorruptRecord(self._range.path, each.start, what=f"no intact record: {reason_of(each.code)}")
            self.problems.append(Problem(self._range.path, each.start, each.length, reason_of(each.code)))

    def _check_bodies(self, columns: Columns) -> None:
        bodies = columns.get("body")
        if self._fails_fast and isinstance(bodies, Texts) and bodies.present is not None:
            raise CorruptRecord(self._range.path, what="a body cannot be decompressed; body_error says why")


def _not_split(rows: MessageRows) -> Iterator[tuple[None, MessageRows]]:
    yield None, rows


def read_messages(
    range_: LogRange,
    wanted: Wanted,
    schema: "pa.Schema",
    *,
    fails_fast: bool,
    masked: Sequence[str] = (),
    notify: Notify | None = None,
    note: Callable[[str], None] | None = None,
) -> "Iterator[pa.RecordBatch]":
    """Batches of the messages of a stretch, without what rules hide of them (:mod:`protocol.mask`).

    Damage that is passed over is named by `notify`, and what had to be hidden whole by `note`; else on stderr.
    """
    from spark_jobs.read.arrow_columns import record_batch  # as above

    mask = read_mask(masked) if masked else None
    names = schema.names if mask is None else mask.reading(schema.names)
    reader = RangeReader(range_, wanted, names, fails_fast=fails_fast)
    for columns in reader.read():
        yield record_batch(columns if mask is None else mask.apply(columns, schema.names), schema)
    (notify or report_problems)(reader.problems)
    if mask is not None and mask.hidden_whole:
        (note or _note)(hidden_sentence(mask.hidden_whole))


def check_problems(found: LogRanges, *, fails_fast: bool, notify: Notify | None = None) -> None:
    """Raise CorruptRecord for what is known to be missing, or name it, as :func:`read_messages` does."""
    if found.problems and fails_fast:
        first = found.problems[0]
        missing = f"{counted(first.length, 'byte')} missing: {first.reason}"
        raise CorruptRecord(first.path, first.physical_offset, what=missing)
    (notify or report_problems)(found.problems)


def _note(sentence: str) -> None:
    sys.stderr.write(f"rocketlens: {sentence}\n")


def report_problems(problems: Sequence[Problem]) -> None:
    """Name damage on stderr, which is the log of the executor."""
    for problem in problems[:MOST_REPORTED]:
        sys.stderr.write(f"rocketlens: {one_line(problem.sentence())}\n")
    if len(problems) > MOST_REPORTED:
        more = counted(len(problems) - MOST_REPORTED, "more place is", "more places are")
        sys.stderr.write(f"rocketlens: {more} damaged\n")


def read_damage(range_: LogRange) -> list[Problem]:
    """Find what of a stretch is damaged; every record is compared with its checksums."""
    reader = RangeReader(range_, Wanted(), ())
    for _ in reader.read():
        pass
    return reader.problems
