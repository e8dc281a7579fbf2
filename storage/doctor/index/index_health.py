"""Each index file by itself: is it sound, how full, how long are its chains, does it point beyond the log?"""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from protocol.errors import StoreError
from storage.doctor.finding import ADVICE, INDEX, Finding, Findings, FoundAt, Kind, Severity
from storage.doctor.opened_store import OpenedStore
from storage.doctor.rescue_line import set_aside_line
from storage.doctor.words import HEADER_PLACES, INDEX_DIRECTORY, header_field
from storage.files.mapped_file import MappedFile
from storage.index.index_examination import KEYS_LEFT_OUT
from storage.index.index_file import (
    DEFAULT_SLOTS,
    ENTRY,
    ENTRY_DTYPE,
    HEADER,
    SLOT,
    IndexFile,
    end_of_entries,
    last_data_position,
)
from storage.index.index_header import is_index_name
from storage.kernels.indexes import check_structure

ENTRIES_AT_ONCE = 4_000_000
MOST_MEASURED = 8
"""Files whose entries are all counted, the newest ones; soundness is checked of every file."""

LONG_CHAIN = 100_000
"""Entries in one slot above which look-ups in it take milliseconds."""

COMPLETE = "compact index --from-log"


@dataclass(frozen=True, slots=True)
class IndexFileHealth:
    """Numbers of one sound file; `beyond_log` and `longest_chain` are −1 where they were not counted."""

    path: str
    slots: int
    entries: int
    capacity: int
    begin_timestamp: int
    end_timestamp: int
    first_physical_offset: int
    last_physical_offset: int
    beyond_log: int
    expired: int
    longest_chain: int
    used_slots: int


def measure_index_files(store: OpenedStore) -> list[IndexFileHealth]:
    """Numbers of all sound files, in name order."""
    newest = {file.index.name for file in store.index.files[-MOST_MEASURED:]}
    return [_measure(store, file.index, counted=file.index.name in newest) for file in store.index.files]


def check_index_files(store: OpenedStore, measured: list[IndexFileHealth]) -> list[Finding]:
    """Report what is wrong with each index file by itself."""
    findings = Findings("index-files")
    sound = {file.index.file.path for file in store.index.files}
    for path in _paths(store.layout.index):
        if path not in sound:
            _report_useless(store, path, findings)
    for file, health in zip(store.index.files, measured, strict=True):
        _check_header(store, file.index, health, findings)
        _check_health(store, health, findings)
    return findings.listed()


def _paths(directory: Path) -> list[Path]:
    try:
        return sorted(directory / name for name in os.listdir(directory))
    except OSError:
        return []


def _report_useless(store: OpenedStore, path: Path, findings: Findings) -> None:
    """Name a file that covers nothing: no index file, an empty one, or one that does not hold together."""
    if not is_index_name(path.name):
        meaning = "it is ignored here; a broker tries to read it as an index file"
        findings.add(Kind.FILE, Severity.WARNING, path, "is no index file", meaning, set_aside_line(store, path))
        return
    if os.path.isdir(path):
        meaning = "it is ignored here; a broker that finds it does not load the index"
        expected, found = INDEX_DIRECTORY
        remedy = set_aside_line(store, path)
        findings.add(Kind.FILE, Severity.WARNING, path, found, meaning, remedy, expected=expected)
        return
    lost = "keys in its range are looked for in the log instead, which takes memory; a broker does not find them"
    problem = next((text for text in store.index.problems if str(path) in text), "")
    if not problem:  # a broker has just made it
        at = FoundAt(path, position=HEADER.size)
        findings.add(Kind.FILE, Severity.INFO, at, "has no entries yet", "it covers nothing", "no fix is needed")
        return
    if KEYS_LEFT_OUT in problem:
        meaning = "its range is scanned from the log at each start; a broker does not find what was left out"
        findings.add(Kind.MISSING_ENTRY, Severity.WARNING, path, KEYS_LEFT_OUT, meaning, store.command(COMPLETE))
        return
    position, what = _first_fault(store, path)
    found = f"is not sound: {what or problem.partition(': ')[2] or problem}"
    findings.add(Kind.FILE, Severity.ERROR, FoundAt(path, position=position), found, lost, store.command(INDEX))


