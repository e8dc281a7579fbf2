"""Whether a broker runs on a store, whether it crashed, what it was called, and where our state of it is kept."""

import shutil
import subprocess
import sys

import pytest

from storage.layout.store_config import StoreConfig
from storage.store.file_sizes import file_sizes
from storage.store.message_store import MessageStore
from storage.store.state_place import default_state_directory
from storage.store.store_state import StoreIdentity, StoreState, infer_identity, read_store_state
from store_writer import StoreWriter

LOCKER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, 0)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def locked_store(tmp_path):
    (tmp_path / "lock").write_text("lock")
    command = [sys.executable, "-c", LOCKER, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        yield tmp_path, process.pid
        process.communicate()


def test_a_held_lock_is_seen_and_not_taken(locked_store) -> None:
    root, pid = locked_store
    (root / "abort").write_text("4711")
    for _ in range(2):
        state = read_store_state(root)
        assert state == StoreState(abort=True, lock_held=True, lock_pid=pid, broker_pid=4711)
    assert state.is_live
    assert not state.has_crashed


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
def test_a_store_that_nobody_holds(files, expected, tmp_path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    state = read_store_state(tmp_path)
    assert state == expected
    assert state.has_crashed == state.abort


def topics(*configs: tuple[str, int, int]) -> dict[str, object]:
    return {
        "topicConfigTable": {
            name: {"topicName": name, "perm": perm, "readQueueNums": queues, "writeQueueNums": queues}
            for name, perm, queues in configs
        }
    }


def identity(root, *configs, log=None):
    StoreWriter(root).write_config("topics.json", topics(*configs))
    return infer_identity(StoreConfig.load(root), log)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ([("rmq_sys_REVIVE_LOG_east", 6, 8), ("rmq_sys_SYNC_BROKER_MEMBER_b 7", 1, 1)], StoreIdentity("east", "b 7")),
        ([("west", 7, 16), ("broker-9", 7, 1), ("T", 6, 1), ("TBW102x", 7, 8)], StoreIdentity("west", "broker-9")),
        ([("south_REPLY_TOPIC", 6, 1), ("one", 7, 16), ("o", 7, 16)], StoreIdentity("south", "broker-a")),
    ],
)
def test_topics_that_a_broker_makes_name_it(tmp_path, made, expected) -> None:
    assert identity(tmp_path, *made) == expected


@pytest.mark.parametrize("is_new", [True, False], ids=["5.x", "4.x"])
def test_of_several_names_the_last_is_taken_and_all_are_said(is_new, tmp_path) -> None:
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


IDENTITY = StoreIdentity("DefaultCluster", "broker-a")


def test_the_default_lies_below_the_users_state_directory(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = default_state_directory(tmp_path / "store", IDENTITY)
    assert path.parent == tmp_path / "rocketlens"
    assert path.name.startswith("DefaultCluster-broker-a-")
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = default_state_directory(tmp_path / "store", IDENTITY)
    assert path.parent == tmp_path / "home" / ".local" / "state" / "rocketlens"


def test_names_of_the_store_cannot_lead_elsewhere(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = default_state_directory(tmp_path, StoreIdentity("../../etc", "x" * 5000))
    assert path.parent == tmp_path / "rocketlens"
    assert len(path.name) < 200


def sizes_of(root):
    return file_sizes(MessageStore.open(root).snapshot)


def test_the_recorded_store_has_the_sizes_that_its_broker_was_given(g1_store) -> None:
    assert sizes_of(g1_store) == {
        "mappedFileSizeCommitLog": 131072,
        "mappedFileSizeConsumeQueue": 2000,
        "maxHashSlotNum": 97,
        "maxIndexNum": 150,
    }


def test_what_is_not_there_has_no_size(tmp_path) -> None:
    writer = StoreWriter(tmp_path, segment_size=4096)
    writer.append("T", b"alone")
    writer.close()
    for tree in ("consumequeue", "index"):
        shutil.rmtree(tmp_path / tree)
    assert sizes_of(tmp_path) == {"mappedFileSizeCommitLog": 4096}
