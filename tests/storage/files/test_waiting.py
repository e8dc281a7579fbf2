"""Who may wait for the disk: a matter of the thread, not of the call."""

import threading
from collections.abc import Iterator

import pytest

from storage.files.residency import Cold, allow_waiting, current_tick, forbid_waiting, may_wait


@pytest.fixture(autouse=True)
def patient_again() -> Iterator[None]:
    yield
    allow_waiting()


def test_a_thread_may_wait_unless_it_said_otherwise() -> None:
    assert may_wait()
    forbid_waiting()
    assert not may_wait()
    allow_waiting()
    assert may_wait()


def test_what_one_thread_says_holds_for_no_other() -> None:
    forbid_waiting()
    seen: list[bool] = []
    thread = threading.Thread(target=lambda: seen.append(may_wait()))
    thread.start()
    thread.join()
    assert seen == [True]
    assert not may_wait()


def test_a_tick_tells_seconds_where_waiting_is_forbidden_and_nothing_elsewhere() -> None:
    assert current_tick() == 0
    forbid_waiting()
    first = current_tick()
    assert first > 0
    assert first <= current_tick() <= first + 60


def test_cold_says_what_was_missing_and_brings_it_in_when_asked() -> None:
    brought: list[str] = []
    cold = Cold("segment 7 is cold at 4096", lambda: brought.append("pages"))
    assert str(cold) == "segment 7 is cold at 4096"
    assert brought == []
    cold.warm()
    assert brought == ["pages"]


def test_cold_for_length_alone_has_nothing_to_bring_in() -> None:
    Cold("a long chain").warm()
