"""Where a job keeps what it has done so far, so that it can be killed at any moment and go on.

    lock                         held by the driver that works here
    run-TOKEN/manifest.msgpack   what the job is (sources and options) and the phase it is in
    run-TOKEN/done/NAME.msgpack  one record a finished task, written last and under its final name at once
    run-TOKEN/progress/NAME      16 bytes a running task rewrites: bytes and messages done
    run-TOKEN/blocks/, partial/  what tasks hand on, and files that are not whole yet
    run-TOKEN/staged/            finished files before they are published

A manifest of another source or with other options means another job: its directory is emptied. Who goes on with a job
that was killed gives its directory a new name first: a task of the killed run that still lives finds nothing any more
where it wants to put what it made. All executors must see the directory under the same path.
"""

import contextlib
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, Final, Self

import msgpack
import msgspec

from protocol.errors import ConfigError

PROGRESS: Final = Struct(">qq")
"""Bytes read and messages found by a task."""

VERSION: Final = 2
JOURNAL: Final = "journal.msgpack"
"""A publishing that is under way, beside the directory of its run."""

_MANIFEST: Final = "manifest.msgpack"
_LOCK: Final = "lock"
_RUN: Final = "run-"


class Manifest(msgspec.Struct, frozen=True):
    """`identity` tells one job from another: the sources' identities and the options; `phase` is for people."""

    version: int
    identity: dict[str, Any]
    phase: str


class WorkDirectory:
    """The directory of one job; the driver makes it, tasks find it by its path."""

    def __init__(self, root: Path) -> None:
        """Name the directory, `run-TOKEN`; nothing is read or made."""
        self.root = root
        self.blocks = root / "blocks"
        self.partial = root / "partial"
        self.staged = root / "staged"
        self._lock = -1
        self.has_discarded = False
        """Whether what another job had left unfinished was deleted."""

    @classmethod
    def open(cls, base: Path, identity: dict[str, Any], *, fresh: bool = False) -> Self:
        """Go on with the same job below `base`, or start an empty directory there; `fresh` starts over in any case.

        Raises ConfigError where another job works, or where anything else lies.
        """
        base.mkdir(parents=True, exist_ok=True)
        _refuse_others(base)
        lock = _lock(base)
        for half_written in base.glob(f"{JOURNAL}.*"):
            half_written.unlink(missing_ok=True)
        # What comes out of msgpack has lists for tuples: compare what would be written.
        plain = msgpack.unpackb(msgpack.packb(identity), strict_map_key=False)
        work = cls(base / f"{_RUN}{secrets.token_hex(6)}")
        work._lock = lock
        before = cls.left_in(base)
        manifest = before.manifest() if before else None
        if before and manifest and not fresh and (manifest.version, manifest.identity) == (VERSION, plain):
            os.rename(before.root, work.root)
        else:
            work.has_discarded = before is not None
        for other in base.glob(f"{_RUN}*"):
            if other != work.root:
                shutil.rmtree(other, ignore_errors=True)
        for directory in (work.blocks, work.partial, work.staged, work.root / "done", work.root / "progress"):
            directory.mkdir(parents=True, exist_ok=True)
        if work.manifest() is None:
            work._write_manifest(Manifest(VERSION, plain, "plan"))
        return work

    @classmethod
    def left_in(cls, base: Path) -> Self | None:
        """The directory that the last run left below `base`, if it did."""
        runs = [cls(path) for path in base.glob(f"{_RUN}*")]
        return next((run for run in runs if run.manifest() is not None), None)

    def manifest(self) -> Manifest | None:
        """What the directory is for, None where there is no such directory or its manifest is no manifest."""
        try:
            return msgspec.msgpack.decode((self.root / _MANIFEST).read_bytes(), type=Manifest)
        except (OSError, msgspec.MsgspecError):
            return None

    def enter(self, phase: str) -> None:
        """Note that the job has reached a phase."""
        manifest = self.manifest()
        if manifest is not None:
            self._write_manifest(msgspec.structs.replace(manifest, phase=phase))

    def done(self, task: str) -> dict[str, Any] | None:
        """What a finished task left, None for one that is not finished."""
        try:
            record = msgpack.unpackb((self.root / "done" / f"{task}.msgpack").read_bytes(), strict_map_key=False)
        except (OSError, ValueError, msgpack.exceptions.UnpackException):
            return None
        return record if isinstance(record, dict) else None

    def finish(self, task: str, record: dict[str, Any]) -> dict[str, Any]:
        """Note that a task is finished; its files must be complete. Returns the record as `done` will."""
        packed = msgpack.packb(record)
        write_whole(self.root / "done" / f"{task}.msgpack", packed)
        plain: dict[str, Any] = msgpack.unpackb(packed, strict_map_key=False)
        return plain

    def forget(self, task: str) -> None:
        """A finished task is not: its files are no longer what it left."""
        (self.root / "done" / f"{task}.msgpack").unlink(missing_ok=True)

    def progress(self, phase: str) -> Iterator[tuple[int, int]]:
        """Bytes and messages that each task of a phase has reported so far."""
        for entry in os.scandir(self.root / "progress"):
            if entry.name.startswith(f"{phase}-"):
                data = Path(entry.path).read_bytes()
                if len(data) == PROGRESS.size:
                    yield PROGRESS.unpack(data)

    def report(self, task: str) -> "TaskProgress":
        """Where a task reports how far it is."""
        return TaskProgress(self.root / "progress" / task)

    def remove(self) -> None:
        """Delete the directory; what was in it has been published or is of no use."""
        shutil.rmtree(self.root, ignore_errors=True)
        self.close()
        with contextlib.suppress(OSError):
            (self.root.parent / _LOCK).unlink(missing_ok=True)
            self.root.parent.rmdir()

    def close(self) -> None:
        """Let others work here."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _write_manifest(self, manifest: Manifest) -> None:
        write_whole(self.root / _MANIFEST, msgspec.msgpack.encode(manifest))


class TaskProgress:
    """How far one task is, in a file that it rewrites in place."""

    def __init__(self, path: Path) -> None:
        """Start at nothing."""
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.update(0, 0)

    def update(self, done_bytes: int, messages: int) -> None:
        """Say what has been done so far."""
        os.pwrite(self._descriptor, PROGRESS.pack(done_bytes, messages), 0)

    def close(self) -> None:
        """The task is over."""
        os.close(self._descriptor)


def _refuse_others(base: Path) -> None:
    """A directory that holds anything but ours is nobody's work directory."""
    ours = {_LOCK, JOURNAL}
    other = next((name for name in sorted(os.listdir(base)) if name not in ours and not name.startswith(_RUN)), None)
    if other is not None and not other.startswith(JOURNAL):
        raise ConfigError(f"{base} is no work directory, there is {other} in it: choose an empty one with --work")


def _lock(base: Path) -> int:
    descriptor = os.open(base / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise ConfigError(
            f"another job works in {base}: wait for its end, or choose another place with --work"
        ) from error
    return descriptor


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is never seen in part; it outlives a crash of the machine."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
