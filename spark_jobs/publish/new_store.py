"""Make a new store of what a job has staged: what is copied beside it, and its place, which it gets in one step.

The staged directory is the new store. It gets its name when all of it is on the disk, so that there is no moment at
which a broker could start on a part of it.
"""

import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from protocol.errors import ConfigError, StoreError
from spark_jobs.places.place_names import WORK
from spark_jobs.publish._new_checkpoint import checkpoint_file, write_checkpoint
from spark_jobs.publish._stage import copy_file
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.source import StoreSource
from storage.files.direct_writer import fsync_directory
from storage.files.mount_points import is_mount_point
from storage.files.own_directories import HeldDirectory
from storage.layout.dledger import is_ledger
from storage.layout.store_layout import (
    ABORT,
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    COMMIT_LOG,
    CONFIG,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
    StoreLayout,
)
from storage.layout.timer_log import TIMER_LOG, TIMER_WHEEL
from storage.layout.unread_parts import ROCKSDB_STORE, rows_of_rocksdb_store

COPIED: Final = (CONFIG, TIMER_WHEEL, ABORT, "kvStore", "compaction")
"""What a store has besides log, queues and index, and names no places of the log.

The timer wheel names those of `timerlog/`; pop's own store and compacted topics name queue offsets.
"""

MADE: Final = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX, CHECKPOINT, COMMIT_LOG, TIMER_LOG, "lock")
"""What is made anew, or by a broker that starts."""


def check_new_store(out: Path, work: Path) -> None:
    """Raise ConfigError unless a store can get this place in one step: an empty directory, or none yet."""
    if out.is_symlink() or is_mount_point(out):
        raise ConfigError(f"--out {out} is a link or a mount point, which no store can be renamed to: name a directory")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"--out {out} exists already and is not an empty directory; choose another one")
    with HeldDirectory.open(out.parent, make=True) as beside, HeldDirectory.own(work) as own:
        if os.fstat(own.descriptor).st_dev != os.fstat(beside.descriptor).st_dev:
            raise ConfigError(
                f"--work {work} and --out {out} lie in different file systems: choose one in that of --out"
            )


def check_rocksdb(layout: StoreLayout) -> None:
    """Raise StoreError where a store has rows in RocksDB that may name physical offsets: nobody would find them."""
    rows = rows_of_rocksdb_store(layout.root)
    if rows:
        raise StoreError(
            rows[0],
            what="has rows of an index, of timers or of transactions in RocksDB, which name places in the log: they "
            f"cannot be converted. If the broker ran with indexRocksDBEnable alone, move {rows[0].parent} away: files "
            "take its place",
        )


def fetch_rest(source: StoreSource) -> None:
    """Copy what will be needed of a store behind a URL beside its log, queues and index; of a directory nothing."""
    if source.tree is not None:
        source.tree.below(*COPIED, TIMER_LOG).fetch(source.layout.root)


def stage_rest(
    layout: StoreLayout,
    work: WorkDirectory,
    staged: Collection[str],
    checkpoint: Mapping[str, int],
    *,
    is_stopped: bool,
) -> list[str]:
    """Copy beside the staged log, queues and index what else the store has; what was left out.

    `staged` names what this run has staged: a checkpoint that is not among it is what a killed run left, maybe half.
    `checkpoint` has the fields of the checkpoint that change; the others stay. The new store of one whose broker died
    is one of a broker that died too, unless it `is_stopped`.
    """
    for name in COPIED:
        if not (is_stopped and name == ABORT):
            _copy(layout.root / name, work.staged / name, work.partial)
    if checkpoint:
        place = work.staged / CHECKPOINT
        before = place if CHECKPOINT in staged else checkpoint_file(layout.checkpoint)
        write_checkpoint(before, place, **checkpoint)
    known = {*COPIED, *MADE, WORK, ROCKSDB_STORE, *(path.parent.name for path in layout.commit_log_directories)}
    return [name for name in sorted(os.listdir(layout.root)) if name not in known and not is_ledger(name)]


def publish_store(work: WorkDirectory, out: Path, names: Collection[str]) -> None:
    """Let the staged directory, which must hold just these names, be the store."""
    found = set(os.listdir(work.staged))
    if found != set(names):
        raise StoreError(work.staged, expected=f"{sorted(names)}", found=f"{sorted(found)}")
    for directory, _, _ in os.walk(work.staged):
        fsync_directory(Path(directory))
    with HeldDirectory.open(out.parent) as beside, beside.named_errors():
        os.rename(work.staged, beside.path / out.name)
        fsync_directory(beside.path)


def _copy(source: Path, target: Path, partial: Path) -> None:
    """Copy a file, or a directory with all files in it, over what an earlier run has copied."""
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        with HeldDirectory.open(source) as directory:
            for name in sorted(os.listdir(directory.path)):
                _copy(source / name, target / name, partial)
    elif source.is_file():
        with HeldDirectory.open(source.parent) as directory:
            copy_file(directory, source.name, target, partial)
