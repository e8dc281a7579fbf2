"""Where a broker of a DLedger group keeps its log, and how much of it the group has agreed on.

Such a broker (`enableDLegerCommitLog`) writes entries to `dledger-ID/data/`, segments like those of a commit log in
which a head stands in front of every record. A record's physical offset is that of its own first byte, so all that
leads to records is as in any store. A broker that became a member of a group later has its older, plain segments in
`commitlog/`, and its entries begin with the next segment. An entry starts with

DLEDGER_HEAD
offset  size  type   field      meaning
0       4     i32    magic      1 for an entry with a record, 2 and 3 for those without
4       4     i32    size       of the entry
8       8     i64    index      one more than that of the entry before
16      8     i64    term       of the election
24      8     i64    position   physical offset of this head
32      4     i32    channel    0
36      4     i32    chain_crc  0
40      4     i32    body_crc   0
44      4     i32    body_size  of the record that follows

and for each entry a unit lies in the files of `dledger-ID/index/`, at `index · 32` over all files:

INDEX_UNIT
offset  size  type   field     meaning
0       4     i32    magic     as in the head
4       8     i64    position  of the entry
12      4     i32    size      of the entry
16      8     i64    index     of the entry
24      8     i64    term      of the election

`dledger-ID/checkpoint` are Java properties; its `committedIndex` is written every few seconds.

Source: other-formats §1.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from struct import Struct
from typing import Final

from protocol.errors import NotAStore, StoreError
from storage.files.mapped_file import list_segment_files, read_piece

DLEDGER_HEAD: Final = Struct(">iiqqqiiii")
INDEX_UNIT: Final = Struct(">iqiqq")
DATA: Final = "data"
"""The directory of the entries in one of DLedger's."""
INDEX: Final = "index"
CHECKPOINT: Final = "checkpoint"
_COMMITTED: Final = re.compile(rb"^\s*committedIndex\s*[=:]\s*(-?\d{1,18})\s*$", re.MULTILINE)
_DIRECTORY: Final = re.compile("dledger-.+")
LARGEST_CHECKPOINT: Final = 4096
"""Bytes of it that are looked at."""


def is_ledger(name: str) -> bool:
    """Whether a directory of a store is named like one of DLedger's."""
    return _DIRECTORY.fullmatch(name) is not None


def written_ledgers(root: Path, names: Iterable[str]) -> list[Path]:
    """The directories of entries in a store of these names to which anything was written, in the order of their names.

    Raises NotAStore for one that cannot be looked at: it may hold anything.
    """
    directories = (root / name / DATA for name in sorted(filter(is_ledger, names)))
    return [directory for directory in directories if _is_written(root, directory)]


def _is_written(root: Path, directory: Path) -> bool:
    if not os.path.isdir(directory):
        return False
    try:
        return any(any(read_piece(path, 0, DLEDGER_HEAD.size)) for _, path in list_segment_files(directory)[0])
    except StoreError as error:
        found = f"messages in a DLedger log in {directory}, which cannot be read ({error})"
        raise NotAStore(root, expected="a commit log that can be read", found=found) from error


def elsewhere_problems(root: Path, names: Iterable[str]) -> tuple[str, ...]:
    """Sentences about directories of DLedger's whose files say that there are entries, which lie somewhere else.

    `names` are those in a store, none of whose ledgers has an entry.
    """
    return tuple(
        f"{root / name} is of a DLedger log whose entries lie elsewhere: they are not served; "
        "give all directories of the log with --commit-log"
        for name in sorted(filter(is_ledger, names))
        if _has_had_entries(root / name)
    )


def _has_had_entries(directory: Path) -> bool:
    """Whether a unit stands at the start of an index file, or entries were agreed on."""
    try:
        committed = _COMMITTED.search(read_piece(directory / CHECKPOINT, 0, LARGEST_CHECKPOINT))
        if committed is not None and int(committed[1]) >= 0:
            return True
    except StoreError:  # none: the index may have a unit nevertheless
        pass
    try:
        files = list_segment_files(directory / INDEX)[0]
        return any(any(read_piece(path, 0, INDEX_UNIT.size)) for _, path in files)
    except StoreError:
        return False


def uncommitted_from(ledger: Path) -> int | None:
    """Physical offset of the first entry that the group had not agreed on when `checkpoint` was last written.

    `ledger` is the directory of the entries. None where there is no such entry, or where no file says so.
    """
    place = uncommitted_unit(ledger.parent)
    return None if place is None else _position_of(*place)


def uncommitted_unit(directory: Path) -> tuple[Path, int, int] | None:
    """The unit of the first entry that the group had not agreed on: its index file, position there, and number.

    `directory` is one of DLedger's. None where `checkpoint` does not say up to where, or where no file would have it.
    """
    try:
        text = read_piece(directory / CHECKPOINT, 0, LARGEST_CHECKPOINT)
        files = list_segment_files(directory / INDEX)[0]
    except StoreError:
        return None
    committed = _COMMITTED.search(text)
    if committed is None:
        return None
    number = max(int(committed[1]), -1) + 1
    place = number * INDEX_UNIT.size
    return next(((path, place - base, number) for base, path in reversed(files) if base <= place), None)


def _position_of(path: Path, position: int, number: int) -> int | None:
    """Physical offset of the entry of a number by its unit in an index file; None where the unit is not its."""
    try:
        unit = read_piece(path, position, INDEX_UNIT.size)
    except StoreError:
        return None
    if len(unit) < INDEX_UNIT.size:
        return None
    magic, physical_offset, _, index, _ = INDEX_UNIT.unpack(unit)
    return physical_offset if magic > 0 and index == number and physical_offset >= 0 else None


def uncommitted_problem(ledgers: Iterable[Path], end: int) -> str | None:
    """A sentence about the messages before a log's end that the group had not agreed on; None without any."""
    for ledger in ledgers:
        start = uncommitted_from(ledger)
        if start is not None and start < end:
            return (
                f"the entries from physical offset {start} on lie behind the committedIndex in "
                f"{ledger.parent / CHECKPOINT}: they are served, and a DLedger group may drop them when it elects again"
            )
    return None
