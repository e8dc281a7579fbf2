"""A running server sees what a broker appends, new files and directories that are exchanged, without being told."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator, Set
from pathlib import Path
from typing import TypeVar

import pytest

from blocking_client import eventually
from broker.service.following_threads import FollowingThreads
from draining import pull_of
from interop.wire import Frame, ask
from process import rocketlens_serving
from protocol.errors import StoreError
from storage.store._refresh import Arrivals
from store_writer import StoreWriter

VIEW_MESSAGE_BY_ID, QUERY_MESSAGE, PULL_MESSAGE = 33, 12, 11
TOPIC = "TopicTest"
SIZES = {"segment_size": 4096, "index_slots": 7, "index_entries": 40, "queue_file_size": 400}
IN_ONE_PROCESS = ("--workers", "0")

Address = tuple[str, int]
Found = TypeVar("Found")


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    """A store with a few messages, whose broker goes on writing in the test's hands."""
    writer = StoreWriter(tmp_path / "store", **SIZES)  # type: ignore[arg-type]
    writer.set_topic(TOPIC)
    for number in range(5):
        writer.append(TOPIC, b"old", keys=f"old-{number}", tags="TagA")
    writer.flush()
    return writer


@pytest.fixture
def server(writer: StoreWriter, tmp_path: Path) -> Iterator[Address]:
    with rocketlens_serving(writer.root, tmp_path, *IN_ONE_PROCESS) as address:
        yield address


def query(address: Address, key: str) -> Frame:
    fields = {"topic": TOPIC, "key": key, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(2**63 - 1)}
    return ask(address, QUERY_MESSAGE, fields)


def pull(address: Address, queue_offset: int, *, hold_ms: int = 0, timeout_seconds: float = 60.0) -> Frame:
    fields = pull_of(TOPIC, 0, queue_offset, sysFlag=6 if hold_ms else 4, suspendTimeoutMillis=hold_ms)
    return ask(address, PULL_MESSAGE, fields, timeout_seconds=timeout_seconds)


def test_new_messages_are_answered_by_offset_key_and_pull(writer: StoreWriter, server: Address) -> None:
    for number in range(30):  # over several segments, index files and queue files
        written = writer.append(TOPIC, b"new", keys=f"new-{number}", tags="TagA")
        writer.flush()
        view = {"offset": str(written.physical_offset)}
        eventually(
            lambda view=view, written=written: ask(server, VIEW_MESSAGE_BY_ID, view).body == written.record,
            f"message {number} by offset",
        )
        eventually(lambda n=number, w=written: query(server, f"new-{n}").body == w.record, f"message {number} by key")
        eventually(lambda w=written: pull(server, w.queue_offset).body == w.record, f"message {number} by pull")