def _first_fault(store: OpenedStore, path: Path) -> tuple[int, str]:
    """Position and description of the first slot or entry that does not fit the entries before it, if one is found."""
    try:
        file = MappedFile.open(path)
    except StoreError:  # the problem says why
        return 0, ""
    known = [each.index.shape.slots for each in store.index.files] or [DEFAULT_SLOTS]
    slots, last = known[-1], last_data_position(file)
    entries = (last - HEADER.size - SLOT.size * slots) // ENTRY.size
    room = (file.size - HEADER.size - SLOT.size * slots) // ENTRY.size - 1
    if not 1 <= entries <= room:
        return min(file.size, HEADER.size), ""
    bad = check_structure(file.region, slots, entries)
    if not bad:
        return 0, ""
    if bad > entries:
        slot = bad - entries - 1
        return HEADER.size + SLOT.size * slot, f"slot {slot} does not hold the newest of its entries"
    position = HEADER.size + SLOT.size * slots + ENTRY.size * bad
    return position, f"entry {bad} of {entries}: its hash is negative, or it does not point to the one before it"


def _check_header(store: OpenedStore, index: IndexFile, health: IndexFileHealth, findings: Findings) -> None:
    """A header says what the entries do; brokers trust it."""
    header = index.header
    is_last = index is store.index.files[-1].index
    if store.state.is_live and is_last:
        return
    stated = {
        "index_count": (header.index_count, health.entries + 1),
        "begin_physical_offset": (header.begin_physical_offset, health.first_physical_offset),
        "end_physical_offset": (header.end_physical_offset, health.last_physical_offset),
    }
    if index.shape.compacted == index.shape.entries and header.end_physical_offset > health.last_physical_offset:
        # A compaction leaves it where a broker is to go on, whatever entries it drops.
        del stated["end_physical_offset"]
    if health.used_slots >= 0:
        stated["slot_count"] = header.slot_count, health.used_slots
    severity, meaning, remedy = ADVICE["index-files"][Kind.HEADER]
    for name, (has, should) in stated.items():
        if has != should:
            at = FoundAt(health.path, header_field(name), HEADER_PLACES[name])
            findings.add(Kind.HEADER, severity, at, str(has), meaning, store.command(remedy), expected=str(should))
    if header.begin_timestamp > header.end_timestamp:
        found = f"its header begins at {header.begin_timestamp} ms and ends before, at {header.end_timestamp} ms"
        meaning = "the clock was set back while it was filled: a broker misses keys in searches by time"
        at = FoundAt(health.path, position=0)
        findings.add(Kind.CLOCK, Severity.WARNING, at, found, meaning, "no fix is needed to serve the store")


def _check_health(store: OpenedStore, health: IndexFileHealth, findings: Findings) -> None:
    if health.beyond_log > 0:
        found = f"{health.beyond_log} of {health.entries} entries point beyond the log's end at {store.commit_log.end}"
        meaning = "the log was cut under the index: a broker indexes nothing that is written there anew"
        at = FoundAt(health.path, physical_offset=health.last_physical_offset)
        findings.add(Kind.ENTRY, Severity.WARNING, at, found, meaning, store.command(INDEX))
    if health.longest_chain > LONG_CHAIN:
        found = f"one slot holds {health.longest_chain} of {health.entries} entries"
        meaning = "a look-up of a key in that slot reads all of them; if they are not in memory that takes long"
        findings.add(Kind.CHAIN, Severity.INFO, health.path, found, meaning, store.command("compact index"))


def _measure(store: OpenedStore, index: IndexFile, *, counted: bool) -> IndexFileHealth:
    shape, header = index.shape, index.header
    beyond = expired = longest = used = -1
    if counted:
        beyond, expired, longest, used = _count(store, index)
    return IndexFileHealth(
        path=str(index.file.path),
        slots=shape.slots,
        entries=shape.entries,
        capacity=index.capacity,
        begin_timestamp=header.begin_timestamp,
        end_timestamp=header.end_timestamp,
        first_physical_offset=shape.minimum if shape.compacted else index.entry(1).physical_offset,
        last_physical_offset=shape.maximum if shape.compacted else index.entry(shape.entries).physical_offset,
        beyond_log=beyond,
        expired=expired,
        longest_chain=longest,
        used_slots=used,
    )


def _count(store: OpenedStore, index: IndexFile) -> tuple[int, int, int, int]:
    """Entries beyond the log, entries before it, the longest chain, and slots in use."""
    shape = index.shape
    first = end_of_entries(shape) - ENTRY.size * shape.entries
    beyond = expired = 0
    chains = np.zeros(shape.slots, dtype=np.int32)
    for start in range(0, shape.entries, ENTRIES_AT_ONCE):
        count = min(ENTRIES_AT_ONCE, shape.entries - start)
        entries = np.frombuffer(index.file.view, ENTRY_DTYPE, count, first + ENTRY.size * start)
        offsets = entries["physical_offset"].astype(np.int64)
        beyond += int((offsets >= store.commit_log.end).sum())
        expired += int((offsets < store.commit_log.minimum).sum())
        chains += np.bincount(entries["key_hash"] % shape.slots, minlength=shape.slots).astype(np.int32)
    return beyond, expired, int(chains.max()), int(np.count_nonzero(chains))
