"""Send finished files of a store to a URL, in tasks, and commit them by a manifest that is created once."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from spark_jobs.places.placed_run import (
    Driver,
    PlacedAttempt,
    PlacedRecord,
    PlacedRun,
    check_url,
    new_token,
    run_placed,
)
from spark_jobs.publish._publish_checks import Staged
from spark_jobs.publish.sent_manifest import VERSION, LogMark, SentManifest, SentOptions
from spark_jobs.run.attempt import RunTasks
from spark_jobs.run.work_directory import WorkDirectory
from storage.files.own_directories import HeldDirectory

PHASE: Final = "send"
BUNDLE_BYTES: Final = 64 * 1024 * 1024
"""A task sends files of about as many bytes; a longer one has a task of its own."""
_RUN: Final = "sent"


class SendTask(msgspec.Struct, frozen=True):
    """Files by their paths below `root`; `found` are attempts that earlier runs have finished."""

    name: str
    run: PlacedRun
    root: str
    paths: tuple[str, ...]
    found: tuple[str, ...]


def send_files(task: SendTask) -> PlacedRecord:
    """Send the files of a task."""
    return run_placed(task.run, task.name, task.found, lambda attempt: _send(task, attempt))


def _send(task: SendTask, attempt: PlacedAttempt) -> PlacedRecord:
    for path in task.paths:
        attempt.send(Path(task.root, path), path)
    return {"paths": list(task.paths)}


def check_send(out: str, storage: str, base: HeldDirectory | None, *, fresh: bool) -> None:
    """Raise ConfigError where something is in the way, but for what the run in a work directory has committed."""
    left = WorkDirectory.left_in(base)
    token = (left.done(_RUN) or {}).get("token") if left is not None else None
    check_url(out, storage, fresh=fresh, run=token)


@dataclass(frozen=True)
class ToSend:
    """What a command staged, the log and index that it was made of, its report, and the options that a fetch must know.

    `sent` are the records of tasks that have sent files themselves: their `paths` in the store, and `objects`.

    `index` is "" where it was made of the log alone.
    """

    command: str
    staged: Sequence[Staged]
    log: LogMark
    report: dict[str, Any]
    options: SentOptions
    index: str
    sent: Sequence[PlacedRecord] = ()


def open_run(command: str, work: WorkDirectory, out: str, storage: str, *, fresh: bool) -> Driver:
    """Begin a command's run at a URL, under the name that the work directory keeps: one that was killed goes on.

    Raises ConfigError where it cannot be, as :func:`check_send`. It has to be left in the end (`Driver.leave`).
    """
    kept = work.done(_RUN)
    if kept is not None:
        return Driver.go_on(out, storage, command, str(kept["token"]))
    token = work.finish(_RUN, {"token": new_token()})["token"]
    return Driver.start(out, storage, command, fresh=fresh, token=token)


def send(driver: Driver, run: RunTasks, work: WorkDirectory, what: ToSend) -> None:
    """Send what is staged, and commit all; raises StoreError where another run has committed before.

    Where this run had committed before it was killed, all is done.
    """
    work.enter(PHASE)
    committed = driver.committed()
    if committed is not None and committed.run == driver.run.token:
        driver.sweep(committed)
        return
    records = run(PHASE, list(_tasks(driver, work, what.staged)), send_files)
    parts = [
        {**each, "path": path}
        for record in (*what.sent, *records)
        for path, each in zip(record["paths"], record["objects"], strict=True)
    ]
    manifest = SentManifest(
        command=what.command,
        version=VERSION,
        names=tuple(each.name for each in what.staged),
        directories=tuple(_directories(what.staged)),
        log=what.log,
        report=what.report,
        options=what.options,
        index=what.index,
        parts=(),
    )
    driver.commit({**msgspec.to_builtins(manifest), "parts": parts})


def _tasks(driver: Driver, work: WorkDirectory, staged: Sequence[Staged]) -> Iterator[SendTask]:
    for paths in _bundles(work.staged, staged):
        digest = hashlib.sha256()
        for path in paths:
            status = os.stat(work.staged / path)
            digest.update(f"{path} {status.st_size} {status.st_mtime_ns} {status.st_ino}\n".encode())
        name = f"{PHASE}-{digest.hexdigest()[:16]}"
        yield SendTask(name, driver.run, str(work.staged), paths, tuple(driver.found.get(name, ())))


def _bundles(root: Path, staged: Iterable[Staged]) -> Iterator[tuple[str, ...]]:
    bundle: list[str] = []
    size = 0
    for path in sorted(path for each in staged for path in _files(each.path)):
        more = path.stat().st_size
        if bundle and size + more > BUNDLE_BYTES:
            yield tuple(bundle)
            bundle, size = [], 0
        bundle.append(str(path.relative_to(root)))
        size += more
    if bundle:
        yield tuple(bundle)


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from (each for each in path.rglob("*") if each.is_file())
    else:
        yield path


def _directories(staged: Iterable[Staged]) -> Iterator[str]:
    for each in staged:
        if each.path.is_dir():
            yield each.name
            for path in sorted(each.path.rglob("*")):
                if path.is_dir():
                    yield str(Path(each.name, path.relative_to(each.path)))
