"""Make visible what a job built: stage it beside what stays, publish it into the store, or move it to --out."""

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from protocol.errors import ConfigError, RocketLensError
from spark_jobs.build.build_request import BuildRequest
from spark_jobs.places.file_systems import is_url
from spark_jobs.places.place_names import JOURNAL
from spark_jobs.publish._atomic_rename import rename_to_free
from spark_jobs.publish._new_checkpoint import checkpoint_file, latest_end_timestamp, write_checkpoint
from spark_jobs.publish._stage import stage_kept
from spark_jobs.publish.new_store import check_new_store, publish_store
from spark_jobs.publish.publish import Staged, publish, roll_forward
from spark_jobs.publish.publish_journal import remove_journal
from spark_jobs.publish.publish_names import backup_path, drop_backups, incoming_path
from spark_jobs.publish.store_lock import StoreLock
from spark_jobs.run.work_directory import WorkDirectory
from spark_jobs.scan.source import StoreSource
from storage.files.direct_writer import fsync_directory
from storage.files.own_directories import HeldDirectory
from storage.files.write_guard import is_inside
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CHECKPOINT, CONSUME_QUEUE, CONSUME_QUEUE_EXT, INDEX

PUBLISHED: Final = (INDEX, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT, CHECKPOINT)


@contextlib.contextmanager
def made_out(request: BuildRequest) -> Iterator[None]:
    """Make --out, or the work directory of a whole store; where the block fails, an empty one that is new goes again.

    Raises ConfigError where --out is in the store, or in the way of what it holds already.
    """
    made = request.work_base if request.is_whole_store else Path(request.target)
    was_there = os.path.lexists(made)
    try:
        _check_out(request)
        yield
    except BaseException:
        if not was_there:
            with contextlib.suppress(OSError, RocketLensError), HeldDirectory.open(made) as held:
                held.remove_empty()
        raise


def _check_out(request: BuildRequest) -> None:
    out = Path(request.target)
    if request.is_whole_store:
        check_new_store(out, request.work_base)
        return
    if not is_url(request.store) and is_inside(out, Path(request.store)):
        raise ConfigError(
            f"--out {out} is in the store, which --out must not change; omit --out to replace the store's own files"
        )
    there = [name for name in PUBLISHED if os.path.lexists(out / name)]
    if there:
        raise ConfigError(f"--out {out}: {there[0]} exists already; remove it or choose another directory")
    HeldDirectory.open(out, make=True).close()


def stage_index(
    request: BuildRequest, source: StoreSource, work: WorkDirectory, kept: tuple[str, ...], sent: Iterable[int] = ()
) -> list[Staged]:
    """The whole index, with those files of the store that stay, and the checkpoint that protects it.

    `sent` are the end times (ms) of files that are not here, since tasks have sent them to where they belong.
    """
    directory = work.staged / INDEX
    stage_kept(kept, source.layout.index, directory, work.partial, link=request.out is None)
    here = latest_end_timestamp(directory)
    latest = max((*sent, *(() if here is None else (here,))), default=None)
    staged = [Staged(INDEX, directory, synced=True)]
    if latest is not None and not request.keep_checkpoint:
        path = source.layout.checkpoint
        before = checkpoint_file(path) if request.is_whole_store else path
        write_checkpoint(before, work.staged / CHECKPOINT, index_msg_timestamp=latest)
        staged.append(Staged(CHECKPOINT, work.staged / CHECKPOINT, synced=True))
    return staged


def deliver(
    request: BuildRequest, source: StoreSource, work: WorkDirectory, staged: list[Staged], lock: StoreLock | None
) -> list[str] | None:
    """Publish what is staged; returns the paths of the backups, None where no backup was to be kept."""
    if lock is None and request.is_whole_store:
        publish_store(work, Path(request.target), {each.name for each in staged})
        return None
    if lock is None:
        _move(staged, Path(request.target))
        return None
    moment = _moment(lock.root, staged)
    journal = work.root.parent / JOURNAL
    published = publish(lock, staged, journal, moment, source=log_digest(source), enter=work.enter)
    if request.drop_backup:
        with lock.named_errors():
            drop_backups(lock.root, moment)
    remove_journal(journal)
    return None if request.drop_backup else [str(path) for path in published.backups]


def end_last_publishing(lock: StoreLock | None, source: StoreSource, left: HeldDirectory | None) -> bool:
    """End what a run that was killed while publishing had begun; whether all of it is in the store now."""
    if lock is None or left is None:
        return False
    published = roll_forward(lock, left.path / JOURNAL, source=log_digest(source))
    if published is not None and published.left:
        remove_journal(left.path / JOURNAL)
    return published is not None and not published.left


def log_digest(source: StoreSource) -> str:
    """Return a digest of the segments' names, sizes and times: another state of the log has another one."""
    return hashlib.sha256(repr(source.identity()["files"][: len(source.segments)]).encode()).hexdigest()


def _moment(store: Path, staged: list[Staged]) -> str:
    """The time that names what is replaced: now, or so many seconds later that no backup bears it yet."""
    moment = datetime.now(UTC)
    while True:
        time = moment.strftime("%Y%m%d%H%M%S")
        names = (path(store, each.name, time) for each in staged for path in (incoming_path, backup_path))
        if not any(map(os.path.lexists, names)):
            return time
        moment += timedelta(seconds=1)


def _move(staged: list[Staged], out: Path) -> None:
    with HeldDirectory.open(out) as held, held.named_errors():
        for each in staged:
            fsync_directory(each.path if each.path.is_dir() else each.path.parent)
            rename_to_free(each.path, held.path / each.name)
        fsync_directory(held.path)
