"""The CommitLog: segments of one or several directories as one stream of records, at one moment.

A :class:`CommitLog` is an immutable snapshot. Opening lists the segments, checks that each starts where the one before
ends, and finds the end of the valid data by parsing the last segment that holds any (:mod:`storage.log.segment_end`).
Bytes beyond that end may be well-formed old records and are never served.
"""

import itertools
import os
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from protocol.errors import StoreError
from storage.files.mapped_file import FileIdentity, MappedFile, lacks_means, open_read_only, segment_offset
from storage.files.waiting import Lookup, Wait, WaitKind, current_tick, plainly
from storage.kernels import records as codes
from storage.kernels.records import KeptChecksums, check_intact, check_shape, record_start, store_timestamp
from storage.kernels.region import Region
from storage.kernels.store_view import LogView
from storage.log.damaged_ranges import DamagedRange
from storage.log.segment_end import EndSearch, IsLeftOver, SegmentEnd, TornEnd, last_store_timestamp, look_behind_end
from storage.log.segment_list import boundaries, list_segments, reaches_beyond

MOST_DAMAGE_NOTES = 5
"""Most places of damage that are reported one by one."""


LEFT_OVER: Final = (
    "there are intact records that no queue is known to have, and that are older than those in front of them, left "
    "over from a log that was cut"
)


@dataclass(frozen=True, slots=True)
class Segment:
    """One file of the log; ``valid_length`` bytes of it may hold records.

    ``next_base`` is the physical offset at which the next segment starts, or would start; 0 for the end of the file.
    """

    base_offset: int
    file: MappedFile
    valid_length: int
    next_base: int = 0

    @property
    def end(self) -> int:
        """Physical offset after the last valid byte."""
        return self.base_offset + self.valid_length

    @property
    def boundary(self) -> int:
        """Physical offset up to which the segment's BLANK record reaches, even if the file was cut."""
        return self.next_base or self.base_offset + self.file.size

    def region_at(self, position: int) -> Region:
        """What kernels read, of which all that is looked at of a record that starts at a position is there."""
        size = int.from_bytes(self.file.slice(position, position + codes.HEAD)[:4])
        limit = self.valid_length if position < self.valid_length else self.file.size
        size = size if size <= limit - position else 0  # one that is wrong is refused by the head alone
        return self.file.region_of(position, position + max(size, codes.ENTRY_HEAD))


