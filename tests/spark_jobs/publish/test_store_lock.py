"""The store's lock, held as a broker holds it, and refused where a broker is at work."""

import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from protocol.errors import StoreError
from publishing import HOLDERS, holding
from read_only import as_nobody, reachable_directory
from spark_jobs.publish import _open_writers, store_lock
from spark_jobs.publish._open_writers import Process
from spark_jobs.publish.store_lock import StoreLock
from storage.store.message_store import MessageStore
from storage.store.store_state import StoreState, read_store_state
from store_writer import StoreWriter

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

TAKER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
try:
    fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[2]))
except OSError:
    print("held")
else:
    print("free")
"""


@pytest.fixture(scope="module", autouse=True)
def nobody_writes():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_open_writers, "_other_processes", lambda: iter(sorted(HOLDERS)))
        yield


@pytest.fixture
def store(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    (root / "index").mkdir(parents=True)
    (root / "index" / "20240101000000000").write_bytes(bytes(40))
    (root / "lock").write_text("lock")
    return root


def asked_by_another(store: Path, byte: int = 0) -> str:
    command = [sys.executable, "-c", TAKER, str(store / "lock"), str(byte)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def held_range(store: Path) -> list[str]:
    """The locks of this process on the file, as the kernel lists them: kind, mode, process, first and last byte."""
    inode = (store / "lock").stat().st_ino
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    own = (line for line in lines if line[5].rsplit(":", 1)[1] == str(inode) and line[4] == str(os.getpid()))
    return [" ".join([line[1], line[3], line[4], *line[6:]]) for line in own]


def test_byte_0_is_locked_from_the_block_to_its_end(store: Path) -> None:
    assert asked_by_another(store) == "free"
    with StoreLock(store):
        assert asked_by_another(store) == "held"
        assert asked_by_another(store, byte=1) == "free"
        assert held_range(store) == [f"POSIX WRITE {os.getpid()} 0 0"]
    assert asked_by_another(store) == "free"
    assert (store / "lock").read_text() == "lock"


def test_a_lock_that_somebody_holds_is_refused_with_the_process(store: Path) -> None:
    with (
        holding(store / "lock", "lock") as pid,
        pytest.raises(StoreError, match=rf"lock: is locked by process {pid} \(\w+.*\), a broker.*--out"),
        StoreLock(store),
    ):
        pytest.fail("locked")
    with StoreLock(store):
        pass


@pytest.mark.parametrize(("how", "name"), [("O_WRONLY", "index/20240101000000000"), ("map shared", "lock")])
def test_a_broker_that_is_still_loading_is_refused_with_the_file(store: Path, how: str, name: str) -> None:
    with holding(store / name, how) as pid:
        with pytest.raises(StoreError, match=rf"{name}: is open for writing by process {pid} \(.*--out"):
            StoreLock(store).__enter__()
        assert asked_by_another(store) == "free"
        with (
            holding(store / name, how),
            pytest.raises(StoreError, match=r"by process \d+ \(.*\) and 1 other process: "),
        ):
            StoreLock(store).__enter__()


def test_the_log_elsewhere_counts_and_our_work_does_not(store: Path, tmp_path: Path) -> None:
    for name in ("log/00000000000000000000", "store/work/file"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("x")
    with holding(store / "work" / "file", "O_RDWR") as pid:
        with StoreLock(store, work=store / "work"):
            pass
        with pytest.raises(StoreError, match=f"store/work/file: is open for writing by process {pid} "):
            StoreLock(store).__enter__()
    with holding(tmp_path / "log" / "00000000000000000000", "O_RDWR") as pid:
        with StoreLock(store):
            pass
        with pytest.raises(StoreError, match=f"0000: is open for writing by process {pid} "):
            StoreLock(store, elsewhere=[tmp_path / "log"]).__enter__()


def test_looking_at_the_stores_state_does_not_drop_the_lock(store: Path) -> None:
    with StoreLock(store):
        assert read_store_state(store) == StoreState(False, False, 0, None)
        assert asked_by_another(store) == "held"
    with holding(store / "lock", "lock") as pid:
        assert read_store_state(store).lock_pid == pid


def test_a_lock_that_was_dropped_is_taken_anew_when_it_is_confirmed(store: Path) -> None:
    with StoreLock(store) as lock:
        (store / "lock").read_bytes()
        assert asked_by_another(store) == "free"
        lock.confirm()
        assert asked_by_another(store) == "held"
        (store / "lock").read_bytes()
        with holding(store / "lock", "lock") as pid, pytest.raises(StoreError, match=f"is locked by process {pid} "):
            lock.confirm()


@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_a_lock_file_that_is_another_now_is_no_lock(store: Path, change: str) -> None:
    with StoreLock(store) as lock:
        (store / "lock").unlink()
        if change == "replaced":
            (store / "lock").write_text("lock")
        with pytest.raises(StoreError, match="lock: was removed or replaced while it was locked"):
            lock.confirm()


def test_a_second_lock_of_the_same_process_leaves_the_first(store: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(store)
    with StoreLock(store):
        for path in (store, tmp_path / "link"):
            with pytest.raises(StoreError, match="lock: is locked by this process already"):
                StoreLock(path).__enter__()
        assert asked_by_another(store) == "held"
    with StoreLock(store):
        pass


@pytest.mark.parametrize("kind", ["directory", "fifo", "nothing there"])
def test_what_cannot_be_locked_is_an_error_that_names_it(store: Path, kind: str) -> None:
    (store / "lock").unlink()
    if kind == "directory":
        (store / "lock").mkdir()
    elif kind == "fifo":
        os.mkfifo(store / "lock")
    else:
        store = store / "nowhere"
    with pytest.raises(StoreError, match=r"lock: (cannot be opened to lock the store: |is not a regular file but a )"):
        StoreLock(store).__enter__()


def test_a_file_system_without_locks_is_an_error_that_names_it(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    with pytest.raises(StoreError, match="lock: cannot be locked: No locks available"):
        StoreLock(store).__enter__()


def test_a_missing_lock_is_made_and_stays(store: Path) -> None:
    (store / "lock").unlink()
    with StoreLock(store):
        assert asked_by_another(store) == "held"
    assert (store / "lock").read_bytes() == b""
    assert stat.S_ISREG((store / "lock").stat().st_mode)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make files another user's")
def test_a_lock_that_is_made_belongs_to_the_stores_owner(store: Path) -> None:
    (store / "lock").unlink()
    os.chown(store, 1234, 4321)
    with StoreLock(store):
        pass
    assert ((store / "lock").stat().st_uid, (store / "lock").stat().st_gid) == (1234, 4321)


@pytest.mark.parametrize("user", [0, 1000])
def test_processes_nobody_may_look_at_are_a_warning(user: int, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock.os, "geteuid", lambda: user)
    unseen = [Process(number, "java") for number in range(7)]
    monkeypatch.setattr(store_lock, "find_writers", lambda *_: ([], unseen))
    told: list[str] = []
    with StoreLock(store, warn=told.append) as lock:
        lock.confirm()
    assert told == [
        "7 processes of other users may not be examined (0 (java), 1 (java), 2 (java), 3 (java), 4 (java), …): make "
        f"sure that none of them is a broker that is starting on {store}" + (", or run this as root" if user else "")
    ]


def test_opening_the_store_does_not_drop_the_lock(tmp_path: Path) -> None:
    with StoreWriter(tmp_path) as writer:
        writer.append("T", b"x", keys="k")
    with StoreLock(tmp_path):
        MessageStore.open(tmp_path).refresh()
        assert asked_by_another(tmp_path) == "held"


def test_the_identity_changes_when_a_broker_has_written(store: Path) -> None:
    with StoreLock(store) as lock:
        before = lock.identity
        os.utime(store / "lock", ns=(0, (store / "lock").stat().st_mtime_ns))
        assert lock.identity == before
        (store / "lock").chmod(0o600)
        assert lock.identity == before
    status = (store / "lock").stat()
    os.utime(store / "lock", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with StoreLock(store) as lock:
        assert lock.identity != before


@pytest.mark.parametrize("missing", [False, True])
def test_a_store_that_may_not_be_written_to_is_an_error_that_names_the_lock(missing: bool) -> None:
    with reachable_directory() as directory:
        if not missing:
            (directory / "lock").write_text("lock")
            (directory / "lock").chmod(0o444)
        directory.chmod(0o555)

        def take() -> str:
            with StoreLock(directory):
                return "taken"

        told = as_nobody(take)
    assert told == f"StoreError: {directory}/lock: cannot be opened to lock the store: Permission denied"
