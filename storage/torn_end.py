"""What lies behind the end of valid data: nothing, a torn record, or more records than the end admits.

The log ends at the first record of its last segment that fails the check (store-format §6.6), as a broker's recovery
would have it. After a crash that is a record cut short. But a single damaged record may have sound ones behind it that
are no older than those before it; then the end hides messages, and that must be said. Well-formed records that are
older are what a truncation left over.
"""

from dataclasses import dataclass

from storage.kernels import record as codes
from storage.kernels.record import check_checksums, check_shape, store_timestamp
from storage.kernels.scan import find_record, find_record_backwards
from storage.mapped_file import MappedFile

LOOK_AHEAD_BYTES = 64 * 1024 * 1024
LOOK_BACK_BYTES = 4 * 1024 * 1024

REASONS = {
    codes.BAD_SIZE: "its size cannot be",
    codes.BAD_MAGIC: "its magic number is none",
    codes.BAD_OFFSET: "it says another physical offset of itself",
    codes.BAD_LENGTHS: "its lengths do not add up",
    codes.BAD_BODY_CRC: "its body does not match its CRC",
    codes.BAD_PROPERTY_CRC: "it does not match its property CRC",
}


@dataclass(frozen=True, slots=True)
class TornEnd:
    """The log ends at ``physical_offset`` because of bytes that are no intact record, ``code`` saying why.

    ``next_record`` is where sound records that are no older than those before go on, or None.
    """

    physical_offset: int
    code: int
    next_record: int | None

    def sentence(self) -> str:
        """What an operator should know, as one clause."""
        reason = REASONS.get(self.code, "nothing can be read there")
        text = (
            f"the log ends at physical offset {self.physical_offset}, where a record is damaged or cut short: {reason}"
        )
        if self.next_record is None:
            return text
        return f"{text}; intact records follow from {self.next_record} on and are not served"


def look_behind_end(base_offset: int, file: MappedFile, end: int) -> TornEnd | None:
    """Examine what follows position ``end`` of a log's last segment; None where nothing, or a BLANK, does."""
    head = bytes(file.view[end : end + 8])
    if len(head) < 8 or not any(head) or int.from_bytes(head[4:], "big", signed=True) == codes.MAGIC_BLANK:
        return None
    code = int(check_shape(file.address + end, file.size - end, base_offset + end))
    if code > 0:
        code = int(check_checksums(file.address + end, code))
    if code > 0:  # written since the end was looked for
        return None
    stop = min(file.size, end + LOOK_AHEAD_BYTES)
    following = int(find_record(file.address, end + 1, stop, base_offset))
    credible = following < stop and store_timestamp(file.address + following) >= _last_timestamp(base_offset, file, end)
    return TornEnd(base_offset + end, code, base_offset + following if credible else None)


def _last_timestamp(base_offset: int, file: MappedFile, end: int) -> int:
    """Store time of the last record before ``end``, 0 if none is found near."""
    lowest = max(0, end - LOOK_BACK_BYTES)
    position = max(end - lowest - codes.MINIMUM_SIZE + 1, 0)
    found = int(find_record_backwards(file.address + lowest, position, base_offset + lowest))
    return int(store_timestamp(file.address + lowest + found)) if found >= 0 else 0
