"""What somebody who may write to a store plants there, so that root does for them what they may not."""

import contextlib
import dataclasses
import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

import msgspec

from read_only import state_of
from read_only_guard import NOBODY
from spark_jobs.publish.deliver import log_digest
from spark_jobs.publish.publish_journal import VERSION, Journal, JournalEntry
from spark_jobs.scan.source import find_source

OWNER = NOBODY

ANOTHER = 12345
SECRET = b"what root alone may read\n" * 400
RUN = "run-0123456789ab"
WORK = ".rocketlens-work"
TIME = "20260101000000"

PLACES = (
    "lock", "index", "checkpoint", "consumequeue", "config", "abort", "commitlog", "mine",
    "index/20240101000000000", "consumequeue/Orders", "consumequeue/Orders/0",
    "consumequeue/Orders/0/00000000000000000000", "config/topics.json",
    f"index.new-{TIME}", f"index.bak-{TIME}", f"checkpoint.new-{TIME}",
    "_manifest.json", "_attempts", "part-00000000000000000000.ndjson",
)  # fmt: skip
"""Places in a store, or in a directory for output, that jobs write to, read from or look at."""

WORK_PLACES = (
    "", "/lock", "/journal.msgpack", f"/{RUN}", f"/{RUN}/manifest.msgpack", f"/{RUN}/done",
    f"/{RUN}/done/report.msgpack",
    f"/{RUN}/partial", f"/{RUN}/staged", f"/{RUN}/staged/index", f"/{RUN}/blocks", f"/{RUN}/progress",
)  # fmt: skip

KINDS = ("file", "directory", "link", "dangling link", "second name", "fifo", "journal", "manifest")
TARGETS = ("secret", "precious", f"precious/{RUN}", "empty", "theirs", "")


@dataclass(frozen=True)
class Plant:
    """Something of a kind at a place below a directory; `target` is a name outside, to which a link leads."""

    place: str
    kind: str
    owner: int
    mode: int
    target: str

    def is_refused(self, work: str, lock: str) -> bool:
        """Whether no job may go on with it: a link or another's directory where the work directory or the lock is."""
        if self.place == work:
            is_ours = self.owner == os.geteuid() and not self.mode & 0o022
            return self.kind != "directory" or not is_ours
        return self.place == lock and self.kind not in ("file", "second name", "journal", "manifest")


class Field:
    """A directory with a `place` of somebody's (a store, or where output goes), and what lies outside of it."""

    def __init__(self, root: Path, store: Path | None = None) -> None:
        self.root, self.outside = root, root / "outside"
        self._named_twice: set[str] = set()
        self.theirs = root / "theirs"
        """A directory of the owner's, in which the store lies."""
        self.store = self.theirs / "store"
        self.outside.mkdir()
        self.theirs.mkdir()
        os.chown(self.theirs, OWNER, OWNER)
        (self.outside / "secret").write_bytes(SECRET)
        (self.outside / "secret").chmod(0o600)
        (self.outside / "theirs").write_bytes(b"a file of another user\n")
        os.chown(self.outside / "theirs", ANOTHER, ANOTHER)
        for name in ("blocks", "partial", "staged/index", "done", "progress"):
            (self.outside / "precious" / RUN / name).mkdir(parents=True)
        (self.outside / "precious" / RUN / "done" / "report.msgpack").write_bytes(b"\x80")
        (self.outside / "precious" / "lock").touch()
        (self.outside / "empty").mkdir()
        if store is not None:
            shutil.copytree(store, self.store, symlinks=True)
            give(self.store)

    def plant(self, directory: Path, plant: Plant) -> bool:
        path, target = directory / plant.place, self.outside / plant.target
        if not self._leads_there(path, directory):
            return False
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        if plant.kind == "second name" and not (target.is_file() and plant.target):
            return False
        self._make(directory, path, plant, target)
        if plant.kind != "second name":
            os.lchown(path, plant.owner, plant.owner)
            if not path.is_symlink():
                path.chmod(plant.mode)
        return True

    def _make(self, directory: Path, path: Path, plant: Plant, target: Path) -> None:
        if plant.kind == "directory":
            path.mkdir()
        elif plant.kind == "link":
            path.symlink_to(target)
        elif plant.kind == "dangling link":
            path.symlink_to(self.outside / "new")
        elif plant.kind == "second name":
            os.link(target, path)
            self._named_twice.add(plant.target)
        elif plant.kind == "fifo":
            os.mkfifo(path)
        elif plant.kind == "journal":
            path.write_bytes(evil_journal(directory, target))
        elif plant.kind == "manifest":
            path.write_bytes(evil_manifest(f"../outside/{plant.target}"))
        else:
            path.write_bytes(b"x" * 100)

    def _leads_there(self, path: Path, directory: Path) -> bool:
        """Whether all above a path in a directory are directories; those that are missing are made, for the owner."""
        above = [parent for parent in path.parents if parent.is_relative_to(directory)]
        for parent in reversed(above):
            if not os.path.lexists(parent):
                parent.mkdir()
                os.chown(parent, OWNER, OWNER)
            if parent.is_symlink() or not parent.is_dir():
                return False
        return True

    def snapshot(self):
        """All that lies outside; a file changes by the loss of a second name, which anybody can take from it."""
        return {
            path: dataclasses.replace(state, changed_ns=0) if path in self._named_twice else state
            for path, state in state_of(self.outside).items()
        }

    def inodes(self) -> set[int]:
        return {path.lstat().st_ino for path in self.outside.rglob("*")}

    def stolen(self, directory: Path, planted: set[str]) -> list[str]:
        """Files in a directory that are, or hold, what lies outside, but for what was planted."""
        outside, found = self.inodes(), []
        for path in directory.rglob("*"):
            status = path.lstat()
            place = path.relative_to(directory)
            before = Path(place.parts[0].partition(".bak-")[0], *place.parts[1:])
            if {str(place), str(before)} & planted or not stat.S_ISREG(status.st_mode):
                continue
            can_be_read = status.st_uid == OWNER or status.st_mode & 0o044
            if status.st_ino in outside or (can_be_read and SECRET[:25] in path.read_bytes()):
                found.append(str(path))
        return found


def give(root: Path, uid: int = OWNER) -> None:
    for path in [root, *root.rglob("*")]:
        os.lchown(path, uid, uid)


def evil_journal(store: Path, target: Path, name: str = "../x") -> bytes:
    try:
        digest = log_digest(find_source(store, ()))
        lock = (store / "lock").stat()
        inode = target.lstat().st_ino
    except Exception:  # what else was planted is in the way
        digest, lock, inode = "", store.stat(), 1
    entries = (JournalEntry(name, str(target), inode, None), JournalEntry("index", str(target), inode, None))
    journal = Journal(VERSION, str(store), store.stat().st_ino, (lock.st_ino, lock.st_mtime_ns), digest, TIME, entries)
    return msgspec.msgpack.encode(journal)


def evil_manifest(name: str) -> bytes:
    """A manifest of an output that names a file of somebody else, which a job that replaces the output would remove."""
    part = {"name": name, "bytes": 1, "sha256": "x"}
    return msgspec.json.encode({"command": "rebuild", "run": "x", "host": "", "written": "", "parts": [part]})
