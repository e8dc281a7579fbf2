"""Whether a directory is a store that can be served, and where its pieces lie.

A store must have a log; every other piece may be missing, and its answers are then found without it or not at all.
Directories without a log are refused, and stores whose log or queues have a form that is not read here: RocksDB tables
and DLedger entries. The error says what was found and what is expected. A broker that is converted to DLedger leaves
its older, plain segments in `commitlog/` and continues in `dledger-*/data/` with the next segment, so that
`commitlog/` looks like a whole store and is only a part of it. A DLedger entry starts with

DLEDGER_HEAD
offset  size  type   field         meaning
0       4     i32    magic         1
4       4     i32    size          of the entry
8       8     i64    index
16      8     i64    term
24      8     i64    position
32      4     i32    channel
36      4     i32    chain_crc
40      4     i32    body_crc
44      4     i32    body_size
48      4     i32    record_size   of the message that the entry wraps
52      4     u32    record_magic  V1_MAGIC or V2_MAGIC

Source: store-format §1.
"""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final

from protocol.errors import NotAStore, StoreError
from protocol.message_layout import V1_MAGIC, V2_MAGIC
from storage.files.mapped_file import list_segment_files, read_head, read_piece

COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"
CONSUME_QUEUE_EXT: Final = "consumequeue_ext"
BATCH_CONSUME_QUEUE: Final = "batchconsumequeue"
INDEX: Final = "index"
CONFIG: Final = "config"
CHECKPOINT: Final = "checkpoint"
ABORT: Final = "abort"
ROCKSDB_CONSUME_QUEUE: Final = "consumequeue_rocksdb"
EXPECTED: Final = f"a RocketMQ store: a directory with {COMMIT_LOG}/ and in it segments named by 20 digits"

DLEDGER_HEAD: Final = Struct(">iiqqqiiiiiI")
_DLEDGER_MAGIC: Final = 1
_DLEDGER_DIRECTORY: Final = re.compile("dledger-.+")
LEDGER: Final = "data"
"""The directory of the entries in one of DLedger's."""
_NAMES_LISTED: Final = 5


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Paths of a store's pieces, whether they are there or not; `missing` names those that are not."""

    root: Path
    commit_log_directories: tuple[Path, ...]
    consume_queue: Path
    batch_consume_queue: Path
    index: Path
    config: Path
    checkpoint: Path
    missing: tuple[str, ...]

    @property
    def lacks_queues(self) -> bool:
        """Whether there is no queue of any kind."""
        return CONSUME_QUEUE in self.missing

    @property
    def problems(self) -> list[str]:
        """Sentences about everything that is missing."""
        return [f"{self.root / name} is missing; the store is served without it" for name in self.missing]


def recognise_store(
    root: Path, commit_log_directories: Sequence[Path] = (), *, open_segments: bool = True
) -> StoreLayout:
    """Look at a directory; raises NotAStore, saying what was found and what is expected. Nothing is written.

    `commit_log_directories` are where the log lies if not in `commitlog/` below the root. Without `open_segments` a
    DLedger log in the log's place is not noticed.
    """
    names = _list(root)
    _refuse_rocksdb(root, names)
    logs = tuple(Path(path) for path in commit_log_directories) or (root / COMMIT_LOG,)
    if not commit_log_directories and COMMIT_LOG not in names:
        raise NotAStore(root, expected=EXPECTED, found=_describe(root, names))
    segments = [path for directory in logs for path in _segments(root, directory)]
    if not segments:
        _refuse_dledger(root, names, segments)
        raise NotAStore(root, expected=EXPECTED, found=f"no segment in {', '.join(map(str, logs))}")
    refuse_converted(root, names)
    if open_segments:
        _refuse_dledger(root, names, segments)
    present = {INDEX, CONFIG, CHECKPOINT} & names
    # A store whose topics all hold batches has no plain queues, and the other way round.
    present |= {CONSUME_QUEUE} if names & {CONSUME_QUEUE, BATCH_CONSUME_QUEUE} else set()
    return StoreLayout(
        root=root,
        commit_log_directories=logs,
        consume_queue=root / CONSUME_QUEUE,
        batch_consume_queue=root / BATCH_CONSUME_QUEUE,
        index=root / INDEX,
        config=root / CONFIG,
        checkpoint=root / CHECKPOINT,
        missing=tuple(name for name in (CONSUME_QUEUE, INDEX, CONFIG, CHECKPOINT) if name not in present),
    )


def _list(root: Path) -> set[str]:
    """Names in the store's root."""
    try:
        names = set(os.listdir(root))
    except FileNotFoundError:
        raise NotAStore(root, expected=EXPECTED, found="nothing there") from None
    except NotADirectoryError:
        raise NotAStore(root, expected=EXPECTED, found="a file") from None
    except OSError as error:
        raise NotAStore(root, expected=EXPECTED, found=f"a directory that cannot be read: {error.strerror}") from error
    if not names:
        raise NotAStore(root, expected=EXPECTED, found="an empty directory")
    return names