class CommitLog:
    """All segments of a store at one moment; records start at ``minimum`` or later, and before ``end``."""

    def __init__(
        self,
        segments: Sequence[Segment],
        problems: Iterable[str],
        unreadable: Iterable[Path] = (),
        torn_end: TornEnd | None = None,
        damage: tuple[DamagedRange, ...] = (),
        is_left_over: IsLeftOver | None = None,
        more_damage: int = 0,
    ) -> None:
        """Build the lookup table over segments that are sorted by base offset and do not overlap.

        ``problems`` are those of the files. ``torn_end`` describes damage at the log's end, if there is any;
        ``damage`` lists damaged places in the last segment that were passed over, ``more_damage`` counts further ones.
        """
        self.segments = tuple(segments)
        self.unreadable = tuple(unreadable)
        self.torn_end = torn_end
        self.damage = damage
        self.more_damage = more_damage
        self.is_left_over = is_left_over
        self._file_problems = tuple(problems)
        self.stale_from: int | None = None
        """Where records begin that are left over behind a running broker's end, None where none are known."""
        self.minimum = segments[0].base_offset if segments else 0
        self.end = segments[-1].end if segments else 0
        self._bases = [segment.base_offset for segment in segments]
        self._sums: defaultdict[int, KeptChecksums] = defaultdict(KeptChecksums)
        """Checksums of parts of a segment, by its base offset, so that no part is summed up again and again."""
        self._summing = threading.Lock()
        self.view = LogView((segment.base_offset, segment.file, segment.valid_length) for segment in segments)
        self.holes = tuple(_find_holes(self.segments))
        """Ranges of physical offsets, [from, to), between segments that no segment covers."""

    @classmethod
    def open(
        cls,
        directories: Iterable[Path],
        previous: "CommitLog | None" = None,
        known_ends: Mapping[FileIdentity, int] | None = None,
        is_left_over: IsLeftOver | None = None,
        cut_at: int | None = None,
    ) -> "CommitLog":
        """Open the log as it is now. Maps of ``previous`` are taken over where the files are the same.

        ``known_ends`` are, for segments whose files are unchanged, the physical offsets up to which they were found
        valid and without damage. ``is_left_over`` decides whether a record after damage is a leftover that does not
        count. If ``cut_at`` is given the log ends there, because a broker has cut it there. Raises StoreError when a
        directory cannot be listed or no segment can be read.
        """
        problems: list[str] = []
        unreadable: dict[Path, StoreError] = {}
        files = _open_files(list_segments(directories, problems), previous, problems, unreadable)
        if unreadable and not files:
            raise next(iter(unreadable.values()))
        # A walk that starts from a known end does not find damage before it.
        clean = previous.segments if previous and not previous.damage else ()
        ends = {segment.file.identity: segment.end for segment in clean}
        _report_adjacency(files, problems)
        if cut_at is not None and (cut := _cut(files, cut_at)) is not None:
            return cls(cut, problems, unreadable, _torn_end_of(cut), (), is_left_over)
        segments, end = _trim(files, {**(known_ends or {}), **ends}, is_left_over, problems)
        torn_end = _torn_end_of(segments)
        return cls(segments, problems, unreadable, torn_end, end.damage, is_left_over, end.more_damage)

    @property
    def problems(self) -> tuple[str, ...]:
        """Everything that is missing, foreign or damaged, as sentences."""
        reported = (*self._file_problems, *self.damage_notes)
        if self.stale_from is not None:
            reported += (f"behind physical offset {self.stale_from} {LEFT_OVER}: they are not served",)
        if self.torn_end is None:
            return reported
        end = f"no intact record starts at {self.end}: the log ends there, what lies behind is not served"
        return (*reported, end, self.torn_end.sentence())

    @property
    def damage_notes(self) -> tuple[str, ...]:
        """The damage that was passed over in the last segment, as sentences."""
        more = len(self.damage) + self.more_damage - MOST_DAMAGE_NOTES
        reported = tuple(damage.sentence() for damage in self.damage[:MOST_DAMAGE_NOTES])
        return reported if more <= 0 else (*reported, f"{more} more places of the last segment hold no intact record")

    def grown(self, segments: Sequence[Segment], damage: tuple[DamagedRange, ...] = ()) -> "CommitLog":
        """Return this log with more records: its last segment is longer, others may follow, and its end is not torn.

        ``damage`` are damaged places among the new records that were passed over.
        """
        if len(segments) != len(self.segments) or segments[-1].file is not self.segments[-1].file:
            about = self._file_problems, self.unreadable, None, self.damage, self.is_left_over, self.more_damage
            longer = CommitLog(segments, *about)
            longer.stale_from = self.stale_from
            return longer
        grown = copy(self)  # the objects that were made for each segment are shared
        grown.segments, grown.torn_end, grown.end = tuple(segments), None, segments[-1].end
        grown.damage += damage
        grown.view = self.view.grown(segments[-1].valid_length)
        return grown

    def ending_at(self, physical_offset: int) -> "CommitLog":
        """Return this log without the records of its last segment from a physical offset on, which are left over."""
        last = self.segments[-1]
        segments = [*self.segments[:-1], replace(last, valid_length=physical_offset - last.base_offset)]
        damage = tuple(each for each in self.damage if each.stop <= physical_offset)
        log = CommitLog(
            segments, self._file_problems, self.unreadable, None, damage, self.is_left_over, self.more_damage
        )
        log.stale_from = physical_offset
        return log

    def torn(self) -> "CommitLog":
        """Return this log with a torn end, because the bytes after its end will not become a record any more."""
        torn = copy(self)
        torn.torn_end = _torn_end_of(self.segments)
        return torn

    def relisted(self, directories: Iterable[Path]) -> "CommitLog":
        """Return the log of the files that exist now: this one, or one without the segments that expired.

        New files after its last segment are not added; the follower of the log's end does that. If anything else has
        changed the log is opened anew. Raises StoreError as :meth:`open` does.
        """
        directories = list(directories)
        problems: list[str] = []
        paths = list_segments(directories, problems)
        listed = set(paths)
        kept = [segment for segment in self.segments if _is_there(segment, listed)]
        others = listed - {(segment.base_offset, segment.file.path) for segment in kept}
        is_tail = bool(kept) and kept == list(self.segments[-len(kept) :])
        if not is_tail or self.unreadable or any(base_offset <= kept[-1].base_offset for base_offset, _ in others):
            return CommitLog.open(directories, self, is_left_over=self.is_left_over)
        if len(kept) == len(self.segments):
            return self
        _report_adjacency([(segment.base_offset, segment.file) for segment in kept], problems)
        about = self.unreadable, self.torn_end, self.damage, self.is_left_over, self.more_damage
        log = CommitLog(kept, problems, *about)
        log.stale_from = self.stale_from
        return log

    def record_lookup(self, physical_offset: int, size: int) -> Lookup[memoryview | None]:
        """Return ``size`` unchecked bytes at a physical offset; None if they are not in one segment's valid part."""
        number = self._segment_number(physical_offset)
        if number is None or size < 0 or physical_offset + size > self.segments[number].end:
            return None
        return (yield from self.segments[number].file.read_lookup(physical_offset - self._bases[number], size))

    record = plainly(record_lookup)

    def record_at(self, physical_offset: int) -> memoryview | None:
        """The intact record that starts at a physical offset (magic, own offset, lengths, checksums), or None.

        A slice of the map, exactly as long as the record.
        """
        found = self.view.record_at(physical_offset, 0)
        return None if isinstance(found, int) else found

    def hot_record_at(self, physical_offset: int) -> memoryview | None:
        """The record at a physical offset if its pages are in memory; None if there is none or it has to be read."""
        found = self.view.record_at(physical_offset, current_tick())
        return None if isinstance(found, int) else found

    def record_at_lookup(self, physical_offset: int) -> Lookup[memoryview | None]:
        """`record_at` as a look-up, which waits until the record's pages are in memory."""
        found = self.view.record_at(physical_offset, current_tick())
        if isinstance(found, int):
            if found != codes.COLD:
                return None
            yield self.cold(physical_offset)
            return self.record_at(physical_offset)
        return found

    def unchecked_record_at(self, physical_offset: int) -> memoryview | None:
        """The record of sound shape that starts at a physical offset, or None; its checksums are not verified."""
        found = self.view.unchecked_record_at(physical_offset, 0)
        return None if isinstance(found, int) else found

    def unchecked_record_at_lookup(self, physical_offset: int) -> Lookup[memoryview | None]:
        """`unchecked_record_at` as a look-up, which waits until the record's pages are in memory."""
        found = self.view.unchecked_record_at(physical_offset, current_tick())
        if isinstance(found, int):
            if found != codes.COLD:
                return None
            yield self.cold(physical_offset)
            return self.unchecked_record_at(physical_offset)
        return found

    def damaged_record_at(self, physical_offset: int) -> memoryview | None:
        """The record of sound shape at a physical offset, or None; its checksums are not verified.

        If the log ends at damage, records after its end are found too, up to the end of the last segment's file.
        """
        place = self._available(physical_offset) or self._behind_end(physical_offset)
        if place is None:
            return None
        segment, position, available = place
        size = check_shape(segment.region_at(position), position, position + available, physical_offset)
        return segment.file.read(position, size) if size > 0 else None

    def check(self, physical_offset: int) -> int:
        """Return the size of the record at a physical offset, or a negative code of :mod:`storage.kernels.records`."""
        place = self._available(physical_offset)
        if place is None:
            return codes.NO_SEGMENT
        segment, position, available = place
        with self._summing:  # entries may lead to many places that claim to be long records
            # Of bytes that come when they are looked at, sums may be those of zeros.
            sums = None if segment.file.is_hollow else self._sums[segment.base_offset]
            return check_intact(segment.region_at(position), position, position + available, physical_offset, sums)

    def record_start_lookup(self, physical_offset: int) -> Lookup[int]:
        """Return the physical offset behind the heads of DLedger entries that start at one; itself where none does."""
        while (place := self._available(physical_offset)) is not None:
            segment, position, available = place
            seen = min(available, codes.ENTRY_HEAD)
            head = yield from segment.file.read_lookup(position, seen)
            is_empty = codes.ENTRY_OF_RECORD < int.from_bytes(head[: codes.ENTRY_SIZE]) <= codes.LAST_ENTRY_KIND
            if is_empty:  # of an entry without a record no more is looked at, and the next one may be cold
                seen = min(available, max(seen, int.from_bytes(head[codes.ENTRY_SIZE : codes.HEAD])))
            region = segment.file.region_of(position, position + seen)
            start = record_start(region, position, position + seen, physical_offset)
            if start == position or not is_empty:
                return segment.base_offset + start
            physical_offset = segment.base_offset + start
        return physical_offset

    record_start = plainly(record_start_lookup)

    def store_timestamp_at_lookup(self, physical_offset: int, size: int) -> Lookup[int]:
        """Return the store time in ms of the record at a physical offset; −1 if ``size`` bytes are not in the log."""
        place = self._available(physical_offset)
        if place is None or size > place[2] or place[2] < codes.MINIMUM_SIZE:
            return -1
        segment, position, _ = place
        if (wait := segment.file.wait_for(position, codes.MINIMUM_SIZE)) is not None:
            yield wait
        return store_timestamp(segment.file.region_of(position, position + codes.MINIMUM_SIZE), position)

    store_timestamp_at = plainly(store_timestamp_at_lookup)

    def first_timestamp_lookup(self) -> Lookup[int]:
        """Return the store time in ms of what begins the log, behind heads of DLedger's; −1 where the log is empty."""
        if self.segments:
            file, length = self.segments[0].file, self.segments[0].valid_length
            if (wait := file.wait_for(0, min(codes.ENTRY_HEAD, length))) is not None:
                yield wait
        first = self.record_start(self.minimum)
        return (yield from self.store_timestamp_at_lookup(first, codes.MINIMUM_SIZE))

    first_timestamp = plainly(first_timestamp_lookup)

    def can_read_more(self) -> bool:
        """Whether a segment that could not be read when the log was opened can be opened now."""
        return any(_can_be_opened(path) for path in self.unreadable)

    def refuse_unreadable(self, physical_offset: int) -> None:
        """Raise StoreError if an offset may be in a segment that is unreadable."""
        for path in self.unreadable:
            base = segment_offset(path.name) or 0
            following = self.next_segment_start(base)
            if base <= physical_offset and (following is None or physical_offset < following):
                raise StoreError(path, what="cannot be read, and may hold the message")

    def refuse_hidden_ends(self) -> None:
        """Raise StoreError if the first or the last segment is unreadable.

        In this case it is not known either where its queues begin or end.
        """
        for path in self.unreadable:
            base = segment_offset(path.name) or 0
            if not self.segments or not self.minimum < base < self.segments[-1].base_offset:
                raise StoreError(path, what="cannot be read, so that it is not known where queues begin and end")

    def gaps(self) -> tuple[str, ...]:
        """Sentences about missing and unreadable parts of the log; not about damage within segments."""
        return (
            *(f"no segment holds physical offsets {start} to {stop}" for start, stop in self.holes),
            *(f"segment {path.name} cannot be read" for path in self.unreadable),
            *((self.torn_end.sentence(),) if self.torn_end else ()),
        )

    def last_store_timestamp(self) -> int:
        """Store time in ms of the last intact record; 0 where none is found near the ends of segments.

        Waits for the disk.
        """
        for segment in reversed(self.segments):
            if not segment.file.is_cut():
                found = EndSearch(segment.base_offset, segment.file).last_timestamp(segment.valid_length)
                if found:
                    return found
        return 0

    def segment_of(self, physical_offset: int) -> Segment | None:
        """The segment whose valid part contains a physical offset, or None."""
        number = self._segment_number(physical_offset)
        return None if number is None else self.segments[number]

    def next_segment_start(self, physical_offset: int) -> int | None:
        """Base offset of the first segment that starts after a physical offset, or None."""
        return next((base for base in self._bases if base > physical_offset), None)

    def cold(self, physical_offset: int) -> Wait:
        """The wait of a look-up whose record is not in memory."""
        segment = self.segment_of(physical_offset)
        if segment is None:
            return Wait(f"physical offset {physical_offset} is cold", kind=WaitKind.PAGE)
        file, position = segment.file, physical_offset - segment.base_offset

        def warm() -> None:
            size = check_shape(file.region, position, segment.valid_length, physical_offset)
            file.warm(position, max(size, codes.MINIMUM_SIZE))

        return Wait(f"physical offset {physical_offset} is cold", warm)

    def _available(self, physical_offset: int) -> tuple[Segment, int, int] | None:
        """Return the segment of an offset, the position in it, and the bytes from there to its valid part's end."""
        segment = self.segment_of(physical_offset)
        if segment is None:
            return None
        position = physical_offset - segment.base_offset
        return segment, position, segment.valid_length - position

    def _behind_end(self, physical_offset: int) -> tuple[Segment, int, int] | None:
        """Return segment, position and bytes up to the end of the file for an offset after a torn end; else None."""
        if self.torn_end is None:
            return None
        segment = self.segments[-1]
        if not self.end <= physical_offset < segment.base_offset + segment.file.size:
            return None
        position = physical_offset - segment.base_offset
        return segment, position, segment.file.size - position

    def _segment_number(self, physical_offset: int) -> int | None:
        number = self.view.find_segment(physical_offset) if -(2**63) <= physical_offset < 2**63 else -1
        return None if number < 0 else number


