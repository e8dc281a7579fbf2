"""Whether a directory is a store that can be served, and where its pieces lie.

A store must have a log; every other piece may be missing, and its answers are then found without it or not at all.
The log lies in `commitlog/`, in DLedger's `dledger-ID/data/`, or begins in the former and goes on in the latter
(:mod:`storage.layout.dledger`). Directories without a log are refused; the error says what was found and what is
expected. Where queues are in RocksDB the log says all that they do (:mod:`storage.queue.derived_queues`).

Source: store-format §1.
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from protocol.errors import NotAStore, StoreError
from storage.files.mapped_file import list_segment_files
from storage.layout.dledger import DATA, elsewhere_problems, is_ledger, written_ledgers
from storage.layout.tier_layout import TIER_METADATA, TierLayout, is_tier, recognise_tier

COMMIT_LOG: Final = "commitlog"
CONSUME_QUEUE: Final = "consumequeue"
CONSUME_QUEUE_EXT: Final = "consumequeue_ext"
BATCH_CONSUME_QUEUE: Final = "batchconsumequeue"
INDEX: Final = "index"
CONFIG: Final = "config"
CHECKPOINT: Final = "checkpoint"
ABORT: Final = "abort"
ROCKSDB_CONSUME_QUEUE: Final = "consumequeue_rocksdb"
ROCKSDB_PLACES: Final = (ROCKSDB_CONSUME_QUEUE, CONSUME_QUEUE)
EXPECTED: Final = f"a RocketMQ store: a directory with {COMMIT_LOG}/ and in it segments named by 20 digits"

TIER_READERS: Final = "serve, find, search, filter, tail, topics and export"
"""The commands that read a tier alone."""

_NAMES_LISTED: Final = 5


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """Paths of a store's pieces, whether they are there or not; `missing` names those that are not."""

    root: Path
    commit_log_directories: tuple[Path, ...]
    ledgers: tuple[Path, ...]
    """Those of the log's directories in which it is DLedger's."""
    consume_queue: Path
    batch_consume_queue: Path
    index: Path
    config: Path
    checkpoint: Path
    missing: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()
    """Sentences about parts of the log that lie in directories that were not given."""
    tier: TierLayout | None = None
    """Where older messages of the queues are; with no directory of the log, where all messages are."""
    rocksdb_queues: Path | None = None
    """The RocksDB that has queues, beside files of them or instead."""

    @property
    def is_tier_alone(self) -> bool:
        """Whether there are a tier's files and no store."""
        return self.tier is not None and not self.commit_log_directories

    @property
    def lacks_queues(self) -> bool:
        """Whether there is no queue of any kind."""
        return CONSUME_QUEUE in self.missing

    @property
    def problems(self) -> list[str]:
        """Sentences about everything that is missing."""
        without = {CONSUME_QUEUE: "queues are derived from the log; rocketlens rebuild queues makes them"}
        missing = [(self.root / name, without.get(name, "the store is served without it")) for name in self.missing]
        return [*(f"{path} is missing; {what}" for path, what in missing), *self.elsewhere]


def recognise_store(root: Path, commit_log_directories: Sequence[Path] = ()) -> StoreLayout:
    """Look at a directory; raises NotAStore, saying what was found and what is expected. Nothing is written.

    `commit_log_directories` are where the log lies if not in `commitlog/` or a DLedger's directory below the root.
    """
    names = _list(root)
    ledgers = _ledgers(root, names, commit_log_directories)
    logs = tuple(Path(path) for path in commit_log_directories) or _own_logs(root, names, ledgers)
    if not logs:
        raise NotAStore(root, expected=EXPECTED, found=_describe(root, names))
    if not [path for directory in logs for path in _segments(root, directory)]:
        raise NotAStore(root, expected=EXPECTED, found=f"no segment in {', '.join(map(str, logs))}")
    present = {INDEX, CONFIG, CHECKPOINT} & names
    # A store whose topics all hold batches has no plain queues, and the other way round.
    present |= {CONSUME_QUEUE} if names & {CONSUME_QUEUE, BATCH_CONSUME_QUEUE, ROCKSDB_CONSUME_QUEUE} else set()
    return StoreLayout(
        root=root,
        commit_log_directories=logs,
        ledgers=ledgers,
        consume_queue=root / CONSUME_QUEUE,
        batch_consume_queue=root / BATCH_CONSUME_QUEUE,
        index=root / INDEX,
        config=root / CONFIG,
        checkpoint=root / CHECKPOINT,
        missing=tuple(name for name in (CONSUME_QUEUE, INDEX, CONFIG, CHECKPOINT) if name not in present),
        elsewhere=() if ledgers or commit_log_directories else elsewhere_problems(root, names),
        rocksdb_queues=find_rocksdb_queues(root),
    )


