"""The check of the log's records: where valid data end, what lies behind that place, and what is damaged before it.

Quick: the last records one by one, and the end. Deep: what a reading of every record found (:func:`note_damage`).
"""

import itertools

from storage.doctor.finding import LOST, NO_COMMAND, Finding, Findings, FoundAt, Kind, Severity
from storage.doctor.next_start import NextStart
from storage.doctor.opened_store import OpenedStore
from storage.doctor.words import Words, damaged_record
from storage.kernels import records as codes
from storage.layout.dledger import CHECKPOINT, uncommitted_from
from storage.log.commit_log import Segment
from storage.log.damaged_ranges import DamagedRange, find_damaged_ranges
from storage.log.segment_end import TornEnd
from storage.ranges import Range

WALKED_BYTES = 2 * 1024 * 1024 * 1024
"""Bytes at the end of the log whose records are read one by one; the rest is read by `--deep`."""

MOST_RANGES = 1000

CUT_SHORT = "a message was cut short, mostly by a crash, or old ones are there; a broker that starts here cuts that off"
MISPLACED = "the file has the name of another one, or is of another store, since its records are those of"
MISPLACED_REMEDY = "no command fixes this: give the files their names again, or copy this one from a slave or a backup"


def check_log_end(store: OpenedStore, start: NextStart | None) -> tuple[list[Finding], list[Range]]:
    """Findings, and the ranges of physical offsets in which messages are damaged; `start` is the next one, foretold."""
    findings = Findings("log-end")
    log = store.commit_log
    damaged: list[Range] = []
    budget = WALKED_BYTES
    for segment in reversed(log.segments):
        if budget <= 0:
            break
        budget -= segment.valid_length
        found = find_damaged_ranges(segment.file, segment.base_offset, 0, segment.valid_length, segment.boundary)
        for damage in itertools.islice(found, MOST_RANGES):
            damaged.append((damage.start, damage.stop))
            words = damaged_record(damage.code)
            position = damage.start - segment.base_offset
            findings.add(
                Kind.RECORD,
                Severity.ERROR,
                FoundAt(segment.file.path, position=position, physical_offset=damage.start),
                _passed_over(words.found, damage.length, _look(store, damage)),
                _meaning(start, damage),
                NO_COMMAND,
                expected=words.expected,
            )
    _check_torn_end(store, findings)
    _check_committed(store, findings)
    return findings.listed(), sorted(damaged)


def note_damage(findings: Findings, kind: Kind, at: FoundAt, words: Words, length: int) -> None:
    """Add a place where the log breaks off to the findings of a reading of every record."""
    findings.note(kind, at, words.expected, _passed_over(words.found, length))


def _passed_over(found: str, length: int, look: str = "") -> str:
    return f"{found} ({length} bytes passed over{look})"


def _meaning(start: NextStart | None, damage: DamagedRange) -> str:
    if start is None:
        return f"{LOST} here; whether a broker that starts cuts its log there is not foretold for such a store"
    is_cut = any(damage.start >= each.end for each in start.losing)
    return f"{LOST} here, but a broker that starts cuts its log at or before it" if is_cut else LOST


def _look(store: OpenedStore, damage: DamagedRange) -> str:
    """What shows the first record, only where its parts can still be distinguished."""
    if damage.code not in (codes.BAD_BODY_CRC, codes.BAD_PROPERTY_CRC):
        return ""
    return f"; what is left of the first: {store.command('view --damaged')} {damage.start}"


def _check_committed(store: OpenedStore, findings: Findings) -> None:
    """Report entries that a DLedger group had not agreed on; a running broker writes down a little late what it has."""
    for ledger in () if store.state.is_live else store.layout.ledgers:
        start = uncommitted_from(ledger)
        if start is not None and start < store.commit_log.end:
            findings.add(
                Kind.UNCOMMITTED,
                Severity.INFO,
                FoundAt(ledger.parent / CHECKPOINT, physical_offset=start),
                f"entries from physical offset {start} on lie behind its committedIndex",
                "they are served; a DLedger group may drop them when it elects again",
                "no fix is needed; where it matters, look at the store of another member",
            )


def _check_torn_end(store: OpenedStore, findings: Findings) -> None:
    """Report bytes that are behind the end of the log."""
    log = store.commit_log
    if log.torn_end is None:
        return
    torn, last = log.torn_end, log.segments[-1]
    position = torn.physical_offset - last.base_offset
    findings.add(
        Kind.TORN_END,
        Severity.INFO if store.state.is_live else Severity.ERROR,
        FoundAt(last.file.path, position=position, physical_offset=torn.physical_offset),
        torn.sentence(),
        *(
            _misplaced(last, torn)
            or (CUT_SHORT, "nothing to do: here it is not served, and a broker that starts writes over it")
        ),
    )


def _misplaced(segment: Segment, torn: TornEnd) -> tuple[str, str] | None:
    """What it means, and what to do, where a segment begins with a record of the beginning of another one."""
    if torn.code != codes.BAD_OFFSET or torn.physical_offset != segment.base_offset:
        return None
    stated = int.from_bytes(segment.file.view[codes.PHYSICAL_OFFSET : codes.PHYSICAL_OFFSET + 8], "big", signed=True)
    if stated < 0 or stated % (segment.boundary - segment.base_offset):
        return None
    return (
        f"{MISPLACED} {stated:020d}: do not start a broker here, which would write over its messages",
        MISPLACED_REMEDY,
    )
