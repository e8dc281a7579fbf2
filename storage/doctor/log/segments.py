"""Which files make up the log: names, sizes, holes, repetitions, and whether each starts with a record."""

import itertools
import os
from pathlib import Path

from protocol.errors import StoreError
from storage.doctor._opened_store import OpenedStore
from storage.doctor._rescue_line import rescue_line, set_aside_line
from storage.doctor.finding import ADVICE, NO_COMMAND, Finding, Findings, FoundAt, Kind, Severity
from storage.files.mapped_file import list_segment_files
from storage.kernels.records import BAD_SIZE
from storage.log.commit_log import Segment
from storage.log.damaged_ranges import REASONS
from storage.log.segment_end import code_at
from storage.log.segment_list import segment_size

REFUSES = "a broker refuses to start on such a log; here it is read as far as it goes"


def check_segments(store: OpenedStore) -> list[Finding]:
    """Report problems with the files of the log's directories, and with the first record of each."""
    findings = Findings("segments")
    sizes = _list_files(store, findings)
    _check_sizes(sizes, findings, NO_COMMAND if store.state.is_live else rescue_line(store))
    _check_adjacency(store, findings)
    for path in store.commit_log.unreadable:
        severity, meaning, remedy = ADVICE["log-end"][Kind.FILE]
        findings.add(Kind.FILE, severity, path, "cannot be read", meaning, remedy)
    for segment in store.commit_log.segments[:-1]:
        _check_head(store, segment, findings)
    return findings.listed()


def _list_files(store: OpenedStore, findings: Findings) -> dict[Path, int]:
    """Sizes of all segments; files that are no segment, or that repeat one, are findings."""
    used = {segment.file.path for segment in store.commit_log.segments}
    seen: dict[int, Path] = {}
    sizes = {}
    for directory in store.layout.commit_log_directories:
        try:
            files, foreign = list_segment_files(directory)
        except StoreError as error:
            meaning = "the segments in it are not served"
            findings.add(Kind.FILE, Severity.ERROR, directory, str(error), meaning, NO_COMMAND)
            continue
        for path in foreign:
            if not os.path.isdir(path):
                meaning = "it is ignored here; a broker fails to start on a name that is no number"
                remedy = set_aside_line(store, path)
                findings.add(Kind.FILE, Severity.WARNING, path, "is no segment", meaning, remedy)
        for base_offset, path in files:
            sizes[path] = os.stat(path).st_size if os.path.exists(path) else 0
            if base_offset in seen:
                kept = path if path in used else seen[base_offset]
                dropped = seen[base_offset] if kept == path else path
                found = f"repeats a segment, of which {kept} is used"
                meaning = "a broker loads both, and its offsets no longer agree with its files"
                remedy = set_aside_line(store, dropped)
                findings.add(Kind.FILE, Severity.WARNING, dropped, found, meaning, remedy)
            seen[base_offset] = path
    return sizes


def _check_sizes(sizes: dict[Path, int], findings: Findings, remedy: str) -> None:
    """Report segments of another size than the others, gaps and overlaps."""
    whole = segment_size(sorted((int(path.name), size) for path, size in sizes.items()))
    last = max(sizes, key=lambda path: path.name, default=None)
    for path, size in sizes.items():
        if not size and path == last:
            continue  # a broker has just made it, or deletes it when it starts
        if not size:
            meaning = "it holds nothing; a broker refuses to start"
            findings.add(Kind.FILE, Severity.WARNING, FoundAt(path, position=0), "is empty", meaning, remedy)
        elif size != whole:
            found = f"has {size} bytes, the other segments {whole}"
            findings.add(Kind.FILE, Severity.WARNING, FoundAt(path, position=size), found, REFUSES, remedy)


def _check_adjacency(store: OpenedStore, findings: Findings) -> None:
    for left, right in itertools.pairwise(store.commit_log.segments):
        end = left.base_offset + left.file.size
        if end < right.base_offset:
            found = f"no file holds physical offsets {end} to {right.base_offset} ({right.base_offset - end} bytes)"
            at = FoundAt(left.file.path.parent, physical_offset=end)
            findings.add(Kind.HOLE, Severity.ERROR, at, found, "the messages there are missing", NO_COMMAND)
        elif end > right.base_offset:
            found = f"reaches {end - right.base_offset} bytes beyond the start of {right.file.path}"
            position = right.base_offset - left.base_offset
            meaning = "its bytes from there on are ignored"
            at = FoundAt(left.file.path, position=position)
            findings.add(Kind.FILE, Severity.WARNING, at, found, meaning, NO_COMMAND)


def _check_head(store: OpenedStore, segment: Segment, findings: Findings) -> None:
    """Report a segment, not the last one, that starts with neither a record nor a BLANK."""
    head = segment.file.peek(0, 8)
    code = code_at(segment.base_offset, segment.file, 0, segment.boundary) if len(head) == 8 else BAD_SIZE
    if code >= 0:
        return
    found = "starts with zeros" if not any(head) else f"starts with no intact record: {REASONS.get(code, 'unreadable')}"
    meaning = "the first message, at least, is lost; a broker may end its log before this segment"
    at = FoundAt(segment.file.path, position=0, physical_offset=segment.base_offset)
    findings.add(Kind.RECORD, Severity.ERROR, at, found, meaning, NO_COMMAND)
