"""Where a job keeps what it has done so far, so that it can be killed at any moment and go on.

    lock                           held by the driver that works here
    run-TOKEN/manifest.msgpack     what the job is (sources and options) and the phase it is in
    run-TOKEN/done/TASK.msgpack    one record a finished task, written last and under its final name at once
    run-TOKEN/progress/ATTEMPT     16 bytes that a running attempt of a task rewrites: bytes and messages done
    run-TOKEN/blocks/ATTEMPT.KIND  what tasks hand on
    run-TOKEN/partial/ATTEMPT      files and directories that are not whole, or not yet in their place
    run-TOKEN/staged/              finished files before they are published; the driver alone writes there

All of it belongs to who runs the job, and nobody else may write to it or even enter it. It is reached by descriptor,
and what somebody else may have put in its place is refused (:mod:`storage.files.own_directories`).

Each attempt of a task has a name of its own: :mod:`spark_jobs.run.attempt`.

A manifest of another source or with other options means another job: its directory is emptied. A run that continues a
killed one first gives the directory a new name: then a task of the killed run that is still alive cannot write there
any more. All executors must see the directory under the same path: machines of a cluster by its name, processes of
this one through the driver's descriptor where somebody else may change a directory on the way. A file of progress is

PROGRESS
offset  size  type  field     meaning
0       8     i64   bytes     read so far
8       8     i64   messages  found so far
"""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import struct
from collections.abc import Container, Iterator
from pathlib import Path
from struct import Struct
from typing import Any, Final, Self, TypeAlias

import msgpack
import msgspec

from protocol.errors import ConfigError, PlantedFile
from spark_jobs.places.place_names import COPIES, JOURNAL, LOCK
from storage.files.attempt_names import attempt_name, attempt_of, written_beside
from storage.files.own_directories import (
    OWN_MODE,
    HeldDirectory,
    kind_of,
    new_file,
    open_own,
    read_own,
    remove_path,
    require_own,
)

PROGRESS: Final = Struct(">qq")
"""Bytes read and messages found by a task."""

REPORT: Final = "report"
"""The record that a job leaves last, before it publishes."""

VERSION: Final = 5
_MANIFEST: Final = "manifest.msgpack"
_DONE: Final = ".msgpack"
_RUN: Final = "run-"
RUN_NAME: Final = re.compile(rf"{_RUN}[0-9a-f]{{12}}")
STAGED: Final = "staged"
_PARTS: Final = ("blocks", "partial", STAGED, "done", "progress")
_PART_MODE: Final = 0o755
"""Whatever the umask allows: nobody else may write there, and a staged directory may become a store's."""

_OURS: Final = re.compile(
    rf"{LOCK}|{re.escape(JOURNAL)}(\.[0-9a-f]+)?|{RUN_NAME.pattern}|\.{COPIES}[0-9A-Za-z_]+", re.DOTALL
)
"""The names of all that there is where jobs work."""

_NO_LINKS: Final = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""Error numbers of file systems that have no hard links."""


JobIdentity: TypeAlias = dict[str, Any]
"""Two jobs are the same if this is equal; each kind of job has fields of its own, which are only compared."""

StoredRecord: TypeAlias = dict[str, Any]
"""What a finished task left, as msgpack has it; its fields are known where its task is."""


class Manifest(msgspec.Struct, frozen=True):
    """`identity` distinguishes jobs by the sources' identities and the options; `phase` is for people."""

    version: int
    identity: JobIdentity
    phase: str


