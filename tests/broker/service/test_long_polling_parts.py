"""The table of held pulls by itself: looks on threads, refusals, and what comes while something else is on its way."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from broker.service import long_polling
from broker.service.long_polling import LongPolling
from broker_harness import until
from protocol.command import Response
from storage.files.waiting import Lookup, Wait
from storage.queue.queue_store import QueueStore

pytestmark = pytest.mark.asyncio

FOUND, BUSY, NOT_FOUND = 0, 2, 19
STOPPING = (BUSY, "the server is stopping")


class FakeStore:
    """A store whose queues are whatever object they are at the moment."""

    def __init__(self) -> None:
        self.queues: Any = object()

    def after_refresh(self, _callback: object) -> None:
        """Nobody refreshes it."""


class FakeQuestion:
    """Answers with what it is given, in turn; an exception is raised, and what is to be waited for waited for."""

    queue_key = ("T", 0)
    queue_offset = 0

    same: object = None

    @property
    def sameness(self) -> object:
        return self.same or id(self)

    def __init__(self, *answers: Response | Exception | Wait | None) -> None:
        self._answers: Iterator[Response | Exception | Wait | None] = iter(answers)

    def look(self) -> Lookup[Response | None]:
        while isinstance(answer := next(self._answers), Wait):
            yield answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    def give_up(self) -> Response:
        return Response(NOT_FOUND)


def polling(store: FakeStore) -> LongPolling:
    polls = LongPolling(store)  # type: ignore[arg-type]
    polls.start(lambda work: asyncio.get_running_loop().run_in_executor(None, work))
    return polls


async def test_a_store_that_grew_while_a_pull_looked_at_it_is_looked_at_again() -> None:
    store = FakeStore()
    polls = polling(store)
    seen: QueueStore = store.queues
    store.queues = object()
    pull = polls.hold(FakeQuestion(Response(FOUND)), 10, seen)
    assert not isinstance(pull, Response)
    assert (await pull).code == FOUND


@pytest.mark.parametrize("answers", [(ValueError("odd"),), (Wait("a file"), ValueError("odd"))])
async def test_a_look_that_fails_ends_the_wait_with_its_error(answers: tuple[Exception | Wait, ...]) -> None:
    pull = polling(FakeStore()).hold(FakeQuestion(*answers), 10, object())  # type: ignore[arg-type]
    assert not isinstance(pull, Response)
    with pytest.raises(ValueError, match="odd"):
        await pull


async def test_while_a_look_waits_for_the_disk_others_join_it_and_what_arrives_is_looked_for_again() -> None:
    store = FakeStore()
    polls = polling(store)
    entered, leave = threading.Event(), threading.Event()
    cold = Wait("a queue file", lambda: (entered.set(), leave.wait(60)))
    question = FakeQuestion(cold, None, Response(FOUND))
    question.same = "the same"
    first = polls.hold(question, 10, object())  # type: ignore[arg-type]
    await until(entered.is_set)
    second = polls.hold(same_as(question), 10, object())  # type: ignore[arg-type]
    await asyncio.sleep(0)
    leave.set()
    assert not isinstance(first, Response)
    assert not isinstance(second, Response)
    assert await first is await second
    assert len(polls) == 0


def same_as(question: "FakeQuestion") -> "FakeQuestion":
    """A question that asks the same and has no answers of its own."""
    same = FakeQuestion()
    same.same = question.same
    return same


async def test_a_pull_that_is_given_up_before_it_is_kept_is_not_kept() -> None:
    store = FakeStore()
    polls = polling(store)
    pull = await asyncio.to_thread(polls.hold, FakeQuestion(), 10, store.queues)
    assert not isinstance(pull, Response)
    if pull.group is None:
        pull.give_up()
    await asyncio.sleep(0)
    pull.give_up()
    assert len(polls) == 0


async def test_many_answers_leave_in_several_turns_and_a_stop_waits_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_polling, "ANSWERS_A_TURN", 1)
    store = FakeStore()
    polls = polling(store)
    waiting = [asyncio.ensure_future(polls.hold(FakeQuestion(None), 10, store.queues)) for _ in range(5)]  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert len(polls) == 5
    polls.stop()
    assert len(polls) == 0
    assert [(answer.code, answer.remark) for answer in await asyncio.gather(*waiting)] == [STOPPING] * 5


async def test_nothing_is_held_before_the_start_and_after_the_end() -> None:
    early = LongPolling(FakeStore()).hold(FakeQuestion(), 10, object())  # type: ignore[arg-type]
    assert isinstance(early, Response)
    assert early.code == NOT_FOUND
    polls = polling(FakeStore())
    polls.stop()
    late = polls.hold(FakeQuestion(), 10, object())  # type: ignore[arg-type]
    assert isinstance(late, Response)
    assert (late.code, late.remark) == STOPPING


async def test_a_pull_on_its_way_from_a_thread_when_the_server_stops_is_told_so() -> None:
    store = FakeStore()
    polls = polling(store)
    pull = await asyncio.to_thread(polls.hold, FakeQuestion(), 10, store.queues)
    polls.stop()
    assert not isinstance(pull, Response)
    answer = await pull
    assert (answer.code, answer.remark) == STOPPING