@pytest.mark.parametrize("kept", [0, 20_000])
def test_an_idle_server_survives_a_log_that_is_cut_under_its_map(tmp_path: Path, kept: int) -> None:
    """Its end is looked at by reading: a look at the map would be answered with SIGBUS."""
    writer = StoreWriter(tmp_path / "store", **{**SIZES, "segment_size": 65536})  # type: ignore[arg-type]
    for number in range(100):
        writer.append(TOPIC, b"z" * 400, keys=f"cut-{number}")
    writer.flush()
    segment = writer.root / "commitlog" / f"{0:020d}"
    with rocketlens_serving(writer.root, tmp_path, *IN_ONE_PROCESS) as server:
        process = server_process(server)
        os.truncate(segment, kept)
        eventually(lambda: mapped_bytes(process, segment) == -(-kept // 4096) * 4096, "the segment to be mapped anew")
        for written in (writer.written[0], writer.written[30], writer.written[-1]):
            is_left = written.physical_offset + written.size <= kept
            answer = ask(server, VIEW_MESSAGE_BY_ID, {"offset": str(written.physical_offset)})
            assert (answer.code == 0, bytes(answer.body)) == (is_left, written.record if is_left else b"")
        if kept % 8192:
            said = "the log ends at physical offset"
            eventually(lambda: said in (tmp_path / "stderr").read_text(), "the place of the damage to be told")


class FakeStore:
    """What a follower finds in each look, in turn; then nothing more."""

    def __init__(self, polls: Iterable[Arrivals | Exception | None] = (), watches: Iterable[bool | Exception] = ()):
        self._polls, self._watches = iter(polls), iter(watches)
        self.problems: list[str] = ["known"]
        self.polled, self.watched = threading.Event(), threading.Event()
        """Whether all was found."""

    def follower(self) -> "FakeStore":
        return self

    def poll(self) -> Arrivals | None:
        return self._next(self._polls, None, self.polled)

    def rest(self, seconds: float) -> None:
        threading.Event().wait(seconds)

    def watch(self) -> bool:
        return self._next(self._watches, False, self.watched)

    def _next(self, found: Iterator[Found | Exception], otherwise: Found, is_all: threading.Event) -> Found:
        try:
            step = next(found)
        except StopIteration:
            is_all.set()
            return otherwise
        if isinstance(step, Exception):
            raise step
        return step


class FakePolls:
    def __init__(self) -> None:
        self.woken: list[Set[tuple[str, int]] | None] = []

    def wake(self, queues: Set[tuple[str, int]] | None) -> None:
        self.woken.append(queues)


@contextlib.contextmanager
def following(store: FakeStore, finish_scan: Callable[[], None] = lambda: None) -> Iterator[FakePolls]:
    polls = FakePolls()
    follower = FollowingThreads(store, polls, finish_scan)  # type: ignore[arg-type]
    before = set(threading.enumerate())
    follower.start()
    threads = set(threading.enumerate()) - before
    try:
        yield polls
        assert {thread.name for thread in threads} == {"follow", "watch"}
        assert all(thread.daemon for thread in threads)
    finally:
        follower.stop()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


class TestThreads:
    @pytest.fixture(autouse=True)
    def hurried(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("POLL_SECONDS", "WATCH_SECONDS", "AFTER_ERROR_SECONDS"):
            monkeypatch.setattr(f"broker.service.following_threads.{name}", 0.001)

    def test_the_pulls_of_queues_that_got_messages_are_woken(self) -> None:
        found = [None, Arrivals({("T", 1)}), None, Arrivals(None)]
        with following(store := FakeStore(found)) as polls:
            assert store.polled.wait(60)
        assert polls.woken == [{("T", 1)}, None]

    def test_where_more_is_to_be_taken_in_there_is_no_pause(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("broker.service.following_threads.POLL_SECONDS", 0.5)
        found = [Arrivals({("T", number)}, more=True) for number in range(1000)]
        with following(store := FakeStore(found)) as polls:
            assert store.polled.wait(60), "1,000 pauses would take eight minutes"
        assert len(polls.woken) == 1000

    def test_what_a_change_leaves_to_be_scanned_is_scanned(self) -> None:
        scans: list[int] = []
        with following(store := FakeStore(watches=[True, False, True]), lambda: scans.append(1)):
            assert store.watched.wait(60)
        assert len(scans) == 2

    def test_a_problem_that_comes_is_told_once_and_told_again_when_it_comes_again(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        def change(*problems: str) -> Callable[[], None]:
            return lambda: setattr(store, "problems", list(problems))

        changes = [change("known", "new"), change("known", "new"), change("new"), change("known", "new")]
        following_changes = iter([*changes, change("known", "new")])
        with following(store := FakeStore(watches=[True] * 5), lambda: next(following_changes)()):
            assert store.watched.wait(60)
        assert [record.getMessage() for record in caplog.records] == ["new", "known"]

    @pytest.mark.parametrize("which", ["polls", "watches"])
    def test_an_error_is_told_once_and_following_goes_on(self, caplog: pytest.LogCaptureFixture, which: str) -> None:
        gone = [StoreError(Path("/store"), what="is gone") for _ in range(5)]
        with following(store := FakeStore(**{which: [*gone, StoreError(Path("/store"), what="is odd")]})):
            assert (store.polled if which == "polls" else store.watched).wait(60)
        messages = [record.getMessage() for record in caplog.records]
        assert messages == [
            "the store cannot be followed (/store: is gone); what was read before is still served",
            "the store cannot be followed (/store: is odd); what was read before is still served",
        ]

    def test_an_error_of_ours_is_told_with_its_place(self, caplog: pytest.LogCaptureFixture) -> None:
        found = [ValueError("ours"), ValueError("ours"), Arrivals(None)]
        with following(store := FakeStore(found)) as polls:
            assert store.polled.wait(60)
        assert [record.exc_info is not None for record in caplog.records] == [True]
        assert polls.woken == [None]


def server_process(address: Address) -> Path:
    """/proc of the process that listens there."""
    listening = subprocess.run(["ss", "-ltnpH", f"sport = :{address[1]}"], capture_output=True, text=True, check=True)
    return Path("/proc") / listening.stdout.partition("pid=")[2].partition(",")[0]


def maps(process: Path) -> str:
    return (process / "maps").read_text()


def mapped_bytes(process: Path, path: Path) -> int:
    """How much of a file a process has mapped."""
    lines = [line.split(maxsplit=5) for line in maps(process).splitlines()]
    bounds = [fields[0].split("-") for fields in lines if len(fields) == 6 and fields[5] == str(path)]
    return sum(int(end, 16) - int(start, 16) for start, end in bounds)
