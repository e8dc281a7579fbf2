"""Proof that a store is only read: sealed copies, programs under guard, state before and after; being another user."""

import contextlib
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from read_only_guard import NOBODY, become_nobody

ROOT = Path(__file__).parents[2]
GUARD = Path(__file__).with_name("read_only_guard.py")


@dataclass(frozen=True)
class State:
    """What must not change of one file or directory; `content` is a checksum, a link's target, or names."""

    mode: int
    owner: tuple[int, int]
    size: int
    modified_ns: int
    changed_ns: int
    inode: int
    content: str


def state_of(root: Path) -> dict[str, State]:
    return {str(path.relative_to(root)): _state(path) for path in [root, *sorted(root.rglob("*"))]}


def _state(path: Path) -> State:
    status = path.lstat()
    if path.is_symlink():
        content = os.readlink(path)
    elif path.is_dir():
        content = "\n".join(sorted(os.listdir(path)))
    else:
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    owner = (status.st_uid, status.st_gid)
    return State(status.st_mode, owner, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, content)


def seal(root: Path) -> None:
    for path in sorted(root.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    root.chmod(0o555)


@contextlib.contextmanager
def reachable_directory():
    """A new directory that nobody else than its owner may write to and everybody may enter; removed at the end.

    Not pytest's own, which its owner alone may enter.
    """
    for parent in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):
        if all(path.stat().st_mode & stat.S_IXOTH for path in [Path(parent), *Path(parent).parents]):
            break
    directory = Path(tempfile.mkdtemp(prefix="rocketlens-read-only-", dir=parent))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        for path in [directory, *directory.rglob("*")]:
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o755)
        shutil.rmtree(directory)


@contextlib.contextmanager
def sealed_copy(store):
    with reachable_directory() as directory:
        shutil.copytree(store, directory / "store", symlinks=True)
        seal(directory / "store")
        yield directory / "store"


def state_directory_beside(store: Path) -> Path:
    directory = store.with_name("state")
    directory.mkdir(mode=0o700)
    if os.getuid() == 0:
        os.chown(directory, NOBODY, NOBODY)
    return directory


def guarded(store: Path, report: Path, program: str, *arguments: str) -> list[str]:
    """The command that runs `main()` of a module under guard; see `read_only_guard`."""
    return [sys.executable, str(GUARD), str(store), str(report), program, *arguments]


def environment(**more):
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")]), **more}


def run_guarded(store: Path, program: str, *arguments: str) -> tuple["subprocess.CompletedProcess[str]", list[str]]:
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory, "report")
        done = subprocess.run(
            guarded(store, report, program, *arguments),
            env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        return done, attempts(report)


def attempts(report: Path) -> list[str]:
    return report.read_text().splitlines() if report.exists() else []


def difference(before, after):
    paths = before.keys() | after.keys()
    return {path: (before.get(path), after.get(path)) for path in paths if before.get(path) != after.get(path)}


def as_nobody(function):
    """What a function returns or raises (type and text) for somebody who is not root; in a child where root asks."""
    if os.getuid() != 0:
        return _outcome(function)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            become_nobody()
            os.write(writer, _outcome(function).encode()[:60_000])
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:
        text = answer.read().decode()
    os.waitpid(child, 0)
    return text


def _outcome(function):
    try:
        return function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def as_user(uid=NOBODY):
    """Run a block as another user, in no group but one of its number; only root becomes one.

    It is the whole process that does, with all its threads, and it can go back. What that user is to reach lies in a
    `read_only.reachable_directory`.
    """
    if os.geteuid():
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups([])
    os.setegid(uid)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)