def _describe(root: Path, names: set[str]) -> str:
    """Describe a directory without a log in a few words that help."""
    if list_segment_files(root)[0]:
        return f"segments, as if it were a store's {COMMIT_LOG}/ itself"
    inner = sorted(name for name in names if os.path.isdir(root / name / COMMIT_LOG))
    if inner:
        return f"no {COMMIT_LOG}/, but a store in {root / inner[0]}"
    logs = sorted(name for name in names if name.startswith(COMMIT_LOG) and os.path.isdir(root / name))
    if logs:
        return f"no {COMMIT_LOG}/, but {logs[0]}/: the directories of a log that has other names go to --commit-log"
    if any(map(is_ledger, names)):
        return "a DLedger log, which is not supported"
    listed = ", ".join(sorted(names)[:_NAMES_LISTED]) + (", …" if len(names) > _NAMES_LISTED else "")
    return f"no {COMMIT_LOG}/ among {listed}"


def _segments(root: Path, directory: Path) -> list[Path]:
    """Segment files in one directory of the log."""
    if not os.path.isdir(directory):
        found = "a file" if os.path.lexists(directory) else "nothing there"
        raise NotAStore(root, expected=f"a directory of the commit log in {directory}", found=found)
    try:
        return [path for _, path in list_segment_files(directory)[0]]
    except StoreError as error:
        raise NotAStore(root, expected=EXPECTED, found=f"a commit log that cannot be read: {error}") from error


def _refuse_rocksdb(root: Path, names: set[str]) -> None:
    for name in (CONSUME_QUEUE, ROCKSDB_CONSUME_QUEUE):
        table = _rocksdb_file(root / name) if name in names else None
        if table is not None:
            found = f"queues in RocksDB ({name}/{table})"
            raise NotAStore(root, expected=f"queues as files under {CONSUME_QUEUE}/", found=found)


def _rocksdb_file(directory: Path) -> str | None:
    """A file by which a RocksDB is known, if the directory is one."""
    if os.path.isfile(directory / "CURRENT"):
        return "CURRENT"
    try:
        with os.scandir(directory) as entries:
            return next((entry.name for entry in entries if _is_manifest(entry)), None)
    except OSError:  # reported when the queues are opened
        return None


def _is_manifest(entry: "os.DirEntry[str]") -> bool:
    return entry.name.startswith("MANIFEST-") and entry.is_file()


def _refuse_dledger(root: Path, names: set[str], segments: list[Path]) -> None:
    """Refuse a log of DLedger entries, in the log's place or beside an empty one."""
    beside = not segments and any(map(is_ledger, names))
    if beside or any(holds_dledger(path) for path in segments[:1]):
        raise dledger_refused(root)


def is_ledger(name: str) -> bool:
    """Whether a directory of a store is named like one of DLedger's."""
    return _DLEDGER_DIRECTORY.fullmatch(name) is not None


def refuse_converted(root: Path, names: Iterable[str]) -> None:
    """Raise NotAStore for a store of these names whose log goes on in DLedger entries.

    A ledger that nothing was written to yet holds nothing; one that cannot be looked at may hold anything.
    """
    for name in sorted(filter(is_ledger, names)):
        directory = root / name / LEDGER
        try:
            heads = (read_piece(path, 0, DLEDGER_HEAD.size) for _, path in list_segment_files(directory)[0])
            is_written = any(map(any, heads))
        except StoreError as error:
            raise converted_refused(root, f"{directory}, which cannot be read ({error})") from error
        if is_written:
            raise converted_refused(root, str(directory))


def converted_refused(root: "str | os.PathLike[str]", directory: str) -> NotAStore:
    """The error for a log that goes on as DLedger entries in a directory."""
    found = f"messages in a DLedger log, which is not supported, in {directory}; {COMMIT_LOG}/ holds older ones at most"
    return NotAStore(root, expected="all messages in a commit log of plain records", found=found)


def dledger_refused(root: Path) -> NotAStore:
    """The error for a log of DLedger entries."""
    found = "a DLedger log, which is not supported"
    return NotAStore(root, expected="a commit log of plain records (enableDLegerCommitLog=false)", found=found)


def holds_dledger(path: Path) -> bool:
    """Whether a segment starts with a DLedger entry."""
    try:
        head = read_head(path, DLEDGER_HEAD.size)
    except StoreError:  # reported when the log is opened
        return False
    return starts_dledger(head)


def starts_dledger(head: bytes) -> bool:
    """Whether the first bytes of a segment, as many as `DLEDGER_HEAD` has, are those of a DLedger entry."""
    magic, *_, record_magic = DLEDGER_HEAD.unpack(head)
    return magic == _DLEDGER_MAGIC and record_magic in (V1_MAGIC, V2_MAGIC)
