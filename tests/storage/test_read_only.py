"""What lies in a store that may not be read, or not be written to: it is named, and stays as it is."""

import json
import os
import subprocess
import sys

import pytest

import read_only
from protocol import errors
from protocol.question import Question
from storage.store.message_store import MessageStore
from store_tour import tour
from store_writer import StoreWriter


@pytest.mark.parametrize("name", ["g1_crashed_store", pytest.param("g1_store", marks=pytest.mark.soak)])
def test_reading_everything_of_a_sealed_store_changes_nothing(name: str, request: pytest.FixtureRequest) -> None:
    with read_only.sealed_copy(request.getfixturevalue(name)) as store:
        before = read_only.state_of(store)
        assert {state.mode & 0o222 for state in before.values()} == {0}
        done, attempts = read_only.run_guarded(
            store, "store_tour", str(store), str(read_only.state_directory_beside(store))
        )
        assert attempts == []
        assert done.returncode == 0, done.stderr[-4000:]
        assert done.stdout.startswith("read ")
        assert int(done.stdout.split()[1]) > 300
        assert read_only.difference(before, read_only.state_of(store)) == {}


WRITES = {
    "open": "open(file, 'r+b').close()",
    "append": "open(file, 'ab').close()",
    "new file": "open(store / 'new', 'wb').close()",
    "os.open": "os.close(os.open(file, os.O_RDWR))",
    "create": "os.close(os.open(store / 'lock2', os.O_RDONLY | os.O_CREAT))",
    "pathlib": "file.write_bytes(b'')",
    "remove": "file.unlink()",
    "rename": "file.rename(file.with_name('other'))",
    "replace from outside": "os.replace(outside, file)",
    "mkdir": "(store / 'new').mkdir()",
    "rmdir": "(store / 'empty').rmdir()",
    "truncate": "os.truncate(file, 0)",
    "touch": "os.utime(file)",
    "chmod": "file.chmod(0o600)",
    "link": "os.link(outside, store / 'hard')",
    "symlink": "os.symlink(outside, store / 'soft')",
    "temporary file": "tempfile.NamedTemporaryFile(dir=store).close()",
    "through a link": "open(link, 'r+b').close()",
    "through a descriptor": "os.chmod(os.open(file, os.O_RDONLY), 0o600)",
}
LOCKS = {
    "record lock": "fcntl.lockf(os.open(file, os.O_RDONLY), fcntl.LOCK_SH)",
    "lock of a whole file": "fcntl.flock(os.open(file, os.O_RDONLY), fcntl.LOCK_SH)",
    "lock by command": "fcntl.fcntl(os.open(file, os.O_RDONLY), fcntl.F_SETLK, struct.pack('hhqqi4x', 0, 0, 0, 1, 0))",
    "map": "mmap.mmap(os.open(file, os.O_RDONLY), 0, access=mmap.ACCESS_COPY)",
}

READS = {
    "read": "open(file, 'rb').read()",
    "os.open to read": "os.close(os.open(file, os.O_RDONLY))",
    "list": "os.listdir(store)",
    "stat": "file.stat()",
    "map to read": "mmap.mmap(os.open(file, os.O_RDONLY), 0, access=mmap.ACCESS_READ)",
    "open outside": "open(outside, 'r+b').close()",
    "ask for a lock": "fcntl.fcntl(os.open(file, os.O_RDONLY), fcntl.F_GETLK, struct.pack('hhqqi4x', 1, 0, 0, 1, 0))",
    "mkdir outside": "os.mkdir(str(store) + '-beside')",
}
PROGRAM = """
import fcntl, json, mmap, os, struct, sys, tempfile
from pathlib import Path
import read_only_guard
store, outside = map(Path, sys.argv[1:3])
file, link = store / "commitlog" / f"{0:020d}", outside.with_name("link")
statements = json.loads(sys.argv[3])
sys.addaudithook(read_only_guard.watch(str(store), os.open(outside.with_name("report"), os.O_WRONLY | os.O_CREAT)))
for name, statement in statements.items():
    try:
        exec(statement)
    except PermissionError as error:
        print(f"{name}: {error}")
"""


