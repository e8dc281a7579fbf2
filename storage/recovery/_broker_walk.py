"""What a broker's recovery meets in the segments of a log, each read once, when it is asked for.

A broker takes less and more for a record than we do (store-format §2.8). It does not ask whether a record lies where
it says, nor whether the property with a checksum of the whole record is right, and it goes on in the next segment at
any BLANK that does not reach beyond the end of its file. But a property that must be a number and is none ends its log.

Brokers differ (:class:`Rules`): those before 5.3.2 believe a BLANK of any size, and those of 4.x parse no numbers of
batches. Proven with the store classes of 5.5.0 and 4.9.8.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from protocol.message_layout import locate
from protocol.system_topics import SCHEDULE_TOPIC
from storage.build.dispatch_scan import DispatchOptions, DispatchScan, Reason, Step
from storage.files.mapped_file import MappedFile
from storage.kernels import records as codes
from storage.kernels.records import check_intact, check_shape, store_timestamp
from storage.log.commit_log import Segment
from storage.recovery.start_place import Broker, SegmentHead

MOST_WALKED: Final = 12 * 1024 * 1024 * 1024
"""Bytes that are read: more than a broker from 5.5 on reads of segments of a broker's default size."""

MOST_DOUBTFUL: Final = 200_000
"""Records that are looked at one by one since a broker may take them for some and we do not."""

NEXT_SEGMENT: Final = 0
NO_RECORD: Final = -1
LARGEST_SHIFTED: Final = 1 << 62
"""Physical offsets beyond it are not computed with."""


class Rules(NamedTuple):
    """What a broker takes for the next step.

    `bounds_sizes`: nothing, a BLANK neither, reaches beyond its file.
    `parses_batches`: the numbers of inner batches must be some; those of delays in the schedule topic always.
    """

    bounds_sizes: bool = True
    parses_batches: bool = True


NEWEST: Final = Rules()
RULES: Final = {
    Broker.FROM_5_5: NEWEST,
    Broker.FROM_5_3_1: NEWEST,
    Broker.FROM_5_0: Rules(bounds_sizes=False),
    Broker.UP_TO_4_9: Rules(bounds_sizes=False, parses_batches=False),
}
"""The size is bounded from 5.3.2 on. Records of the second version, which 4.x does not know, make it none of 4.x's."""


class WalkEnd(NamedTuple):
    """Where the walk over a segment ended; `goes_on`: there a broker turns to the next segment."""

    physical_offset: int
    goes_on: bool


