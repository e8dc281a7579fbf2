"""A running server sees what a broker appends, new files and directories that are exchanged, without being told."""

import contextlib
import threading
from pathlib import Path

import pytest

from broker.service.following_threads import FollowingThreads
from protocol.errors import StoreError
from storage.store._refresh import Arrivals


class FakeStore:
    def __init__(self, polls=(), watches=()):
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

    def _next(self, found, otherwise, is_all):
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
        self.woken = []

    def wake(self, queues) -> None:
        self.woken.append(queues)


@contextlib.contextmanager
def following(store, finish_scan=lambda: None):
    polls = FakePolls()
    follower = FollowingThreads(store, polls, finish_scan)
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

    def test_where_more_is_to_be_taken_in_there_is_no_pause(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("broker.service.following_threads.POLL_SECONDS", 0.5)
        found = [Arrivals({("T", number)}, more=True) for number in range(1000)]
        with following(store := FakeStore(found)) as polls:
            assert store.polled.wait(60), "1,000 pauses would take eight minutes"
        assert len(polls.woken) == 1000

    def test_a_problem_that_comes_is_told_once_and_told_again_when_it_comes_again(self, caplog) -> None:
        def change(*problems):
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
        told = "the store cannot be followed (/store: is {}); what was read before is still served"
        assert messages == [told.format(each) for each in ("gone", "odd")]

    def test_an_error_of_ours_is_told_with_its_place(self, caplog: pytest.LogCaptureFixture) -> None:
        found = [ValueError("ours"), ValueError("ours"), Arrivals(None)]
        with following(store := FakeStore(found)) as polls:
            assert store.polled.wait(60)
        assert [record.exc_info is not None for record in caplog.records] == [True]
        assert polls.woken == [None]
