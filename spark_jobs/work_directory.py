"""Where a job keeps what it has done so far, so that it can be killed at any moment and go on.

    manifest.msgpack         what the job is (sources and options) and the phase it is in
    done/NAME.msgpack        one record a finished task, written last and under its final name at once
    progress/NAME            16 bytes a running task rewrites: bytes and messages done
    blocks/, staged/         what tasks hand on, and the finished files before they are published

A manifest of another source or with other options means another job: its directory is emptied. All executors must see
the directory under the same path.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any, Final, Self

import msgpack
import msgspec

PROGRESS: Final = Struct(">qq")
"""Bytes read and messages found by a task."""

VERSION: Final = 1
_MANIFEST: Final = "manifest.msgpack"


class Manifest(msgspec.Struct, frozen=True):
    """`identity` tells one job from another: the sources' identities and the options; `phase` is for people."""

    version: int
    identity: dict[str, Any]
    phase: str


class WorkDirectory:
    """The directory of one job; the driver makes it, tasks find it by its path."""

    def __init__(self, root: Path) -> None:
        """Name the directory; nothing is read or made."""
        self.root = root
        self.blocks = root / "blocks"
        self.staged = root / "staged"

    @classmethod
    def open(cls, root: Path, identity: dict[str, Any], *, fresh: bool = False) -> Self:
        """Go on with the same job's directory, or start an empty one; `fresh` starts over in any case."""
        work = cls(root)
        manifest = work.manifest()
        # What comes out of msgpack has lists for tuples: compare what would be written.
        plain = msgpack.unpackb(msgpack.packb(identity), strict_map_key=False)
        if fresh or manifest is None or manifest.version != VERSION or manifest.identity != plain:
            shutil.rmtree(root, ignore_errors=True)
            for directory in (root, work.blocks, work.staged, root / "done", root / "progress"):
                directory.mkdir(parents=True, exist_ok=True)
            work._write_manifest(Manifest(VERSION, plain, "plan"))
        return work

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


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that it is never seen in part; it outlives a crash of the machine."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
