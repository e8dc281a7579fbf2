"""A store in miniature and something staged to be published into it; what it was, and what it must be."""

import hashlib
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager

from spark_jobs.publish import store_lock
from spark_jobs.publish.publish import Staged, publish, roll_forward
from spark_jobs.publish.store_lock import StoreLock

TIME = "20240229123456"
NAMES = ("consumequeue_ext", "consumequeue", "batchconsumequeue", "index", "checkpoint")

OLD = {
    "commitlog": {"00000000000000000000": b"log"},
    "config": {"topics.json": b"{}"},
    "consumequeue_ext": {"T": None, "T/0": None, "T/0/00000000000000000000": b"old ext"},
    "consumequeue": {"T": None, "T/0": None, "T/0/00000000000000000000": b"old unit", "T/1": None},
    "batchconsumequeue": {"B": None, "B/0": None, "B/0/00000000000000000000": b"old batch"},
    "index": {"20240101000000000": b"old 1", "20240101000000001": b"old 2"},
}
NEW = {
    "consumequeue_ext": {"U": None, "U/0": None, "U/0/00000000000000000000": b"new ext"},
    "consumequeue": {"T": None, "T/0": None, "T/0/00000000000000000000": b"new unit"},
    "batchconsumequeue": {},
    "index": {"20240101000000000": b"new 1"},
}
OLD_FILES = {"checkpoint": b"old checkpoint", "lock": b"lock"}
NEW_FILES = {"checkpoint": b"new checkpoint"}


def write_tree(root, tree) -> None:
    root.mkdir(parents=True)
    for name, content in tree.items():
        if content is None:
            (root / name).mkdir()
        else:
            (root / name).write_bytes(content)


def read_tree(root):
    if root.is_file():
        return root.read_bytes()
    if not root.exists():
        return None
    return {
        str(each.relative_to(root)): None if each.is_dir() else each.read_bytes() for each in sorted(root.rglob("*"))
    }


old = {**OLD, **OLD_FILES}.__getitem__
new = {**NEW, **NEW_FILES}.__getitem__


class Scene:
    def __init__(self, root, names=NAMES, missing=()) -> None:
        self.root = root
        self.store = root / "store"
        self.work = root / "work"
        self.journal = self.work / "publish.msgpack"
        self.names = [name for name in NAMES if name in names]
        self.missing = missing

    def reset(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        for name, tree in OLD.items():
            if name not in self.missing:
                write_tree(self.store / name, tree)
        for name, content in OLD_FILES.items():
            if name not in self.missing:
                (self.store / name).write_bytes(content)
        (self.work / "staged").mkdir(parents=True)
        for name in self.names:
            content = new(name)
            if isinstance(content, bytes):
                (self.work / "staged" / name).write_bytes(content)
            else:
                write_tree(self.work / "staged" / name, content)

    @property
    def staged(self) -> list[Staged]:
        return [Staged(name, self.work / "staged" / name) for name in reversed(self.names)]

    def publish(self, time=TIME, source=""):
        with StoreLock(self.store) as lock:
            return publish(lock, self.staged, self.journal, time, source=source)

    def roll_forward(self, source=""):
        with StoreLock(self.store) as lock:
            return roll_forward(lock, self.journal, source=source)

    def backup(self, name):
        return self.store / f"{name}.bak-{TIME}"

    def assert_published(self) -> None:
        """The new is in its place, the old beside it, everything else is as it was, and no trace of the way is left."""
        for name in {*OLD, *OLD_FILES} - set(self.missing):
            assert read_tree(self.store / name) == (new(name) if name in self.names else old(name)), name
        for name in self.names:
            assert read_tree(self.store / name) == new(name), name
            assert read_tree(self.backup(name)) == (None if name in self.missing else old(name)), name
        self._assert_no_trace(backups=[name for name in self.names if name not in self.missing])
        assert os.listdir(self.work / "staged") == []

    def assert_untouched(self) -> None:
        for name in {*OLD, *OLD_FILES}:
            assert read_tree(self.store / name) == (None if name in self.missing else old(name)), name
        for name in self.names:
            assert read_tree(self.work / "staged" / name) == new(name), name
        self._assert_no_trace(backups=[])
        assert not self.journal.exists()

    def assert_whole(self, *, may_be_missing: bool) -> None:
        for name in self.names:
            found = read_tree(self.store / name)
            if found is None and name not in self.missing:
                assert may_be_missing, name
                assert name != "checkpoint"
                assert read_tree(self.backup(name)) == old(name), name
                assert read_tree(self.store / f"{name}.new-{TIME}") == new(name), name
            else:
                assert found in ([None, new(name)] if name in self.missing else [old(name), new(name)]), name
        for name in {*OLD, *OLD_FILES} - {*self.names, *self.missing}:
            assert read_tree(self.store / name) == old(name), name

    def digest(self) -> str:
        content = {str(path.relative_to(self.root)): read_tree(path) for path in sorted(self.root.rglob("*"))}
        content.pop(str(self.journal.relative_to(self.root)), None)
        return hashlib.sha256(repr(content).encode()).hexdigest()

    def _assert_no_trace(self, backups) -> None:
        expected = {*OLD, *OLD_FILES, *self.names, *(self.backup(name).name for name in backups)}
        expected -= {name for name in self.missing if name not in self.names or not (self.store / name).exists()}
        assert {path.name for path in self.store.iterdir()} == expected | {"lock"}


def look_for_nobody(*_: object) -> tuple[list[str], list[str]]:
    """Find no process that writes to a store: to look at all of them takes longer than to publish a scene."""
    return [], []


def publish_scene(scene: Scene) -> None:
    store_lock.find_writers = look_for_nobody
    if scene.roll_forward() is None:
        scene.publish()


def roll_scene_forward(scene: Scene, source: str = "") -> None:
    store_lock.find_writers = look_for_nobody
    scene.roll_forward(source)


HOLDERS: set[int] = set()
"""The processes that hold a file for a test: to look at them alone takes less than to look at all."""

HOLDER = """
import fcntl, mmap, os, sys
path, how = sys.argv[1:]
if how == "lock":
    descriptor = os.open(path, os.O_RDWR)
    fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, 0)
elif how.startswith("map"):
    descriptor = os.open(path, os.O_RDWR)
    kind = {"map shared": mmap.MAP_SHARED, "map private": mmap.MAP_PRIVATE, "map read": mmap.MAP_SHARED}[how]
    rights = mmap.PROT_READ if how == "map read" else mmap.PROT_READ | mmap.PROT_WRITE
    if how == "map read":
        os.close(descriptor)
        descriptor = os.open(path, os.O_RDONLY)
    area = mmap.mmap(descriptor, 0, kind, rights)
    os.closerange(3, 100)  # the copy that Python keeps too
else:
    descriptor = os.open(path, getattr(os, how))
print("there", flush=True)
sys.stdin.read()
"""


@contextmanager
def holding(path, how):
    """Another process that holds a file: `lock`, `map shared|private|read`, or open with a flag; its id."""
    command = [sys.executable, "-c", HOLDER, str(path), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "there\n"
        HOLDERS.add(process.pid)
        try:
            yield process.pid
        finally:
            HOLDERS.remove(process.pid)
            process.communicate()
