"""Looks up which record has a queue offset, by one unit of the queue's file, without opening the queue.

When a log is cut and written further, the queue offsets of the records that were cut off are given again, and their
units are overwritten (store-format §6.3). So if the unit of a record points to an earlier one, the record is left over.
"""

import os
from pathlib import Path
from typing import Final

from protocol.errors import StoreError
from protocol.message_layout import locate
from storage.files.mapped_file import LARGEST_OFFSET, list_segment_files, read_piece
from storage.kernels.records import MINIMUM_SIZE, find_record_backwards
from storage.layout.store_layout import CONSUME_QUEUE
from storage.log.commit_log import CommitLog
from storage.queue.queue_record import is_queued
from storage.queue.unit_struct import FILLER, UNIT

_TRANSACTION_MASK: Final = 0xC
_UNQUEUED: Final = (0x4, 0xC)
_QUEUE_ID, _QUEUE_OFFSET, _SYS_FLAG = 3, 5, 7
"""Numbers of fields in the fixed part of a record."""


def has_another(root: Path, record: memoryview, physical_offset: int) -> bool:
    """Whether the unit for a record of sound shape, in its plain queue, points to an earlier record.

    False too where the queue or the unit is missing, or the unit points to no record.
    """
    unit = _unit_of(root, record, physical_offset)
    if unit is None or unit == FILLER:
        return False
    other, size, _ = unit
    return size > 0 and 0 <= other < physical_offset


def is_in_place(root: Path, record: memoryview, physical_offset: int) -> bool:
    """Whether the unit for a record of sound shape, in its plain queue, points to that record."""
    unit = _unit_of(root, record, physical_offset)
    return unit is not None and unit[:2] == (physical_offset, len(record))


def has_newest_unit(root: Path, log: CommitLog) -> bool:
    """Whether the last message of a log that is in a plain queue has its unit in the file of that queue."""
    for segment in reversed(log.segments):
        region, base, position = segment.file.region, segment.base_offset, segment.valid_length
        while (position := find_record_backwards(region, 0, max(0, position - MINIMUM_SIZE + 1), base)) >= 0:
            record = log.unchecked_record_at(base + position)
            if record is not None and is_queued(record):
                return is_in_place(root, record, base + position)
    return False


def _unit_of(root: Path, record: memoryview, physical_offset: int) -> tuple[int, int, int] | None:
    """Return the unit for a record of sound shape; None where there is no such file, or it is too short."""
    try:
        places = locate(record, physical_offset)
    except StoreError:  # the record has changed since it was checked
        return None
    fields = places.fixed.unpack_from(record)
    if fields[_SYS_FLAG] & _TRANSACTION_MASK in _UNQUEUED or fields[_QUEUE_OFFSET] < 0:
        return None
    topic = bytes(record[places.topic : places.topic + places.topic_length])
    return _unit_at(root, topic, fields[_QUEUE_ID], fields[_QUEUE_OFFSET])


def _unit_at(root: Path, topic: bytes, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
    """Read the unit of a queue offset from its file; None where no file contains it."""
    if b"/" in topic or b"\0" in topic or topic in (b"", b".", b".."):  # not the name of a subdirectory
        return None
    try:
        files, _ = list_segment_files(root / CONSUME_QUEUE / os.fsdecode(topic) / str(queue_id))
    except StoreError:
        return None
    position = queue_offset * UNIT.size
    if position > LARGEST_OFFSET:  # the record is damaged, since no file is so long
        return None
    path, start = next(((path, start) for start, path in reversed(files) if start <= position), (None, 0))
    if path is None:
        return None
    try:
        data = read_piece(path, position - start, UNIT.size)
    except StoreError:
        return None
    return UNIT.unpack(data) if len(data) == UNIT.size else None
