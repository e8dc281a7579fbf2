"""What lies behind the end of valid data, if that is neither nothing nor a BLANK: a record cut short, or leftovers.

The log ends behind its last record that counts (:mod:`storage.log.segment_end`). After a crash a record that was
being written lies there; after a log was cut and written on, the remainder of old ones.
"""

from dataclasses import dataclass

from storage.files.mapped_file import MappedFile
from storage.log.damaged_ranges import reason_of
from storage.log.segment_end import code_at, is_blank


@dataclass(frozen=True, slots=True)
class TornEnd:
    """The log ends at ``physical_offset`` because of bytes that are no intact record, ``code`` saying why."""

    physical_offset: int
    code: int

    def sentence(self) -> str:
        """What an operator should know, as one clause."""
        return (
            f"the log ends at physical offset {self.physical_offset}, where a record is damaged or cut short: "
            f"{reason_of(self.code)}"
        )


def look_behind_end(base_offset: int, file: MappedFile, end: int, boundary: int) -> TornEnd | None:
    """Examine what follows position ``end`` of a log's last segment; None where nothing, or its BLANK, does.

    ``boundary`` is the physical offset at which the next segment would start.
    """
    head = bytes(file.view[end : end + 8])
    if len(head) < 8 or not any(head) or is_blank(file, end, boundary - base_offset):
        return None
    code = code_at(base_offset, file, end, boundary)
    return None if code > 0 else TornEnd(base_offset + end, code)  # else written since the end was looked for
