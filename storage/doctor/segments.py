"""Which files make up the log: names, sizes, holes, repetitions, and whether each starts with a record."""

import itertools
import os
from pathlib import Path

from protocol.errors import StoreError
from storage.doctor.finding import CheckFindings, DoctorFinding, Severity
from storage.doctor.opened_store import NO_COMMAND, OpenedStore
from storage.files.mapped_file import list_segment_files
from storage.kernels.records import BAD_SIZE
from storage.log.commit_log import Segment
from storage.log.damaged_ranges import REASONS
from storage.log.segment_end import code_at
from storage.log.segment_list import segment_size

REFUSES = "a broker refuses to start on such a log; here it is read as far as it goes"


def check_segments(store: OpenedStore) -> list[DoctorFinding]:
    """Report problems with the files of the log's directories, and with the first record of each."""
    findings = CheckFindings.of("segments")
    sizes = _list_files(store, findings)
    _check_sizes(sizes, findings)
    _check_adjacency(store, findings)
    for path in store.commit_log.unreadable:
        findings.add(Severity.ERROR, path, "cannot be read", "its messages are not served", "chmod, chown or fsck")
    for segment in store.commit_log.segments[:-1]:
        _check_head(store, segment, findings)
    return findings.listed()


def _list_files(store: OpenedStore, findings: CheckFindings) -> dict[Path, int]:
    """Sizes of all segments; files that are no segment, or that repeat one, are findings."""
    used = {segment.file.path for segment in store.commit_log.segments}
    seen: dict[int, Path] = {}
    sizes = {}
    for directory in store.layout.commit_log_directories:
        try:
            files, foreign = list_segment_files(directory)
        except StoreError as error:
            findings.add(Severity.ERROR, directory, str(error), "the segments in it are not served", "chmod or fsck")
            continue
        for path in foreign:
            if not os.path.isdir(path):
                meaning = "it is ignored here; a broker fails to start on a name that is no number"
                findings.add(Severity.WARNING, path, "is no segment", meaning, f"move it out of {directory}")
        for base_offset, path in files:
            sizes[path] = os.stat(path).st_size if os.path.exists(path) else 0
            if base_offset in seen:
                kept = path if path in used else seen[base_offset]
                dropped = seen[base_offset] if kept == path else path
                meaning = f"{kept} is used; a broker loads both, and its offsets no longer agree with its files"
                remedy = "move the worse of the two away"
                findings.add(Severity.WARNING, dropped, "repeats a segment", meaning, remedy, kind="repetition")
            seen[base_offset] = path
    return sizes


def _check_sizes(sizes: dict[Path, int], findings: CheckFindings) -> None:
    """Report segments of another size than the others, gaps and overlaps."""
    whole = segment_size(sorted((int(path.name), size) for path, size in sizes.items()))
    for path, size in sizes.items():
        if not size:
            meaning = "it holds nothing; a broker refuses to start unless it is the last one"
            findings.add(Severity.WARNING, path, "is empty", meaning, f"rm {path}", position=0)
        elif size != whole:
            found = f"has {size} bytes, the other segments {whole}"
            findings.add(Severity.WARNING, path, found, REFUSES, NO_COMMAND, position=size)


def _check_adjacency(store: OpenedStore, findings: CheckFindings) -> None:
    for left, right in itertools.pairwise(store.commit_log.segments):
        end = left.base_offset + left.file.size
        if end < right.base_offset:
            found = f"no file holds physical offsets {end} to {right.base_offset}"
            meaning = f"{right.base_offset - end} bytes of messages are missing"
            directory = left.file.path.parent
            findings.add(Severity.ERROR, directory, found, meaning, NO_COMMAND, physical_offset=end, kind="hole")
        elif end > right.base_offset:
            found = f"reaches {end - right.base_offset} bytes beyond the start of {right.file.path}"
            position = right.base_offset - left.base_offset
            meaning = "its bytes from there on are ignored"
            findings.add(Severity.WARNING, left.file.path, found, meaning, NO_COMMAND, position=position)


def _check_head(store: OpenedStore, segment: Segment, findings: CheckFindings) -> None:
    """Report a segment, not the last one, that starts with neither a record nor a BLANK."""
    head = segment.file.peek(0, 8)
    code = code_at(segment.base_offset, segment.file, 0, segment.boundary) if len(head) == 8 else BAD_SIZE
    if code >= 0:
        return
    found = "starts with zeros" if not any(head) else f"starts with no intact record: {REASONS.get(code, 'unreadable')}"
    meaning = "the first message, at least, is lost; a broker may end its log before this segment"
    findings.add(
        Severity.ERROR, segment.file.path, found, meaning, NO_COMMAND, position=0, physical_offset=segment.base_offset
    )
