"""`rocketlens tail`: the newest messages, and those that come while a store grows."""

import contextlib
import json
import signal
import subprocess
import sys
import threading

import pytest

from broker.service import following_threads
from broker_harness import service_of, serving_in_a_thread
from command_line import rocketlens
from growing_store import GrowingStore
from oracles import read_log
from rocketlens import connect, following, remote_following
from storage.store.message_store import MessageStore

DEADLINE_SECONDS = 60
COMING = 20


@pytest.fixture(scope="module")
def stored(g1_store):
    records = [record for record in read_log(g1_store / "commitlog") if record.topic == "TopicTest"]
    assert len(records) > 50
    return records


def tail(where, *arguments):
    return rocketlens("tail", *where, "--topic", "TopicTest", *arguments, "--json")


def offsets(outcome) -> list[int]:
    assert outcome.code == 0, outcome.errors
    return [each["physicalOffset"] for each in outcome.messages]


@pytest.mark.parametrize("count", [7, 1000])
def test_the_newest_are_those_at_the_end_of_the_log(where, stored, count) -> None:
    assert offsets(tail(where, "-n", count)) == [record.physical_offset for record in stored[-count:]]


def test_times_narrow_what_is_listed(where, stored) -> None:
    times = sorted(record.store_timestamp for record in stored)
    first, last = times[len(times) // 3], times[len(times) // 2]
    expected = [record.physical_offset for record in stored if first <= record.store_timestamp <= last]
    assert offsets(tail(where, "-n", 1000, "--since", first, "--until", last)) == expected
    assert offsets(tail(where, "-n", 2, "--until", last)) == expected[-2:]
    outcome = tail(where, "--since", times[-1] + 1)
    said = "no message of topic TopicTest is there and was stored in this time"
    assert (outcome.code, said in outcome.errors) == (1, True)
    assert tail(where, "--follow", "--until", last).code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("STORE",), "expected SOURCE and TOPIC"),
        (("STORE", "--topic", "TopicTest", "--tag", "a", "--where", "a = 1"), "tag and sql exclude each other"),
        (("STORE", "--topic", "TopicTest", "--where", "a >"), "expected a property or a value"),
        (("--topic", "TopicTest"), "expected one SOURCE"),
    ],
)
def test_wrong_usage_is_code_2(g1_store, arguments, says) -> None:
    outcome = rocketlens("tail", *(each.replace("STORE", str(g1_store)) for each in arguments))
    assert (outcome.code, outcome.output) == (2, b"")
    assert says in outcome.errors


class Follower:
    def __init__(self, *arguments: object) -> None:
        command = [sys.executable, "-m", "rocketlens", "tail", *map(str, arguments), "--follow", "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.deadline = threading.Timer(DEADLINE_SECONDS, self.process.kill)
        self.deadline.start()

    def next(self) -> dict[str, object]:
        line = self.process.stdout.readline()
        assert line, self.process.stderr and self.process.stderr.read()
        found: dict[str, object] = json.loads(line)
        return found

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()
        self.deadline.cancel()
        return self.process.returncode


def follow_what_comes(growing: GrowingStore, follower: Follower) -> int:
    """Write messages one by one; how many were printed, each before the next one was written."""
    printed = 0
    for number in range(1, COMING):
        written = growing.add(body=f"coming {number}".encode(), tags="x" if number % 2 else "y")
        growing.flush()
        if number % 2:
            found = follower.next()
            assert (found["physicalOffset"], found["body"]) == (written.physical_offset, f"coming {number}")
            printed += 1
    return printed


@pytest.fixture
def growing(tmp_path) -> GrowingStore:
    growing = GrowingStore(tmp_path / "store", segment_size=64 * 1024)
    for tag in ("x", "y", "x"):
        growing.add(body=b"before", tags=tag)
    growing.flush()
    return growing


@pytest.mark.parametrize("by", ["store", pytest.param("server", marks=pytest.mark.soak)])
def test_what_comes_is_printed_at_once_and_in_order(growing: GrowingStore, by: str) -> None:
    with contextlib.ExitStack() as stack:
        where: tuple[object, ...] = (growing.root,)
        if by == "server":
            served = service_of(MessageStore.open(growing.root))
            where = ("--server", stack.enter_context(serving_in_a_thread(served)))
        follower = Follower(*where, "--topic", "T", "--tag", "x", "-n", 1)
        try:
            assert follower.next()["body"] == "before"
            assert follow_what_comes(growing, follower) == COMING // 2
        finally:
            assert follower.stop() == 130


def test_what_comes_to_a_broker_is_found_by_a_pull_that_waits(growing, monkeypatch) -> None:
    """No pull comes back for another reason than a message: each is held longer than the test may take."""
    asked: list[int] = []
    ask = remote_following.RemoteFollowing._ask

    def ask_and_count(self, queue_id, *rest) -> None:
        asked.append(queue_id)
        ask(self, queue_id, *rest)

    assert following_threads.POLL_SECONDS <= following.POLL_SECONDS
    for module in (remote_following, following_threads):
        monkeypatch.setattr(module, "WATCH_SECONDS", 3600.0)
    monkeypatch.setattr(remote_following, "SUSPENDED_MILLISECONDS", DEADLINE_SECONDS * 1000)
    monkeypatch.setattr(remote_following.RemoteFollowing, "_ask", ask_and_count)
    served = service_of(MessageStore.open(growing.root))
    with serving_in_a_thread(served) as endpoint, connect(str(endpoint)) as remote:
        pieces = remote.follow("T", {0: 3}, tag="x")
        for number in range(COMING):
            growing.add(body=f"coming {number}".encode(), tags="x")
            growing.flush()
            assert [message.body for message in next(pieces)] == [f"coming {number}".encode()]
        del pieces  # which gives up the pull that waits
    assert asked.count(0) == COMING + 1
