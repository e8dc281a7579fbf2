"""Go through a stretch of the log, past damage, and find the messages that are wanted and what is damaged.

What is found are places in a window on the segment; they hold until the next ones are asked for. A batch in one record
is its messages; one that is compressed as a whole is read from a copy that is not.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from protocol.errors import StoreError
from protocol.message_edit import with_plain_body
from storage.columns.wanted import Wanted
from storage.filter.sql92 import Expression, parse
from storage.kernels import message_rows as kernel
from storage.kernels import records as codes
from storage.kernels.records import ANY_TIME, store_timestamp
from storage.kernels.region import Region
from storage.kernels.sql92 import TRUE, decide_records
from storage.kernels.texts import bytes_at
from storage.log.damaged_ranges import ZEROS, DamagedRange
from storage.log.log_window import LONGEST_RECORD, LogWindow
from storage.log.segment_end import BLANK_BYTES, TOLERATED_MS
from storage.log.segment_list import may_be_cut

PIECE_BYTES: Final = 8 * 1024 * 1024
"""Read at once, so that what is gathered from it is still in the processor's cache."""

STEPS_BACK: Final = (1 << 20, 1 << 23, 1 << 26)
"""Bytes before the first offset wanted at which a record is looked for; most are shorter than the first."""

ROWS: Final = 65536
"""Messages of one block at most."""

ROW: Final = np.dtype([(name, "<i8") for name in kernel.ROW_FIELDS])
"""Where the parts of a record lie, as the kernel notes it."""

Numbers = npt.NDArray[np.int64]


class MessageRows:
    """Messages in a window: the region that it is, its physical offset, and a row for each."""

    __slots__ = ("_columns", "base_offset", "region", "table")

    def __init__(self, region: Region, base_offset: int, table: npt.NDArray[np.void]) -> None:
        """`table` is of :data:`ROW`, without gaps."""
        self.region, self.base_offset, self.table = region, base_offset, table
        self._columns: Numbers | None = None

    def __len__(self) -> int:
        return len(self.table)

    def column(self, field: str) -> Numbers:
        """One field of all rows, which nobody may change."""
        if self._columns is None:  # turned round once: each column alone would go over all rows again
            self._columns = np.ascontiguousarray(self.table.view(np.int64).reshape(len(self), -1).T)
            self._columns.flags.writeable = False
        column: Numbers = self._columns[kernel.ROW_FIELDS.index(field)]
        return column

    def slice(self, start: int, stop: int) -> "MessageRows":
        """Some of them."""
        return MessageRows(self.region, self.base_offset, self.table[start:stop])