def _open_files(
    paths: list[tuple[int, Path]],
    previous: CommitLog | None,
    problems: list[str],
    unreadable: dict[Path, StoreError],
) -> list[tuple[int, MappedFile]]:
    """Map the segments, or take over maps of the same files; files that cannot be read are added to `unreadable`."""
    known = {segment.file.path: segment.file for segment in previous.segments} if previous else {}
    files: list[tuple[int, MappedFile]] = []
    for base_offset, path in paths:
        try:
            file = MappedFile.of(path, known.get(path))
        except StoreError as error:
            if lacks_means(error):  # a limit of the process, not of the file: messages would seem to be missing
                what = f"{error.what}; a store of {len(paths)} segments needs higher limits (ulimit -n, ulimit -v)"
                raise StoreError(path, what=what) from error
            unreadable[path] = error
            problems.append(f"{error}; it is served without")
            continue
        if not file.size:
            problems.append(f"{path} is empty")
        elif reaches_beyond(base_offset, file.size):
            problems.append(f"{path} reaches beyond the largest offset there is and is ignored")
        else:
            files.append((base_offset, file))
    return files


def _can_be_opened(path: Path) -> bool:
    try:
        os.close(open_read_only(path))
    except StoreError:
        return False
    return True


def _trim(
    files: list[tuple[int, MappedFile]],
    known_ends: Mapping[FileIdentity, int],
    is_left_over: IsLeftOver | None,
    problems: list[str],
) -> tuple[list[Segment], SegmentEnd]:
    """Return the segments and the end of the log in the last one that holds data, with the damage before that end.

    The other segments are valid as a whole, the last one up to that end. Later files hold no records that count.
    """
    bases = boundaries([(base_offset, file.size) for base_offset, file in files])
    last, end = len(files) - 1, SegmentEnd(0, False, ())
    while last >= 0:
        before = partial(last_store_timestamp, *files[last - 1]) if last else int
        search = EndSearch(*files[last], before, is_left_over, bases[last])
        end = search.run(known_ends.get(files[last][1].identity, 0))
        if len(files) == 1 and (length := search.length_behind(end.position)):
            bases, end = [files[0][0] + length], replace(end, is_full=True)
        if end.position > 0 or last == 0:
            break
        if any(files[last][1].slice(0, 8)) and not end.is_full:
            problems.append(f"{files[last][1].path} starts with no record: the log ends before it")
        last -= 1
    segments = []
    for number, (base_offset, file) in enumerate(files[: last + 1]):
        length = file.size if number < last else end.position
        if number + 1 < len(files):
            length = min(length, files[number + 1][0] - base_offset)
        segments.append(Segment(base_offset, file, length, bases[number]))
    if segments and end.is_full and _is_followed(files, last):
        segments[-1] = replace(segments[-1], valid_length=files[last][1].size)
    return segments, end


