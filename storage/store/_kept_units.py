"""Runs of derived queue units that are kept for the next start, a file each, beside our own index files.

What each was made of stands beside them (:mod:`storage.store._manifest`), in rows in the order of the log

    [name, [device, inode, size, modified ns], [units, rows, queues, bytes of names], start, stop, last, mark, [], gaps]

The units are those of the log in [start, stop); ``last`` is the physical offset of the last record that has one, and
``mark`` are the first bytes of that record. As a broker only cuts off a log's end and appends, a log in which that
record stands unchanged is, up to that record's end, the log that the file was made of. Of damage and of segments that
are missing that is not true, since they may be restored: ``gaps`` are what could not be read in [start, stop), each
[start, stop, identity of the damaged segment or None]. A row without a name has, instead of the empty list, the queues
of which no file has a unit any more: [topic, queue id, queue offset of the next message] each; its ``mark`` says
what was derived (light queues or all, and with which delay levels), since units made otherwise do not serve.

One process writes there, others of the same server read what it has written.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from protocol.errors import StoreError
from storage.arrays import np
from storage.files.direct_writer import fsync_directory
from storage.files.mapped_file import LARGEST_OFFSET, FileIdentity, MappedFile
from storage.files.own_directories import hold_kept, new_file
from storage.log.commit_log import CommitLog
from storage.queue.derived_queues import DerivedQueues, UnfoundStretch, is_in_memory
from storage.queue.unit_runs import RunCounts, UnitRun
from storage.queue.unit_struct import UNIT
from storage.store._kept_entries import mark_at
from storage.store._manifest import MANIFEST, held_to_read, read_manifest, state_of, write_manifest

DIRECTORY: Final = "queues"
OWN_NAME: Final = re.compile(r"[0-9]{20}\.units(\.partial)?")
"""What is deleted when nobody needs it: names that we give, and no user."""

Ended = dict[tuple[bytes, int], int]


class KeptRun(NamedTuple):
    """One row of the manifest."""

    name: str
    identity: FileIdentity
    counts: RunCounts
    start: int
    stop: int
    last: int
    mark: bytes
    ended: Ended
    gaps: tuple[UnfoundStretch, ...]


class KeptUnits:
    """A directory of runs, None: there is none."""

    def __init__(self, directory: Path | None) -> None:
        """`directory` is that of our own index files; nothing of it is read yet."""
        self.directory = None if directory is None else directory / DIRECTORY
        self._seen: FileIdentity | None = None

    def load(self, derived: DerivedQueues, log: CommitLog) -> bool:
        """Let `derived` take over what is kept of a log, if it is new; whether it did. Waits for the disk."""
        with held_to_read(self.directory) as path:
            state = state_of(path)
            if path is None or state is None or state == self._seen:
                return False
            self._seen = state
            return self._load(path, derived, log)

    def _load(self, path: Path, derived: DerivedQueues, log: CommitLog) -> bool:
        """Let `derived` take over what lies in the directory at a path."""
        rows = read_manifest(path, _kept)
        about = next((row for row in rows if not row.name), None)
        if about is None or about.mark != _kind_of(derived):
            return False
        runs: list[UnitRun] = []
        proven = 0
        for row in (row for row in rows if row.name):
            run = self._opened(path, row)
            if run is None or (runs and runs[-1].stop != row.start) or not all(gap.is_in(log) for gap in row.gaps):
                break
            runs.append(run)
            # Where the last record is expired, that of a later file shows whether this is the log.
            if row.last >= log.minimum:
                if log.damaged_record_at(row.last) is None or mark_at(log, row.last) != row.mark:
                    break
                proven = len(runs)
        runs = runs[:proven]
        if not runs:
            return False
        last = rows[[row.stop for row in rows].index(runs[-1].stop)]
        record = log.damaged_record_at(last.last)
        end = last.last if record is None else last.last + len(record)
        runs[-1] = UnitRun(runs[-1].file, runs[-1].counts, runs[-1].start, end)
        gaps = dict.fromkeys(gap for row in rows if row.name and row.start < end for gap in row.gaps)
        return derived.take_kept(runs, about.ended, tuple(gaps), log)

    def keep(self, run: UnitRun) -> UnitRun:
        """Write a run to a file, which takes its place. Raises OSError."""
        assert self.directory is not None
        with hold_kept(self.directory, writes=True) as held, held.named_errors():
            path = held.path / f"{run.start:020d}.units"
            beside = path.with_suffix(".units.partial")
            try:
                beside.unlink(missing_ok=True)
                with new_file(beside) as file:
                    file.write(run.file.view)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(beside, path)
            except OSError:
                beside.unlink(missing_ok=True)
                raise
            fsync_directory(held.path)
            return UnitRun(MappedFile.open(path, self.directory / path.name), run.counts, run.start, run.stop)

    def note(self, derived: DerivedQueues, log: CommitLog) -> None:
        """Note the files among the runs, and where queues without any ended; delete all others. Raises OSError."""
        if self.directory is None:
            return
        state = derived.state
        ended = [[*n, e] for n, e in state.ended.items()]
        rows: list[tuple[Any, ...]] = [("", (0, 0, 0, 0), (0, 0, 0, 0), 0, 0, 0, _kind_of(derived), ended, [])]
        names = {MANIFEST}
        for run in state.runs:
            if is_in_memory(run):
                break
            names.add(run.file.path.name)
            last = _last_of(run)
            fields = run.file.path.name, tuple(run.file.identity), tuple(run.counts), run.start, run.stop, last
            gaps = [gap for gap in state.gaps if gap.start < run.stop and gap.stop > run.start]
            rows.append((*fields, mark_at(log, last), [], gaps))
        with hold_kept(self.directory, writes=True) as held:
            write_manifest(held.path, rows)
            self._seen = state_of(held.path)
            for name in [name for name in os.listdir(held.path) if name not in names and OWN_NAME.fullmatch(name)]:
                with contextlib.suppress(OSError):
                    os.unlink(held.path / name)

    def _opened(self, path: Path, row: KeptRun) -> UnitRun | None:
        """The file of a row, in the directory at a path; None where it is not the one that was noted."""
        assert self.directory is not None
        try:
            file = MappedFile.open(path / row.name, self.directory / row.name)
        except StoreError:
            return None
        run = UnitRun(file, row.counts, row.start, row.stop)
        return run if file.identity == row.identity and run.is_sound() else None


def _kind_of(derived: DerivedQueues) -> bytes:
    """What decides which units are made of a log."""
    return repr((derived.only_light, derived.delays)).encode()


def _last_of(run: UnitRun) -> int:
    """Physical offset of the last record that has a unit in a run."""
    offsets = np.ndarray(run.counts.units, ">i8", run.file.view, strides=(UNIT.size,))
    return int(offsets.max())


def _kept(name: Any, identity: Any, counts: Any, *rest: Any) -> KeptRun:
    start, stop, last, mark, ended, gaps = rest
    if not (isinstance(name, str) and (not name or OWN_NAME.fullmatch(name)) and isinstance(mark, bytes)):
        raise ValueError(name)
    if not 0 <= int(start) <= int(last) <= int(stop) <= LARGEST_OFFSET:
        raise ValueError(start)
    ends = {(bytes(topic), int(queue_id)): int(end) for topic, queue_id, end in ended}
    places = FileIdentity(*map(int, identity)), RunCounts(*map(int, counts)), int(start), int(stop), int(last)
    lacks = tuple(
        UnfoundStretch(int(a), int(b), None if file is None else FileIdentity(*map(int, file))) for a, b, file in gaps
    )
    return KeptRun(name, *places, mark, ends, lacks)
