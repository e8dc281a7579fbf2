"""Where a segment holds no intact record between intact ones: found by stepping over records, checksums and all."""

from collections.abc import Iterator
from dataclasses import dataclass

from storage.files.mapped_file import MappedFile
from storage.kernels import records as codes
from storage.kernels.records import AT_DAMAGE, KeptChecksums, find_record, walk_records

ZEROS = 1
"""In place of a code of the record check: there are zeros where a record should start."""

REASONS = {
    ZEROS: "there are zeros",
    codes.BAD_SIZE: "its size cannot be",
    codes.BAD_MAGIC: "its magic number is wrong",
    codes.BAD_OFFSET: "it says another physical offset of itself",
    codes.BAD_LENGTHS: "its lengths do not add up",
    codes.BAD_BODY_CRC: "its body does not match its CRC",
    codes.BAD_PROPERTY_CRC: "it does not match its property CRC",
    codes.BAD_BLANK: "it is a BLANK, which closes a segment, but its size does not lead to the segment's end",
}


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Physical offsets [start, stop) that hold no intact record; ``code`` says why none starts at ``start``."""

    start: int
    stop: int
    code: int

    @property
    def length(self) -> int:
        """Bytes passed over."""
        return self.stop - self.start

    def sentence(self) -> str:
        """For an operator, as one clause."""
        return f"{self.length} bytes at physical offset {self.start} hold no intact record: {reason_of(self.code)}"


def reason_of(code: int) -> str:
    """Describe a negative code of the record check."""
    return REASONS.get(code, "nothing can be read there")


def find_damaged_ranges(
    file: MappedFile, base_offset: int, start: int, stop: int, boundary: int
) -> Iterator[DamagedRange]:
    """Damage in positions [start, stop) of a segment, in order; ``start`` is where a record should start.

    Ends at the BLANK that leads to ``boundary``, where the next segment starts. Records are checked against their
    checksums. Waits for the disk.
    """
    position, sums = start, KeptChecksums()
    while position < stop:
        walk = walk_records(file.region, position, stop, base_offset, boundary, True, sums)
        if walk.reason != AT_DAMAGE:
            return
        position = find_record(file.region, walk.position + 1, stop, base_offset, sums)
        yield DamagedRange(base_offset + walk.position, base_offset + position, walk.code)