class WorkDirectory:
    """The directory of one job; the driver makes it, tasks find it by its path."""

    def __init__(self, root: Path) -> None:
        """Name the directory, `run-TOKEN`; nothing is read or made."""
        self.root = root
        self.blocks = root / "blocks"
        self.partial = root / "partial"
        self.staged = root / STAGED
        self._lock = -1
        self._base: HeldDirectory | None = None
        self.has_discarded = False
        """Whether what another job had left unfinished was deleted."""

    @classmethod
    def open(cls, base: Path, identity: JobIdentity, *, fresh: bool = False, shared: bool = False) -> Self:
        """Go on with the same job below `base`, or start an empty directory there; `fresh` starts over in any case.

        Raises ConfigError where another job works, or where anything else lies, PlantedFile for what somebody else may
        have put there. `shared`: other machines use it by its name, which nobody else may then be able to change.
        """
        held = HeldDirectory.own(base)
        if shared:
            held.require_own()
            held.path = held.name
        work = cls(held.path / f"{_RUN}{secrets.token_hex(6)}")
        work._base = held
        try:
            _refuse_others(held)
            work._lock = _lock(held)
            # What comes out of msgpack has lists for tuples: compare what would be written.
            work._take_over(held.path, _unpacked(msgpack.packb(identity)), fresh=fresh)
        except BaseException:
            work.close()
            raise
        return work

    def _take_over(self, base: Path, identity: JobIdentity, *, fresh: bool) -> None:
        """Go on with what the same job has left, remove what another one has, and make what is not there yet."""
        for half_written in base.glob(f"{JOURNAL}.*"):
            half_written.unlink(missing_ok=True)
        before = self._last_run(base)
        manifest = before.manifest() if before else None
        if before and manifest and not fresh and (manifest.version, manifest.identity) == (VERSION, identity):
            os.rename(before.root, self.root)
            self._keep_finished()
        else:
            self.has_discarded = before is not None
        for other in base.glob(f"{_RUN}*"):
            if other.name != self.root.name:
                shutil.rmtree(other, ignore_errors=True)
        self.make()
        if self.manifest() is None:
            self._write_manifest(Manifest(VERSION, identity, "plan"))

    def make(self) -> None:
        """Make the directories that are not there yet."""
        self.root.mkdir(OWN_MODE, exist_ok=True)
        for name in _PARTS:
            (self.root / name).mkdir(_PART_MODE, exist_ok=True)

    @classmethod
    def left_in(cls, base: HeldDirectory | None) -> Self | None:
        """The directory that the last run left in a directory of ours, if it did; it is used while that is held."""
        if base is None:
            return None
        _refuse_others(base)
        run = cls._last_run(base.path)
        if run is not None:
            run._base = base
        return run

    @classmethod
    def _last_run(cls, base: Path) -> Self | None:
        runs = [cls(path) for path in base.glob(f"{_RUN}*")]
        return next((run for run in runs if run.manifest() is not None), None)

    def named_errors(self) -> contextlib.AbstractContextManager[None]:
        """Let errors of a block call the directory by its name."""
        return contextlib.nullcontext() if self._base is None else self._base.named_errors()

    def manifest(self) -> Manifest | None:
        """Read what the directory is for; None where there is no such directory or no sound manifest in it."""
        try:
            return msgspec.msgpack.decode(read_own(self.root / _MANIFEST), type=Manifest)
        except (OSError, msgspec.MsgspecError):
            return None

    def enter(self, phase: str) -> None:
        """Note that the job has reached a phase."""
        manifest = self.manifest()
        if manifest is not None:
            self._write_manifest(msgspec.structs.replace(manifest, phase=phase))

    def done(self, task: str) -> StoredRecord | None:
        """Read the record of a finished task, None for one that is not finished."""
        try:
            record: Any = _unpacked(read_own(self._record(task)))
        except (OSError, ValueError, msgpack.exceptions.UnpackException):
            return None
        return record if isinstance(record, dict) and _is_attempt(record.get("attempt")) else None

    def finish(self, task: str, record: StoredRecord) -> StoredRecord:
        """Note that a task is finished; its files must be complete. Returns the record as `done` will."""
        packed = msgpack.packb(record)
        write_whole(self._record(task), packed)
        return _unpacked(packed)

    def finish_first(self, task: str, record: StoredRecord) -> StoredRecord:
        """Note that an attempt of a task is finished, unless another one was quicker; the record of the first."""
        path, packed = self._record(task), msgpack.packb(record)
        beside = path.with_name(attempt_name(path.name))
        try:
            write_synced(beside, packed)
            # A link fails where the name is taken, while of renames the last one would win.
            os.link(beside, path)
        except FileExistsError:
            if (first := self.done(task)) is not None:
                return first
            os.replace(beside, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
        return _unpacked(packed)

    def forget(self, task: str) -> None:
        """Note that a task is not finished after all, since its files have changed."""
        self._record(task).unlink(missing_ok=True)

    def keep_attempts(self, phase: str, kept: Container[str | None]) -> None:
        """Remove what the attempts of a phase's tasks have left ("": of all phases), but for those attempts.

        One that still runs fails, or finds in the end that another one counts, and removes what else it has written.
        """
        start = f"{phase}-" if phase else ""
        for directory in (self.blocks, self.partial, self.root / "progress"):
            for entry in os.scandir(directory):
                if entry.name.startswith(start) and attempt_of(entry.name) not in kept:
                    remove_path(Path(entry.path))

    def _keep_finished(self) -> None:
        """Remove what attempts have left that did not come to their end."""
        kept = set()
        for path in (self.root / "done").iterdir():
            if path.suffix == _DONE:
                kept.add(str((self.done(path.stem) or {}).get("attempt")))
            else:
                path.unlink(missing_ok=True)
        self.keep_attempts("", kept)

    def _record(self, task: str) -> Path:
        return self.root / "done" / f"{task}{_DONE}"

    def progress(self, phase: str) -> Iterator[tuple[int, int]]:
        """Bytes and messages that each task of a phase has reported so far; of its attempts the one that is ahead."""
        ahead: dict[str, tuple[int, int]] = {}
        for entry in os.scandir(self.root / "progress"):
            if entry.name.startswith(f"{phase}-"):
                with contextlib.suppress(FileNotFoundError, struct.error):
                    done = PROGRESS.unpack(Path(entry.path).read_bytes())
                    task = entry.name.rpartition(".")[0] or entry.name
                    ahead[task] = max(done, ahead.get(task, done))
        yield from ahead.values()

    def report_file(self, attempt: str) -> Path:
        """The file of an attempt's progress."""
        return self.root / "progress" / attempt

    def report(self, attempt: str) -> "TaskProgress":
        """Where an attempt of a task reports how far it is."""
        return TaskProgress(self.report_file(attempt))

    def remove(self) -> None:
        """Delete the directory; what was in it has been published or is of no use.

        What says that the job came to its end goes last: a run that is killed meanwhile is known for one that did.
        """
        # An attempt that still runs would make new files while it is deleted: let it find nothing any more.
        gone = self.root.with_name(f"{_RUN}{secrets.token_hex(6)}")
        with contextlib.suppress(OSError):
            os.rename(self.root, gone)
        report = WorkDirectory(gone)._record(REPORT)
        for root in (gone, self.root):
            for path in (*root.glob("*"), *root.glob("done/*")):
                if path not in (gone / _MANIFEST, report.parent, report):
                    remove_path(path)
            shutil.rmtree(root, ignore_errors=True)
        with contextlib.suppress(OSError):
            (self.root.parent / LOCK).unlink(missing_ok=True)
            if self._base is None:
                self.root.parent.rmdir()
            else:
                self._base.remove_empty()
        self.close()

    def close(self) -> None:
        """Give up the lock, so that another process may work here, and let go of the directory."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if self._base is not None:
            self._base.close()

    def _write_manifest(self, manifest: Manifest) -> None:
        write_whole(self.root / _MANIFEST, msgspec.msgpack.encode(manifest))


class TaskProgress:
    """How far one task is, in a file that it rewrites in place."""

    def __init__(self, path: Path) -> None:
        """Start at nothing."""
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        self.update(0, 0)

    def update(self, done_bytes: int, messages: int) -> None:
        """Say what has been done so far."""
        os.pwrite(self._descriptor, PROGRESS.pack(done_bytes, messages), 0)

    def close(self) -> None:
        """The task is over."""
        os.close(self._descriptor)


def _refuse_others(base: HeldDirectory) -> None:
    """Raise ConfigError for a directory that holds anything besides our files, PlantedFile for files of others."""
    for name in sorted(os.listdir(base.path)):
        if not _OURS.fullmatch(name):
            raise ConfigError(
                f"{base.name} is not a work directory, it contains {name}: choose an empty one with --work"
            )
        _require_kind(base, name, stat.S_IFREG if name.startswith((LOCK, JOURNAL)) else stat.S_IFDIR)
        for inner in sorted(os.listdir(base.path / name)) if RUN_NAME.fullmatch(name) else ():
            _require_kind(base, f"{name}/{inner}", stat.S_IFDIR if inner in _PARTS else stat.S_IFREG)


def _require_kind(base: HeldDirectory, name: str, kind: int) -> None:
    """Raise PlantedFile for what is of another kind, or not our own."""
    status = os.lstat(base.path / name)
    if stat.S_IFMT(status.st_mode) != kind:
        raise PlantedFile(base.name / name, what=f"is {kind_of(status)}, which no job leaves there: move it away")
    require_own(base.name / name, status)


def _lock(base: HeldDirectory) -> int:
    path = base.path / LOCK
    try:
        descriptor = open_own(path, os.O_RDWR)
    except FileNotFoundError:
        new_file(path).close()
        descriptor = open_own(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise ConfigError(
            f"another job is running in {base.name}: wait for its end, or choose another directory with --work"
        ) from error
    return descriptor


def _is_attempt(name: object) -> bool:
    """Whether a record names no attempt, or one by a name that such a one has."""
    return name is None or (isinstance(name, str) and "/" not in name and attempt_of(name) == name)


@contextlib.contextmanager
def work_left(base: Path) -> Iterator[HeldDirectory | None]:
    """Hold the directory in which jobs have worked, or None; raises PlantedFile for one of others."""
    try:
        held = HeldDirectory.own(base, make=False)
    except FileNotFoundError:
        yield None
        return
    with held, held.named_errors():
        yield held


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is never seen in part; it outlives a crash of the machine."""
    with written_beside(path) as beside:
        write_synced(beside, data)


def write_synced(path: Path, data: bytes) -> None:
    """Write a new file and wait until it would outlive a crash of the machine."""
    with new_file(path) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _unpacked(data: bytes) -> StoredRecord:
    """Unpack a record. Tuples that were packed come out as lists."""
    plain: StoredRecord = msgpack.unpackb(data, strict_map_key=False)
    return plain