class BrokerWalk:
    """The walks over all segments of a log, as far as they were asked for. Not for several threads at once."""

    def __init__(self, segments: Sequence[Segment], most_bytes: int, rules: Rules = NEWEST) -> None:
        """Walk over these segments: all files of the log in order, those that hold nothing as well."""
        self.segments = tuple(segments)
        self._rules = rules
        self.is_complete = True
        """Whether all that was asked for was read; else what is beyond a limit was taken for sound."""
        self._left = most_bytes
        self._doubtful = MOST_DOUBTFUL
        self._ends: dict[int, WalkEnd] = {}
        self._scan = DispatchScan(DispatchOptions(tags=False, checksums=True, units=False, entries=False))
        self._single = DispatchScan(DispatchOptions(tags=False, units=False, entries=False, records=1))

    def end_from(self, number: int) -> int:
        """Physical offset at which a recovery that starts with a segment ends the log."""
        for each in range(number, len(self.segments)):
            end = self._end(each)
            if not end.goes_on or each == len(self.segments) - 1:
                return end.physical_offset
        return self.segments[-1].base_offset if self.segments else 0

    def head(self, number: int, *, is_checked: bool = True) -> SegmentHead:
        """The first record of a segment; old brokers look at its magic number alone, not `is_checked`."""
        segment = self.segments[number]
        file = segment.file
        if file.size < codes.MINIMUM_SIZE:
            return SegmentHead(segment.base_offset, 0)
        if is_checked:
            is_record = broker_step(file, 0) > 0 and not self._has_bad_number(segment, 0)
        else:
            magic = int.from_bytes(file.view[codes.MAGIC : codes.MAGIC + 4], signed=True)
            is_record = magic in (codes.MAGIC_V1, codes.MAGIC_V2)
        if not is_record:
            return SegmentHead(segment.base_offset, 0)
        return SegmentHead(stated_offset(file, 0), store_timestamp(file.region, 0))

    def _end(self, number: int) -> WalkEnd:
        if number not in self._ends:
            self._ends[number] = self._walk(self.segments[number])
        return self._ends[number]

    def _walk(self, segment: Segment) -> WalkEnd:
        """Walk over a segment from its first byte on."""
        file, position, shift = segment.file, 0, 0
        if self._left <= 0:
            self.is_complete = False
            return WalkEnd(segment.boundary, True)
        self._left -= file.size
        while True:
            step = self._run(self._scan, segment, position, file.size, shift)
            position = step.position
            if step.reason == Reason.FULL:
                continue
            if step.reason == Reason.BLANK:
                return WalkEnd(segment.base_offset + position, True)
            self._doubtful -= 1
            if self._doubtful < 0:
                self.is_complete = False
                return WalkEnd(segment.boundary, True)
            size = self._size_of_doubtful(segment, position, step)
            if size <= 0:
                return WalkEnd(segment.base_offset + position, size == NEXT_SEGMENT)
            shift = stated_offset(file, position) - segment.base_offset - position
            if not 0 <= shift + segment.base_offset < LARGEST_SHIFTED:
                shift = 0
            position += size

    def _size_of_doubtful(self, segment: Segment, position: int, step: Step) -> int:
        """Size of what a broker takes for a record where we do not, NEXT_SEGMENT for a BLANK, or NO_RECORD."""
        is_number = step.reason == Reason.DAMAGE and step.code == codes.BAD_NUMBER
        if is_number and self._rules.parses_batches:
            return NO_RECORD
        size = broker_step(segment.file, position, bounds_blank=self._rules.bounds_sizes)
        return NO_RECORD if size > 0 and self._has_bad_number(segment, position) else size

    def _has_bad_number(self, segment: Segment, position: int) -> bool:
        """Whether one of the properties of a record of sound shape that must be a number is none."""
        shift = stated_offset(segment.file, position) - segment.base_offset - position
        if not 0 <= shift + segment.base_offset < LARGEST_SHIFTED:
            return False
        if not self._rules.parses_batches and not self._is_scheduled(segment.file, position):
            return False
        step = self._run(self._single, segment, position, position + 1, shift)
        return step.reason == Reason.DAMAGE and step.code == codes.BAD_NUMBER

    @staticmethod
    def _is_scheduled(file: MappedFile, position: int) -> bool:
        """Whether a record of sound shape is of the schedule topic, whose delays every broker parses."""
        places = locate(file.view[position:])
        return bytes(file.view[position + places.topic :][: places.topic_length]) == SCHEDULE_TOPIC.encode()

    @staticmethod
    def _run(scan: DispatchScan, segment: Segment, position: int, limit: int, shift: int) -> Step:
        """Scan on, as if the segment lay `shift` bytes behind its place; what is gathered is of no use here."""
        base, file = segment.base_offset + shift, segment.file
        step = scan.run(file.region, position, file.size, base, segment.boundary + shift, limit)
        scan.take()
        return step


def broker_step(file: MappedFile, position: int, *, bounds_blank: bool = True) -> int:
    """Size of what a broker's check takes for a record, NEXT_SEGMENT for a BLANK, NO_RECORD (store-format §2.8).

    Whether its properties are the numbers that they must be is not looked at.
    """
    left = file.size - position
    head = bytes(file.view[position : position + codes.HEAD])
    if left < codes.HEAD:
        return NO_RECORD
    is_blank, reaches_beyond = (
        int.from_bytes(head[codes.MAGIC :], signed=True) == codes.MAGIC_BLANK,
        int.from_bytes(head[: codes.MAGIC], signed=True) > left,
    )
    if is_blank and not (bounds_blank and reaches_beyond):
        return NEXT_SEGMENT
    if reaches_beyond:
        return NO_RECORD
    size = check_intact(file.region, position, file.size, -1)
    if size == codes.BAD_PROPERTY_CRC:
        size = check_shape(file.region, position, file.size, -1)
    return max(size, NO_RECORD)


def stated_offset(file: MappedFile, position: int) -> int:
    """The physical offset that a record says of itself."""
    start = position + codes.PHYSICAL_OFFSET
    return int.from_bytes(file.view[start : start + 8], signed=True)
