"""Why no record starts at a physical offset, in words an operator can act on."""

from storage.files.waiting import Lookup, Wait, plainly
from storage.kernels import records as codes
from storage.kernels.records import check_shape, find_record_backwards, record_start
from storage.log.commit_log import CommitLog, Segment
from storage.log.damaged_ranges import REASONS, reason_of
from storage.log.segment_end import is_blank

SEARCH_BACK_BYTES = 4 * 1024 * 1024
"""How far back the record is looked for that an offset may lie in: no record of a standard broker is longer."""


def explain_absence_lookup(commit_log: CommitLog, physical_offset: int) -> Lookup[str]:
    """One clause, e.g. ``physical offset 1 lies inside the record that starts at 0 (275 bytes)``.

    Searches up to 4 MiB backwards.
    """
    subject = f"physical offset {physical_offset}"
    if not commit_log.segments:
        return f"{subject}: the log is empty"
    if physical_offset < commit_log.minimum:
        return f"{subject} lies before the log's start at {commit_log.minimum}"
    torn = commit_log.torn_end
    if torn is not None and physical_offset == torn.physical_offset:
        return (
            f"{subject}: the record there is damaged: {REASONS.get(torn.code, 'it cannot be read')}; the log ends there"
        )
    if physical_offset >= commit_log.end:
        return f"{subject} lies past the end of the log's valid data at {commit_log.end}"
    segment = commit_log.segment_of(physical_offset)
    if segment is None:
        return f"{subject} lies in a hole of the log: {_hole(commit_log, physical_offset)}"
    yield Wait("looking for the record around an offset")
    code = commit_log.check(physical_offset)
    if code > 0:
        return f"{subject}: an intact record of {code} bytes starts there"
    if code in (codes.BAD_BODY_CRC, codes.BAD_PROPERTY_CRC):
        return f"{subject}: the record there is damaged: {REASONS[code]}"
    return f"{subject} {_around(segment, physical_offset, code)}"


explain_absence = plainly(explain_absence_lookup)


def _hole(commit_log: CommitLog, physical_offset: int) -> str:
    for start, stop in commit_log.holes:
        if start <= physical_offset < stop:
            return f"no segment holds {start} to {stop}"
    return "no segment holds it"


def _around(segment: Segment, physical_offset: int, code: int) -> str:
    """What lies around an offset where no record starts; the code of the check says why."""
    position = physical_offset - segment.base_offset
    lowest = max(0, position - SEARCH_BACK_BYTES)
    region, base = segment.file.region, segment.base_offset
    # No record starts so near the end that its fixed part would reach beyond it, where nothing may be read.
    at = min(position, segment.valid_length - codes.MINIMUM_SIZE + 1)
    while at > lowest:
        at = find_record_backwards(region, lowest, at, base)
        if at < 0:
            break
        size = check_shape(region, at, segment.valid_length, base + at)
        if size <= 0:
            continue
        if base + at + size > physical_offset:
            return f"lies inside the record that starts at {base + at} ({size} bytes)"
        following = record_start(region, at + size, segment.valid_length, base + at + size)
        if following > position:
            return f"lies in DLedger's head in front of the record at {base + following}"
        if is_blank(segment.file, at + size, segment.boundary - segment.base_offset):
            return f"lies in the blank rest of its segment, behind the record at {base + at}"
        if following == position:
            return f"is unreadable: the record that should start there is damaged: {reason_of(code)}"
        return f"is unreadable: no record starts there, the last one before it ends at {base + at + size}"
    first = record_start(region, 0, segment.valid_length, base)
    if lowest == 0 and first > position:
        return f"lies in DLedger's head in front of the record at {base + first}"
    if is_blank(segment.file, 0, segment.boundary - segment.base_offset):
        return "lies in a segment that is blank from its start"
    return f"is unreadable: no record starts there or reaches it from up to {SEARCH_BACK_BYTES} bytes before"
