"""Index files of our own: keys of what no index file of the store covers, found by scanning, kept for the next start.

They lie in a directory beside the store's other state, never in the store, and are index files like any other, but for
times: a message's own time decides. What each was made of stands beside them (:mod:`storage.store._manifest`), in rows

    [name, [device, inode, size, modified ns], slots, entries, [[from, to], …], mark]

``from`` and ``to`` are physical offsets between which the keys of all records are in the file; the last range ends
behind the first byte of the last record that has any, and ``mark`` are that record's first bytes. As a broker only cuts
off a log's end and appends, a log in which that record stands unchanged is the log that the file was made of. Whatever
else may lie in the directory counts as not there.

One process writes there, others of the same server read what it has written. Each holds the directory for as long as it
uses names in it, and none uses one that another user may have put there: a volume may be open to everybody.
"""

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

from protocol.errors import StoreError
from storage.files.mapped_file import LARGEST_OFFSET, FileIdentity, MappedFile
from storage.files.own_directories import hold_kept
from storage.index.index_examination import Examined, examine, look_over, recall
from storage.index.index_glance import checking_cost
from storage.index.index_header import NAME_DIGITS, is_index_name
from storage.index.state_cache import StateCache
from storage.kernels.indexes import INDEX_HEADER
from storage.log.commit_log import CommitLog
from storage.ranges import Ranges, intersect, subtract
from storage.store._manifest import MANIFEST, held_to_read, read_manifest, state_of, write_manifest

OWN_NAME: Final = re.compile(r"0{6}[0-9]{11}(\.partial)?")
"""What is deleted when nobody needs it: names that we give, and no broker, and no user."""

MARK_BYTES: Final = 96
"""Of a record: up to its store time and beyond, whatever its hosts."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """One line of the manifest."""

    name: str
    identity: FileIdentity
    slots: int
    entries: int
    ranges: Ranges
    mark: bytes

    @property
    def last(self) -> int:
        """Physical offset of the record from which the mark was computed."""
        return self.ranges[-1][1] - 1


class KeptEntries:
    """The directory in which scanned keys are kept as index files; ``None`` without one. No state in memory."""

    def __init__(self, directory: Path | None) -> None:
        """Remember the directory; it is read when it is asked."""
        self.directory = directory

    @property
    def state(self) -> FileIdentity | None:
        """Identity of the manifest file, which changes with each new manifest; None without a manifest."""
        with held_to_read(self.directory) as path:
            return state_of(path)

    def open(
        self, commit_log: CommitLog, cache: StateCache, known: Sequence[Examined] = (), budget: int | None = None
    ) -> list[Examined]:
        """The files that there are and what they cover of a log; ``known`` ones are taken over. Waits for the disk.

        Up to about ``budget`` bytes are checked whole, None: all. Ask for the `state` first to
        know later whether there are others.
        """
        by_path = {found.file.path: found for found in known}
        opened: list[Examined] = []
        for kept, file in self._mapped(by_path):
            found = by_path.get(file.path)
            if found is None or found.file is not file:
                found = _examine(file, kept, commit_log, cache, budget)
                budget = None if budget is None or found is None else budget - checking_cost(file)
            if found is not None:
                opened.append(found)
        return opened

    @contextlib.contextmanager
    def place_of_next(self) -> Iterator[Path]:
        """A path for the next file, in the directory that is made if need be and held meanwhile. Raises OSError."""
        assert self.directory is not None
        with hold_kept(self.directory, writes=True) as held:
            last = max((int(kept.name) for kept in read_manifest(held.path, _kept)), default=0)
            yield held.path / f"{last + 1:0{NAME_DIGITS}d}"

    def add(self, path: Path, slots: int, entries: int, ranges: Ranges, commit_log: CommitLog) -> None:
        """Note a file that is complete and on the disk, at the place that is still held. Raises OSError.

        Its ranges end behind a record with keys.
        """
        mark = mark_at(commit_log, ranges[-1][1] - 1)
        kept = KeptFile(path.name, FileIdentity.of(os.stat(path)), slots, entries, ranges, mark)
        _write(path.parent, [*read_manifest(path.parent, _kept), kept])

    def tidy(self, useful: Collection[str]) -> bool:
        """Delete our files but those of these names, and leftovers of kills; whether any was noted. Raises OSError."""
        if self.directory is None or not self.directory.is_dir():
            return False
        with hold_kept(self.directory, writes=True) as held:
            manifest = read_manifest(held.path, _kept)
            stay = [kept for kept in manifest if kept.name in useful]
            if len(stay) < len(manifest):
                _write(held.path, stay)
            names = {MANIFEST, *(kept.name for kept in stay)}
            for name in [name for name in os.listdir(held.path) if name not in names and OWN_NAME.fullmatch(name)]:
                with contextlib.suppress(OSError):
                    os.unlink(held.path / name)
        return len(stay) < len(manifest)

    def _mapped(self, known: dict[Path, Examined]) -> list[tuple[KeptFile, MappedFile]]:
        """The files that the manifest notes; none where it cannot be read, and none that is not the one noted."""
        mapped: list[tuple[KeptFile, MappedFile]] = []
        with held_to_read(self.directory) as path:
            if self.directory is None or path is None:
                return mapped
            for kept in read_manifest(path, _kept):
                name = self.directory / kept.name
                before = known.get(name)
                try:
                    file = MappedFile.of(path / kept.name, None if before is None else before.file, name)
                except StoreError:
                    continue
                if file.identity == kept.identity and file.size > INDEX_HEADER:
                    mapped.append((kept, file))
        return mapped


def _write(directory: Path, files: Iterable[KeptFile]) -> None:
    write_manifest(directory, map(astuple, files))


def _examine(
    file: MappedFile, kept: KeptFile, commit_log: CommitLog, cache: StateCache, budget: int | None
) -> Examined | None:
    """Examine what a noted file covers of a log; None where that is nothing, or it was made of another one."""
    ranges = intersect(kept.ranges, [(commit_log.minimum, commit_log.end)])
    if not ranges or not kept.mark or mark_at(commit_log, kept.last) != kept.mark:
        return None
    counts = kept.slots, kept.entries
    found = recall(file, commit_log, cache, ranges)
    if found is None and budget is not None and checking_cost(file) > budget:
        return look_over(file, commit_log, [kept.slots], counts, ranges)
    return found or examine(file, commit_log, [kept.slots], counts, cache, ranges)


def mark_at(commit_log: CommitLog, physical_offset: int) -> bytes:
    """The first bytes of the record at a physical offset, none where there is none."""
    record = commit_log.damaged_record_at(physical_offset)
    return b"" if record is None else bytes(record[:MARK_BYTES])


def _kept(name: Any, identity: Any, slots: Any, entries: Any, ranges: Any, mark: Any) -> KeptFile:
    if not (isinstance(name, str) and is_index_name(name) and isinstance(mark, bytes)):
        raise ValueError(name)
    pairs = tuple((int(start), int(stop)) for start, stop in ranges)
    bounds = [bound for pair in pairs for bound in pair]
    if bounds != sorted(bounds) or any(start >= stop for start, stop in pairs):
        raise ValueError(pairs)
    if not bounds or bounds[0] < 0 or bounds[-1] > LARGEST_OFFSET or int(slots) < 1:
        raise ValueError(pairs)
    return KeptFile(name, FileIdentity(*map(int, identity)), int(slots), int(entries), subtract(pairs, []), mark)
