"""Work that is done once for all who ask: how far it is, what came of it, and when it is given up."""

import threading
import time
from collections.abc import Callable

import pytest

from blocking_client import eventually
from broker.service.kept_work import KeptWorks, Report, WorkState
from protocol.errors import RocketLensError

OLD = 3600


def ended(works: KeptWorks[int], work: Callable[[Report], int], maximum_age: float = OLD) -> WorkState[int]:
    """What came of a work, within a minute."""

    def look() -> WorkState[int] | None:
        state = works.ask("broker-a", work, maximum_age)
        return None if state.is_running else state

    return eventually(look)


def test_an_outcome_is_kept_until_it_is_too_old() -> None:
    works: KeptWorks[int] = KeptWorks("count", "counting")
    counts: list[int] = []

    def work(report: Report) -> int:
        report(1)
        counts.append(len(counts))
        return len(counts)

    assert (ended(works, work).outcome, ended(works, work).outcome) == (1, 1)
    assert works.ask("broker-b", work, OLD).problem is None
    eventually(lambda: ended(works, work, 0).outcome != 1)
    assert len(counts) > 2


def test_of_many_works_only_some_are_kept_and_none_that_runs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("broker.service.kept_work.MOST_KEPT", 2)
    works: KeptWorks[int] = KeptWorks("count", "counting")
    goes_on = threading.Event()
    works.ask("runs", lambda _report: int(goes_on.wait(60)), OLD)
    assert ended(works, lambda _report: 1).outcome == 1
    works.ask("takes the place of what ended", lambda _report: int(goes_on.wait(60)), OLD)
    with pytest.raises(RocketLensError, match="counting is under way for 2 others: ask again"):
        works.ask("too much", lambda _report: 3, OLD)
    goes_on.set()


def test_an_error_on_purpose_is_the_reason() -> None:
    def work(_report: Report) -> int:
        raise RocketLensError("the disk hangs")

    state = ended(KeptWorks("count", "counting"), work)
    assert (state.outcome, state.problem) == (None, "the disk hangs")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_that_nobody_expected_is_not_shown() -> None:
    def work(_report: Report) -> int:
        raise ZeroDivisionError("a secret")

    assert ended(KeptWorks("count", "counting"), work).problem == "counting failed; the server's log has the reason"


@pytest.mark.parametrize("ends", ["nobody asks", "the server stops"])
def test_a_work_is_given_up(ends: str, monkeypatch: pytest.MonkeyPatch) -> None:
    works: KeptWorks[int] = KeptWorks("count", "counting")
    has_begun, has_ended = threading.Event(), threading.Event()

    def work(report: Report) -> int:
        deadline = time.monotonic() + 60
        try:
            while time.monotonic() < deadline:
                report(0)
                has_begun.set()
        finally:
            has_ended.set()
        return 1

    works.ask("broker-a", work, OLD)
    assert has_begun.wait(60)
    if ends == "nobody asks":
        monkeypatch.setattr("broker.service.kept_work.PATIENCE_SECONDS", 0.0)
    else:
        works.close()
    assert has_ended.wait(30)
