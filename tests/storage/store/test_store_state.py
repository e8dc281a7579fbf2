"""Whether a broker runs on a store, whether it crashed, and what it was called."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.layout.store_config import StoreConfig
from storage.log.commit_log import CommitLog
from storage.store.store_state import StoreIdentity, StoreState, infer_identity, read_store_state
from store_writer import StoreWriter

LOCKER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(descriptor, getattr(fcntl, sys.argv[2]), 1, 0)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["LOCK_EX"])
def locked_store(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[tuple[Path, int]]:
    """A store whose `lock` another process holds as a broker does, and that process's id."""
    (tmp_path / "lock").write_text("lock")
    command = [sys.executable, "-c", LOCKER, str(tmp_path / "lock"), request.param]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield tmp_path, process.pid
        process.communicate()


def test_a_held_lock_is_seen_and_not_taken(locked_store: tuple[Path, int]) -> None:
    root, pid = locked_store
    (root / "abort").write_text("4711")
    for _ in range(2):
        state = read_store_state(root)
        assert state == StoreState(abort=True, lock_held=True, lock_pid=pid, broker_pid=4711)
    assert state.is_live
    assert not state.has_crashed


def test_asking_leaves_the_lock_to_others(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("lock")
    assert not read_store_state(tmp_path).lock_held
    command = [sys.executable, "-c", LOCKER.replace("LOCK_EX", "LOCK_EX | fcntl.LOCK_NB"), str(tmp_path / "lock")]
    result = subprocess.run([*command, "LOCK_EX"], input="", capture_output=True, text=True, check=True)
    assert result.stdout == "locked\n"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, StoreState(False, False, 0, None)),
        ({"lock": "lock"}, StoreState(False, False, 0, None)),
        ({"lock": "lock", "abort": "17\n"}, StoreState(True, False, 0, 17)),
        ({"abort": ""}, StoreState(True, False, 0, None)),
        ({"abort": "no number"}, StoreState(True, False, 0, None)),
        ({"abort": "9" * 5000}, StoreState(True, False, 0, None)),
    ],
)
def test_a_store_that_nobody_holds(files: dict[str, str], expected: StoreState, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    state = read_store_state(tmp_path)
    assert state == expected
    assert state.has_crashed == state.abort


# --- identity ---------------------------------------------------------------------------------------------------------


def topics(*configs: tuple[str, int, int]) -> dict[str, object]:
    return {
        "topicConfigTable": {
            name: {"topicName": name, "perm": perm, "readQueueNums": queues, "writeQueueNums": queues}
            for name, perm, queues in configs
        }
    }


def identity(root: Path, *configs: tuple[str, int, int], log: CommitLog | None = None) -> StoreIdentity:
    StoreWriter(root).write_config("topics.json", topics(*configs))
    return infer_identity(StoreConfig.load(root), log)


def test_the_recorded_store_names_its_broker(g1_store: Path) -> None:
    expected = StoreIdentity("DefaultCluster", "broker-a")
    assert infer_identity(StoreConfig.load(g1_store)) == expected
    assert infer_identity(StoreConfig.load(g1_store), CommitLog.open([g1_store / "commitlog"])) == expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        pytest.param(
            [("rmq_sys_REVIVE_LOG_east", 6, 8), ("rmq_sys_SYNC_BROKER_MEMBER_b 7", 1, 1), ("T", 6, 4)],
            StoreIdentity("east", "b 7"),
            id="today's",
        ),
        pytest.param(
            [("west", 7, 16), ("broker-9", 7, 1), ("TBW102", 7, 8), ("T", 6, 1), ("U", 6, 16), ("TBW102x", 7, 8)],
            StoreIdentity("west", "broker-9"),
            id="older",
        ),
        pytest.param(
            [("south_REPLY_TOPIC", 6, 1), ("one", 7, 16), ("other", 7, 16)],
            StoreIdentity("south", "broker-a"),
            id="the reply topic",
        ),
    ],
)
def test_topics_that_a_broker_makes_name_it(
    tmp_path: Path, made: list[tuple[str, int, int]], expected: StoreIdentity
) -> None:
    assert identity(tmp_path, *made) == expected


@pytest.mark.parametrize("is_ledger", [False, True])
def test_without_topics_the_records_name_the_cluster(tmp_path: Path, is_ledger: bool) -> None:
    writer = StoreWriter(tmp_path, is_ledger=is_ledger)
    writer.append("T", b"")
    writer.append("T", b"", properties={"CLUSTER": "north"})
    found = infer_identity(StoreConfig.load(tmp_path), CommitLog.open(writer.log.directories))
    assert found == StoreIdentity("north", "broker-a")


def test_a_store_that_says_nothing_gets_a_brokers_defaults(tmp_path: Path) -> None:
    assert infer_identity(StoreConfig.load(tmp_path)) == StoreIdentity("DefaultCluster", "broker-a")
    writer = StoreWriter(tmp_path)
    for _ in range(100):
        writer.append("T", b"")
    log = CommitLog.open([tmp_path / "commitlog"])
    assert infer_identity(StoreConfig.load(tmp_path), log) == StoreIdentity("DefaultCluster", "broker-a")
    assert infer_identity(StoreConfig.load(tmp_path), CommitLog([], [])) == StoreIdentity("DefaultCluster", "broker-a")


@pytest.mark.parametrize("is_new", [True, False], ids=["5.x", "4.x"])
def test_of_several_names_the_last_is_taken_and_all_are_said(is_new: bool, tmp_path: Path) -> None:
    prefix, cluster = ("rmq_sys_SYNC_BROKER_MEMBER_", "rmq_sys_REVIVE_LOG_") if is_new else ("", "")
    found = identity(
        tmp_path,
        *((f"{prefix}{name}", 7, 1) for name in ("old", "new")),
        *((f"{cluster}{name}", 7, 16) for name in "ab"),
    )
    assert (found.broker_name, found.cluster) == ("new", "b")
    assert ["old, new" in each or "a, b" in each for each in found.ambiguities] == [True, True]
    assert "--cluster" in found.ambiguities[0]
    assert "--broker-name" in found.ambiguities[1]
    one = identity(tmp_path, ("rmq_sys_SYNC_BROKER_MEMBER_new", 6, 1), ("x", 7, 1), ("y", 7, 1), ("c", 7, 16))
    assert one == StoreIdentity("c", "new")