def recognise_with_tier(
    root: Path, commit_log_directories: Sequence[Path] = (), tier: Path | None = None
) -> StoreLayout:
    """Look at a store with its tier, or at a tier alone, which is in ``root`` then; else as `recognise_store` does."""
    if tier is not None:
        layout = recognise_store(root, commit_log_directories)
        return replace(layout, tier=recognise_tier(tier, layout.config / TIER_METADATA))
    if commit_log_directories or _list(root) & {COMMIT_LOG} or not is_tier(root):
        return recognise_store(root, commit_log_directories)
    return StoreLayout(
        root=root,
        commit_log_directories=(),
        ledgers=(),
        consume_queue=root / CONSUME_QUEUE,
        batch_consume_queue=root / BATCH_CONSUME_QUEUE,
        index=root / INDEX,
        config=root / CONFIG,
        checkpoint=root / CHECKPOINT,
        missing=(),
        tier=recognise_tier(root, root / TIER_METADATA),
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
    if is_tier(root):
        return f"tiered files of a broker, which {TIER_READERS} read, and nothing else"
    inner = sorted(name for name in names if os.path.isdir(root / name / COMMIT_LOG))
    if inner:
        return f"no {COMMIT_LOG}/, but a store in {root / inner[0]}"
    logs = sorted(name for name in names if name.startswith(COMMIT_LOG) and os.path.isdir(root / name))
    if logs:
        return f"no {COMMIT_LOG}/, but {logs[0]}/: the directories of a log that has other names go to --commit-log"
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


def find_rocksdb_queues(root: Path) -> Path | None:
    """The RocksDB that has queues of a store; None where all queues are files."""
    return next((root / name for name in ROCKSDB_PLACES if _is_rocksdb(root / name)), None)


def _is_rocksdb(directory: Path) -> bool:
    """Whether a directory is a RocksDB, or what is left of one."""
    try:
        with os.scandir(directory) as entries:
            return any(_is_of_rocksdb(entry) for entry in entries)
    except OSError:  # reported when the queues are opened
        return False


def _is_of_rocksdb(entry: "os.DirEntry[str]") -> bool:
    named = entry.name == "CURRENT" or entry.name.startswith("MANIFEST-") or entry.name.endswith(".sst")
    return named and entry.is_file()


def _own_logs(root: Path, names: set[str], ledgers: tuple[Path, ...]) -> tuple[Path, ...]:
    """The directories of a log that lies in the store; none where there is none.

    A ledger to which nothing was written is the log where there is no other.
    """
    plain = (root / COMMIT_LOG,) if COMMIT_LOG in names else ()
    return (*plain, *ledgers) or tuple(each for each in _ledgers_of(root, names) if each.is_dir())[:1]


def _ledgers_of(root: Path, names: Iterable[str]) -> list[Path]:
    return [root / name / DATA for name in sorted(filter(is_ledger, names))]


def _ledgers(root: Path, names: set[str], given: Sequence[Path]) -> tuple[Path, ...]:
    """Where the log goes on as DLedger's: in the one directory of such that holds any, or in those that are given.

    Raises NotAStore where several do, or where one that does is not among the directories that are given: a part of
    the log could be taken for all of it.
    """
    written = written_ledgers(root, names)
    if given:
        known = {os.path.realpath(path) for path in given}
        left_out = [directory for directory in written if os.path.realpath(directory) not in known]
        if left_out:
            expected = f"all directories of the log to be given, or none: {COMMIT_LOG}/ holds older messages at most"
            raise NotAStore(root, expected=expected, found=f"messages in a DLedger log in {left_out[0]}")
        return tuple(directory for directory in given if is_ledger(Path(directory).parent.name))
    if len(written) > 1:
        found = f"DLedger logs of several members: {', '.join(map(str, written))}"
        raise NotAStore(root, expected="the log of one member of a DLedger group; move the others away", found=found)
    return tuple(written)