class RowReader:
    """The wanted messages of one segment; afterwards `damage` lists bytes without a record, `seen` counts all records.

    Records must start where reading starts. `is_last`: the segment is the last one and its end is not known: the log
    ends where no record follows that was stored later than those before.
    """

    def __init__(
        self,
        window: LogWindow,
        wanted: Wanted,
        *,
        names: bool = False,
        checksums: bool = True,
        apart: bool = True,
        is_last: bool = False,
        boundary: int = 0,
    ) -> None:
        """`names`: note where keys, tag and unique key lie; `checksums`: hold the messages against theirs;
        `apart`: take batches apart.

        `boundary`: physical offset at which the next segment starts, or would start; 0 for the end of the file.

        Raises FilterSyntaxError for a `where` that is none.
        """
        self._window, self._wanted, self._is_last = window, wanted, is_last
        self._boundary = boundary or window.base_offset + window.size
        self._is_cut = not boundary
        self._query = wanted.query(names=names, checksums=checksums, apart=apart)
        self._whole = wanted.query(names=names, checksums=checksums, apart=False)
        self._expression = None if wanted.where is None else parse(wanted.where)
        self._table = np.empty(ROWS, ROW)
        self._newest = 0
        self.damage: list[DamagedRange] = []
        self.seen = 0
        self.position = 0
        """How far it has come."""

    def read(self, start: int, stop: int) -> Iterator[MessageRows]:
        """Blocks of messages whose records start in [start, stop) of the segment, by position."""
        window = self._window
        first, last = (offset - window.base_offset for offset in self._wanted.physical_offsets)
        stop = min(stop, window.size, last + 1)
        self.position = self._start(start, min(first, stop))
        window.move(self.position)
        while self.position < stop:
            found, reason, code = self._choose(stop)
            if found is not None and (found := self._filter(found, first)) is not None:
                yield found
            if reason == codes.AT_PACKED:
                found = self._unpack()
                if found is not None and (found := self._filter(found, first)) is not None:
                    yield found
                continue
            if reason == codes.AT_BLANK:
                return
            if reason in (kernel.NEED_MORE, codes.AT_LIMIT):
                code = self._read_on(stop)
            elif reason == codes.AT_NOTHING:
                code = ZEROS
            if code and not self._pass(code, stop):
                return

    def _start(self, start: int, first: int) -> int:
        """Where a record starts from which it is not far to `first`, before which none is wanted; else `start`.

        It lies before `first`, so that damage there is met. The end of the log can only be found from its start.
        """
        for distance in () if self._is_last else STEPS_BACK:
            if first - distance <= start:
                break
            found, _ = self._next_intact(first - distance)
            if 0 <= found <= first:
                return found
        return start

    def _choose(self, stop: int) -> tuple[MessageRows | None, int, int]:
        """Choose the wanted messages of the window: those, why the kernel stopped, and the code of damage or 0."""
        window = self._window
        base = window.base_offset + window.start
        chosen = kernel.choose_records(
            window.region,
            self.position - window.start,
            min(stop - window.start, window.filled),
            window.filled,
            base,
            self._boundary,
            self._query,
            self._table.view(np.int64),
        )
        window.require_whole()
        self.position = window.start + chosen.position
        self.seen += chosen.records
        if chosen.last >= 0 and self._is_last:
            self._newest = store_timestamp(window.region, chosen.last)
        rows = MessageRows(window.region, base, self._table[: chosen.rows].copy()) if chosen.rows else None
        return rows, chosen.reason, chosen.code

    def _unpack(self) -> MessageRows | None:
        """The wanted messages of the compressed batch at hand, or itself where it is none. Go on behind it."""
        window, query = self._window, self._query
        at, size = self.position - window.start, window.i32(self.position)
        region, start, base, stop = window.region, at, window.base_offset + window.start, at + size
        try:
            region = Region(with_plain_body(bytes_at(window.region, at, size)))
            start, base, stop = 0, base + at, region.size
        except StoreError:
            query = self._whole
        chosen = kernel.choose_records(
            region, start, start + 1, stop, base, base + stop, query, self._table.view(np.int64)
        )
        self.position += size
        self.seen += chosen.records
        found = self._table[: chosen.rows].copy()
        found["size"] = size
        return MessageRows(region, base, found) if chosen.rows else None

    def _read_on(self, stop: int) -> int:
        """Show the record that the window cuts off, and what follows it; a code where there can be none."""
        window, at = self._window, self.position
        if at >= stop:
            return 0
        if window.size - at < codes.MINIMUM_SIZE:
            return self._short_end(at)
        window.move(at)
        size = window.announced_size(at)
        if size > min(window.size - at, LONGEST_RECORD):
            return codes.BAD_SIZE
        window.fill(min(size + 8, window.size - at))
        return 0

    def _short_end(self, at: int) -> int:
        """Check bytes that are too few for a record: a BLANK ends the segment, zeros are not written."""
        if self._window.is_closed_at(at, self._boundary):
            self.position = self._window.size
            return 0
        return codes.BAD_SIZE

    def _pass(self, code: int, stop: int) -> bool:
        """Note damage and go on behind it; whether anything follows."""
        window, broken = self._window, self.position
        if code == codes.BAD_SIZE and self.position >= window.size:
            return False
        following = self._behind(broken, code)
        if following < 0:
            following, _ = self._next_intact(broken + 1, self._newest - TOLERATED_MS if self._is_last else ANY_TIME)
            if self._is_last and following < 0:
                if code != ZEROS and not self._is_cut_behind(broken, code):
                    self._note(broken, window.size, code)
                return False
        end = following if 0 <= following < stop else min(stop, window.size)
        self._note(broken, end, code)
        self.position = end
        if end < stop:
            window.move(end)
        return end < stop

    def _is_cut_behind(self, position: int, code: int) -> bool:
        """Whether a BLANK is at a position that may lead to the end of a segment of which nobody said the size."""
        window = self._window
        if code != codes.BAD_BLANK or not self._is_cut or not window.show(position, BLANK_BYTES):
            return False
        return may_be_cut(window.base_offset, window.size, position + window.i32(position))

    def _note(self, start: int, stop: int, code: int) -> None:
        base = self._window.base_offset
        self.damage.append(DamagedRange(base + start, base + stop, code))

    def _behind(self, position: int, code: int) -> int:
        """Where the record ends that is damaged within, if its lengths are right and something follows; else −1."""
        if code not in (codes.BAD_BODY_CRC, codes.BAD_PROPERTY_CRC):
            return -1
        window = self._window
        end = position + window.i32(position)
        if end == window.size:
            return end
        is_followed = window.is_closed_at(end, self._boundary) or window.intact_size(window.record_start(end))
        return end if is_followed else -1

    def _next_intact(self, position: int, earliest: int = ANY_TIME) -> tuple[int, int]:
        """Where the next intact record starts that was not stored before a time (ms), and its own time; −1 for none."""
        while (position := self._window.find_candidate(position)) >= 0:
            if self._window.intact_size(position):
                stored = self._window.store_timestamp(position)
                if stored >= earliest:
                    return position, stored
            position += 1
        return -1, 0

    def _filter(self, rows: MessageRows, first: int) -> MessageRows | None:
        """The messages that start at `first` or behind it and that the expression lets pass, or None."""
        kept = np.ones(len(rows), np.bool_)
        if first > 0:
            kept &= rows.table["position"] + (rows.base_offset - self._window.base_offset) >= first
        if self._expression is not None:
            kept &= self._decide(rows, self._expression)
        if kept.all():
            return rows
        return MessageRows(rows.region, rows.base_offset, rows.table[kept]) if kept.any() else None

    def _decide(self, rows: MessageRows, expression: Expression) -> npt.NDArray[np.bool_]:
        """Whether an expression is true for each of the messages."""
        decided = np.empty(len(rows), np.uint8)
        blocks, lengths = rows.column("properties"), rows.column("properties_length")
        decide_records(expression.program, rows.region, blocks, lengths, decided)
        return np.equal(decided, TRUE)