class TestTheTest:
    """What it is to notice is planted, in a store that could be written to."""

    @pytest.fixture
    def store(self, tmp_path):
        with StoreWriter(tmp_path / "store", segment_size=4096) as writer:
            writer.append("T", b"x", keys="k")
        (writer.root / "empty").mkdir()
        (tmp_path / "outside").write_bytes(b"outside")
        (tmp_path / "link").symlink_to(writer.root / "commitlog" / f"{0:020d}")
        return writer.root

    def test_the_guard_notes_and_refuses_what_writes_and_locks_and_nothing_else(self, store) -> None:
        refused = WRITES | LOCKS
        before = read_only.state_of(store)
        arguments = [str(store), str(store.parent / "outside"), json.dumps(refused | READS)]
        done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], env=read_only.environment(),
                              capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        noted = [line.partition(": ") for line in done.stdout.splitlines()]
        assert [name for name, _, _ in noted] == list(refused)
        assert all("the store is only read" in said for _, _, said in noted)
        assert (store.parent / "report").read_text().count("\n") == len(refused)
        assert read_only.difference(before, read_only.state_of(store)) == {}

    @pytest.mark.parametrize("name", ["new file", "remove", "mkdir", "touch", "chmod", "link"])
    def test_the_comparison_notices_without_a_guard(self, store, name) -> None:
        before, names = read_only.state_of(store), {"os": os, "store": store, "outside": store.parent / "outside"}
        exec(WRITES[name], names | {"file": store / "commitlog" / f"{0:020d}"})
        assert read_only.difference(before, read_only.state_of(store)) != {}

    def test_a_guarded_program_has_no_right_to_write(self, g1_store) -> None:
        """The system refuses too, be it root that runs the tests: the program runs as nobody."""
        with read_only.sealed_copy(g1_store) as store:
            before = read_only.state_of(store)
            code = (
                f"import sys; sys.path.insert(0, {str(read_only.GUARD.parent)!r}); import read_only_guard, os; "
                "read_only_guard.become_nobody(); print(os.getuid()); "
                "os.close(os.open(sys.argv[1] + '/checkpoint', os.O_RDWR))"
            )
            command = [sys.executable, "-c", code, str(store)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert done.stdout.strip() not in ("", "0")
            assert "PermissionError" in done.stderr
            assert read_only.difference(before, read_only.state_of(store)) == {}


pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
"""Python warns of forking a process with threads; the child does nothing that another thread could have locked."""

SEGMENT = 1024


def written(root, count=30):
    with StoreWriter(root, segment_size=SEGMENT, index_slots=7, index_entries=24) as writer:
        for number in range(count):
            writer.append("T", b"x", keys="k", unique_key=f"u{number}", tags="t", queue_id=number % 2)
    return writer


def look_at(root):
    store = MessageStore.open(root)
    tour(store)
    found = store.query(Question("T", "k"))
    return "\n".join([f"found {found.count}, {found.incomplete or 'all'}", *store.problems])


@pytest.mark.parametrize("mode", [0o000, *(pytest.param(mode, marks=pytest.mark.soak) for mode in (0o444, 0o111))])
def test_whatever_may_not_be_read_is_refused_or_missed(mode: int) -> None:
    with read_only.reachable_directory() as directory:
        root = written(directory / "store", 12).root
        outcomes = {}
        for path in [root, *sorted(root.rglob("*"))]:
            was = path.stat().st_mode
            if mode == 0o444 and not path.is_dir():
                continue
            path.chmod(mode)
            outcomes[str(path.relative_to(root))] = read_only.as_nobody(lambda: look_at(root))
            path.chmod(was)
    for path, outcome in outcomes.items():
        kind = outcome.split(":")[0]
        assert outcome.startswith("found ") or issubclass(getattr(errors, kind, type(None)), errors.StoreError), (
            path,
            outcome,
        )
    assert outcomes["."].startswith("NotAStore")
    assert outcomes["commitlog"].startswith(("NotAStore", "StoreError"))


def test_a_segment_that_may_not_be_read_is_named_and_served_without() -> None:
    with read_only.reachable_directory() as directory:
        writer = written(directory / "store")
        path = writer.root / "commitlog" / f"{SEGMENT:020d}"
        lost = [w for w in writer.written if SEGMENT <= w.physical_offset < 2 * SEGMENT]
        path.chmod(0)
        outcome = read_only.as_nobody(lambda: look_at(writer.root)).splitlines()
    assert outcome[0].startswith(f"found {len(writer.written) - len(lost)}, ")
    assert outcome[0].endswith(f"segment {path.name} cannot be read")
    assert f"{path}: cannot be opened: Permission denied; it is served without" in outcome
    assert f"hole in the log: no segment holds physical offsets {SEGMENT} to {2 * SEGMENT}" in outcome


def test_an_index_that_may_not_be_read_hides_nothing() -> None:
    with read_only.reachable_directory() as directory:
        writer = written(directory / "store")
        path = writer.index_paths()[0]
        path.chmod(0)
        one = read_only.as_nobody(lambda: look_at(writer.root)).splitlines()
        path.parent.chmod(0)
        none = read_only.as_nobody(lambda: look_at(writer.root)).splitlines()
        path.parent.chmod(0o755)
    found = f"found {len(writer.written)}, all"
    assert one == [found, f"{path}: cannot be opened: Permission denied; its range is scanned from the log"]
    assert none == [found, f"{path.parent} cannot be listed: Permission denied; every key is looked for in the log"]