def _cut(files: list[tuple[int, MappedFile]], cut_at: int) -> list[Segment] | None:
    """Return the segments up to a physical offset at which records start, or None where no file contains it."""
    kept = [(base_offset, file) for base_offset, file in files if base_offset <= cut_at]
    if not kept or cut_at > kept[-1][0] + kept[-1][1].size:
        return None
    bases = boundaries([(base_offset, file.size) for base_offset, file in files])
    lengths = [*(file.size for _, file in kept[:-1]), cut_at - kept[-1][0]]
    return [Segment(*file, length, base) for file, length, base in zip(kept, lengths, bases, strict=False)]


def _is_followed(files: list[tuple[int, MappedFile]], number: int) -> bool:
    """Whether the next segment exists and starts where this one ends."""
    return number + 1 < len(files) and files[number + 1][0] == files[number][0] + files[number][1].size


def _find_holes(segments: Sequence[Segment]) -> Iterator[tuple[int, int]]:
    for left, right in itertools.pairwise(segments):
        if left.base_offset + left.file.size < right.base_offset:
            yield left.base_offset + left.file.size, right.base_offset


def _torn_end_of(segments: Sequence[Segment]) -> TornEnd | None:
    """Return the damage after the end of a log of these segments, if there is any."""
    if not segments:
        return None
    last = segments[-1]
    return look_behind_end(last.base_offset, last.file, last.valid_length, last.boundary)


def _is_there(segment: Segment, paths: Set[tuple[int, Path]]) -> bool:
    """Whether the file at a segment's path is still the same one, of the same size."""
    if (segment.base_offset, segment.file.path) not in paths:
        return False
    try:
        return FileIdentity.of(os.stat(segment.file.path))[:3] == segment.file.identity[:3]
    except OSError:
        return False


def _report_adjacency(files: list[tuple[int, MappedFile]], problems: list[str]) -> None:
    for (base_offset, file), (following, after) in itertools.pairwise(files):
        end = base_offset + file.size
        if end < following:
            problems.append(f"hole in the log: no segment holds physical offsets {end} to {following}")
        elif end > following:
            problems.append(f"{file.path} reaches beyond the start of {after.path}; the overlap is ignored")
