"""The check of the log's records: where valid data end, what lies behind that place, and what is damaged before it.

Quick: the last records one by one, and the end. Deep: what a reading of every record found (:func:`note_damage`).
"""

import itertools
from pathlib import Path

from protocol.errors import StoreError
from storage.doctor._next_start import NO_START, RIGHT_NAMES, NextStart
from storage.doctor._opened_store import OpenedStore
from storage.doctor.finding import LOST, NO_COMMAND, Finding, Findings, FoundAt, Kind, Severity
from storage.doctor.words import COMPARE, OF_ANOTHER_HISTORY, Words, damaged_record
from storage.files.mapped_file import MappedFile
from storage.kernels import records as codes
from storage.layout.dledger import CHECKPOINT, uncommitted_from
from storage.layout.epochs import read_epochs
from storage.log.commit_log import LEFT_OVER
from storage.log.damaged_ranges import DamagedRange, find_damaged_ranges, reason_of
from storage.log.segment_end import code_at
from storage.log.segment_list import list_segments
from storage.queue.batch_consume_queue import UNIT_DTYPE as BATCH_DTYPE
from storage.ranges import Range
from storage.recovery.queue_ends import recovered_queues
from storage.store.stale_tail import older_than_epoch_from

WALKED_BYTES = 2 * 1024 * 1024 * 1024
"""Bytes at the end of the log whose records are read one by one; the rest is read by `--deep`."""

MOST_RANGES = 1000

CUT_SHORT = "a message was cut short, mostly by a crash, or old ones are there; a broker that starts here cuts that off"
WRITTEN_OVER = "nothing to do: here it is not served, and a broker that starts writes over it"
MISPLACED = "the file has the name of another one, or is of another store, since its records are those of"
UNKNOWN = "messages that were in this file are lost, and queues may still point to them"

WINDOW = 64 * 1024
"""Bytes at the beginning of a file behind the log's end that are looked at, holes passed over."""


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
    _check_files_behind(store, findings)
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
    return f"; what is left of the first: {store.command('find')} {damage.start} --as physical-offset --full"


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
    if log.stale_from is not None:
        last = log.segments[-1]
        position = log.stale_from - last.base_offset
        at = FoundAt(last.file.path, position=position, physical_offset=log.stale_from)
        meaning = "the running broker writes over them; one that is started here anew would take them for messages"
        findings.add(Kind.TORN_END, Severity.INFO, at, LEFT_OVER, meaning, "nothing while a broker runs")
    elif log.segments and not store.state.is_live:
        epochs = read_epochs(store.layout.root)
        old = older_than_epoch_from(log, epochs)
        if old is not None:
            last = log.segments[-1]
            at = FoundAt(last.file.path, position=old - last.base_offset, physical_offset=old)
            found = f"the records from here on are older than epoch {epochs[-1].number}, which began before them"
            found = f"{found}, at {epochs[-1].start}"
            findings.add(Kind.TORN_END, Severity.WARNING, at, found, OF_ANOTHER_HISTORY, COMPARE)
    if log.torn_end is None:
        return
    torn, last = log.torn_end, log.segments[-1]
    position = torn.physical_offset - last.base_offset
    findings.add(
        Kind.TORN_END,
        Severity.INFO if store.state.is_live else Severity.ERROR,
        FoundAt(last.file.path, position=position, physical_offset=torn.physical_offset),
        torn.sentence(),
        *(_misplaced(last.file, last.base_offset, last.boundary, position, torn.code) or (CUT_SHORT, WRITTEN_OVER)),
    )


def _check_files_behind(store: OpenedStore, findings: Findings) -> None:
    """Report files behind the log's last segment that hold something, and no record of their place to begin with."""
    log = store.commit_log
    listed = list_segments(store.layout.commit_log_directories, []) if log.segments else []
    for base, path in listed:
        if base > log.segments[-1].base_offset and path not in log.unreadable:
            try:
                file = MappedFile.of(path, None)
            except StoreError:  # removed meanwhile
                continue
            _check_file_behind(store, findings, base, file, listed[-1][0])


def _check_file_behind(store: OpenedStore, findings: Findings, base: int, file: MappedFile, newest: int) -> None:
    """Report one file behind the log's end; one of zeros, to which nothing leads, is as a broker makes them ahead.

    The last one begins at `newest`.
    """
    last = store.commit_log.segments[-1]
    length = last.boundary - last.base_offset
    if not any(file.peek(file.first_data(0), WINDOW)):
        if not store.state.is_live and (witness := _witness_of(store, base, newest + length)):
            found = f"the log ends before this file, in which there is nothing, and {witness} in it"
            at = FoundAt(file.path, position=0, physical_offset=base)
            findings.add(Kind.TORN_END, Severity.ERROR, at, found, f"{UNKNOWN}; {NO_START} their places", NO_COMMAND)
        return
    boundary = base + max(length, file.size)
    code = codes.BAD_SIZE if file.size < codes.PHYSICAL_OFFSET + 8 else code_at(base, file, 0, boundary)
    if code >= 0:
        return
    findings.add(
        Kind.TORN_END,
        Severity.INFO if store.state.is_live else Severity.ERROR,
        FoundAt(file.path, position=0, physical_offset=base),
        f"the log ends before this file, which does not begin with an intact record: {reason_of(code)}",
        *(
            _misplaced(file, base, base + length, 0, code)
            or ((CUT_SHORT, WRITTEN_OVER) if _is_cut_short(store, base, file) else None)
            or (f"{UNKNOWN}; {NO_START} what is left of it", NO_COMMAND)
        ),
    )


def _witness_of(store: OpenedStore, base: int, stop: int) -> str:
    """What says that there were messages in a file behind the log's end: a clause; "" where nothing does.

    A checkpoint that leads beyond `stop`, where the last file ends, is that of another log.
    """
    if _has_units(store.layout.root, base, where_unreadable=False):
        return "queues lead to messages"
    flushed = 0 if store.checkpoint is None else store.checkpoint.logics_physical_offset
    return f"the checkpoint says that queues led up to {flushed}," if base < flushed <= stop else ""


def _is_cut_short(store: OpenedStore, base: int, file: MappedFile) -> bool:
    """Whether a file holds a part of its first message and no more, and no queue has known messages there."""
    size = int.from_bytes(file.peek(0, codes.MAGIC), "big")
    return 0 < size <= file.size and not any(file.peek(size, WINDOW)) and not _has_units(store.layout.root, base)


def _has_units(root: Path, physical_offset: int, *, where_unreadable: bool = True) -> bool:
    """Whether queues point to a physical offset or behind it; so it is taken where they cannot be read."""
    try:  # of a queue of batches a broker knows where its last record begins
        return any(
            queue.physical_end + (queue.unit == BATCH_DTYPE) > physical_offset for queue in recovered_queues(root)
        )
    except (StoreError, FileNotFoundError):
        return where_unreadable


def _misplaced(file: MappedFile, base: int, boundary: int, position: int, code: int) -> tuple[str, str] | None:
    """Describe meaning and remedy if a segment begins with the first record of another one."""
    if code != codes.BAD_OFFSET or position:
        return None
    stated = int.from_bytes(file.peek(codes.PHYSICAL_OFFSET, 8), "big", signed=True)
    length = boundary - base
    if stated < 0 or stated % length or code_at(stated, file, 0, stated + length) <= 0:
        return None
    return f"{MISPLACED} {stated:020d}: {NO_START} its messages", RIGHT_NAMES
