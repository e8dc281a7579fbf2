"""Pulls that found nothing new at the end of their queue: held until a message arrives or their time is up.

A consumer that has read everything asks again as soon as it gets any answer, so its pull is answered late instead: a
broker with ten thousand idle queues then gets a few hundred pulls a second (remoting-protocol §3.4, §9). Pulls with
equal parameters form one group, with one question, which is looked up once, and one answer, which is encoded once for
each connection. A held pull takes a few words of memory; it has no future and no Task, and one timer serves all.

The thread that follows the store reports which queues got messages. On that thread the queues with held pulls are
looked at, since that may wait for the disk. Questions whose queue has grown are then asked again on the event loop;
their pulls stay held if no new message passes their filter.

A server that stops answers held and new pulls with SYSTEM_BUSY: consumers of every kind then ask again seconds later,
and reach the server that runs by then. With the answer that there is nothing new they would ask at once, and clients up
to 4.9 wait half a minute for the answer to a request that they sent into a connection while it was closed.
"""

import asyncio
import contextlib
import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from broker.service.pending_reply import Outcome, PendingReply, ReplyReceiver, by_receiver
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Response
from protocol.errors import StoreError
from protocol.system_topics import LIGHT_PREFIX
from storage.files.waiting import Lookup, Unfinished, begin
from storage.queue.queue_store import QueueStore
from storage.store.message_store import MessageStore

Key = TypeVar("Key")

QueueKey: TypeAlias = tuple[str, int]
"""Topic and queue id."""

LONGEST_HOLD_SECONDS = 20.0
"""Longest time that a pull is held, since clients give up a pull after 30 s, whatever time they allowed for it."""

TICK_SECONDS = 0.1
"""Seconds of one tick; pulls whose time is up in the same tick are answered together."""

STOPPING = "the server is stopping"

ANSWERS_A_TURN = 2048
"""Pulls that are answered in one turn of the event loop, since ten thousand pulls may wait for one message."""

QUEUES_AT_ONCE = 64
"""Queues that are looked at after a refresh before their pulls are made again."""


class PullQuestion(Protocol):
    """The question of one group of pulls, as far as `LongPolling` uses it."""

    @property
    def queue_key(self) -> QueueKey:
        """The queue that is asked for."""

    @property
    def queue_offset(self) -> int:
        """The first offset that was not looked at yet."""

    @property
    def sameness(self) -> Hashable:
        """A key that is equal for pulls of one queue that get equal answers."""

    def look(self) -> Lookup[Response | None]:
        """Return the answer, or None if no new message passes the filter; each message is looked at once."""

    def give_up(self) -> Response:
        """Return the answer for a pull whose time is up."""


class HeldPull(PendingReply):
    """One held pull; its time is up at `tick`. `group` is None until the pull is kept."""

    __slots__ = ("group", "tick")
    code = RequestCode.PULL_MESSAGE
    group: "HeldGroup | None"
    tick: int

    def __init__(self, tick: int) -> None:
        super().__init__()
        self.group = None
        self.tick = tick

    def give_up(self) -> None:
        """Stop holding this pull, whose connection is gone."""
        if self.group is not None:
            self.group.release(self)
        self.tick = GIVEN_UP


GIVEN_UP = -1


class HeldGroup:
    """Pulls with the same question.

    `is_due` says that it is about to be looked up, `in_pool` that a look-up of it waits in the thread pool.
    """

    __slots__ = ("in_pool", "is_due", "polls", "pulls", "question", "sameness")

    def __init__(self, polls: "LongPolling", question: PullQuestion, sameness: Hashable) -> None:
        self.polls = polls
        self.question = question
        self.sameness = sameness
        self.pulls: set[HeldPull] = set()
        self.is_due = self.in_pool = False

    def release(self, pull: HeldPull) -> None:
        """Forget a pull whose connection is gone."""
        self.polls.forget(self, (pull,))


RunInPool: TypeAlias = Callable[[Callable[[], Response | None]], "asyncio.Future[Response | None]"]


class LongPolling:
    """All held pulls of a server. `hold` and `wake` may be called on any thread, the rest on the event loop only."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._held: dict[QueueKey, dict[Hashable, HeldGroup]] = {}
        self._wheel: dict[int, set[HeldPull]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._run_in_pool: RunInPool | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next_tick = 0
        self._answers: deque[tuple[ReplyReceiver, list[PendingReply], Outcome]] = deque()
        self.is_stopping = False
        """Whether pulls are answered with `refusal`."""

    def __len__(self) -> int:
        return sum(len(pulls) for pulls in self._wheel.values())

    def start(self, run_in_pool: RunInPool) -> None:
        """Hold pulls from now on, on the running loop; `run_in_pool` runs look-ups that have to wait."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._run_in_pool = run_in_pool
        self._store.after_refresh(self.wake)

    def refusal(self) -> Response:
        """The answer to a pull while the server stops."""
        return Response(ResponseCode.SYSTEM_BUSY, STOPPING)

    def stop(self) -> None:
        """Refuse all held pulls, and hold no more."""
        self._loop = None
        self.is_stopping = True
        if self._timer is not None:
            self._timer.cancel()
        for group in [group for groups in self._held.values() for group in groups.values()]:
            self._answer(group, group.pulls, self.refusal())
        self._send_answers(math.inf)

    def hold(self, question: PullQuestion, timeout_seconds: float, queues: QueueStore) -> Response | HeldPull:
        """Hold a pull that found nothing in `queues`; if it cannot be held, return its answer at once."""
        loop = self._loop
        if self.is_stopping:
            return self.refusal()
        if loop is None or timeout_seconds <= 0:
            return question.give_up()
        pull = HeldPull(math.ceil((loop.time() + min(timeout_seconds, LONGEST_HOLD_SECONDS)) / TICK_SECONDS))
        if threading.get_ident() == self._thread:
            self._keep(pull, question, queues)
        else:
            loop.call_soon_threadsafe(self._keep, pull, question, queues)
        return pull

    def wake(self, arrived: Set[QueueKey] | None = None) -> None:
        """Make the pulls again whose queues have grown, of those in `arrived`, None: of all. May wait for the disk."""
        if self._loop is None:
            return
        queues = self._store.queues
        keys = iter([key for key in list(self._held) if arrived is None or key in arrived or _is_light(key)])
        while some := list(itertools.islice(keys, QUEUES_AT_ONCE)):
            ends = {key: end for key in some if (end := _end_of(queues, key)) is not None}
            loop = self._loop
            if loop is None:
                return
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._look_at_queues, ends)

    def _keep(self, pull: HeldPull, question: PullQuestion, queues: QueueStore) -> None:
        if pull.tick == GIVEN_UP:
            return
        if self._loop is None:
            pull.answer(self.refusal())
            return
        groups = self._held.setdefault(question.queue_key, {})
        sameness = question.sameness
        group = groups.get(sameness)
        if group is None:
            group = groups[sameness] = HeldGroup(self, question, sameness)
        group.pulls.add(pull)
        pull.group = group
        self._wheel.setdefault(pull.tick, set()).add(pull)
        if self._timer is None or pull.tick < self._next_tick:
            self._wait_until(pull.tick)
        if self._store.queues is not queues and not group.is_due:
            # The store was refreshed since this pull looked at it, and `wake` may have run before the pull was kept.
            group.is_due = True
            self._loop.call_soon(self._look_at, group)

    def forget(self, group: HeldGroup, pulls: Iterable[HeldPull]) -> None:
        """Stop holding some pulls of a group."""
        for pull in pulls:
            pull.group = None
            in_tick = self._wheel.get(pull.tick)
            if in_tick is not None:
                in_tick.discard(pull)
                if not in_tick:
                    del self._wheel[pull.tick]
        group.pulls.difference_update(pulls)
        key = group.question.queue_key
        if not group.pulls and self._held.get(key, {}).get(group.sameness) is group:
            del self._held[key][group.sameness]
            if not self._held[key]:
                del self._held[key]

    # ------------------------------------------------------------------ looking again

    def _look_at_queues(self, ends: Mapping[QueueKey, int]) -> None:
        for key, end in ends.items():
            for group in [group for group in self._held.get(key, {}).values() if group.question.queue_offset < end]:
                self._look_at(group)

    def _look_at(self, group: HeldGroup) -> None:
        """Ask a question again, and answer its pulls if there is an answer."""
        if group.in_pool:
            group.is_due = True
            return
        group.is_due = False
        if not group.pulls or self._loop is None:
            return
        try:
            answer = begin(group.question.look())
        except Exception as error:
            self._answer(group, group.pulls, error)
            return
        if isinstance(answer, Unfinished):
            assert self._run_in_pool is not None
            group.in_pool = True
            self._run_in_pool(answer.finish).add_done_callback(partial(self._looked, group))
        elif answer is not None:
            self._answer(group, group.pulls, answer)

    def _looked(self, group: HeldGroup, looked: "asyncio.Future[Response | None]") -> None:
        """Answer a group with the result of a look-up on a thread, if there is an answer."""
        group.in_pool = False
        if looked.cancelled():
            return
        outcome = looked.exception() or looked.result()
        if outcome is not None:
            self._answer(group, group.pulls, outcome)
        elif group.is_due:
            self._look_at(group)

    # ------------------------------------------------------------------ answering

    def _answer(self, group: HeldGroup, pulls: Iterable[HeldPull], outcome: Outcome) -> None:
        """Stop holding pulls of a group and answer them, at most `ANSWERS_A_TURN` in each turn of the event loop."""
        pulls = list(pulls)
        self.forget(group, pulls)
        is_answering = bool(self._answers)
        self._answers += [(receiver, some, outcome) for receiver, some in by_receiver(pulls, outcome)]
        if not is_answering:
            self._send_answers(ANSWERS_A_TURN)

    def _send_answers(self, most: float) -> None:
        while self._answers and most > 0:
            receiver, some, outcome = self._answers.popleft()
            most -= len(some)
            receiver.send_replies(some, outcome)
        if self._answers and self._loop is not None:
            self._loop.call_soon(self._send_answers, ANSWERS_A_TURN)

    # ------------------------------------------------------------------ time

    def _wait_until(self, tick: int) -> None:
        assert self._loop is not None
        if self._timer is not None:
            self._timer.cancel()
        self._next_tick = tick
        self._timer = self._loop.call_at(tick * TICK_SECONDS, self._time_is_up)

    def _time_is_up(self) -> None:
        """Answer the pulls of all ticks that have begun."""
        self._timer = None
        if self._loop is None:
            return
        now = self._loop.time() / TICK_SECONDS
        for tick in [tick for tick in self._wheel if tick <= max(now, self._next_tick)]:
            for group, pulls in _by_group(self._wheel.pop(tick)).items():
                self._answer(group, pulls, group.question.give_up())
        if self._wheel:
            self._wait_until(min(self._wheel))


def _by_group(pulls: Iterable[HeldPull]) -> dict[HeldGroup, list[HeldPull]]:
    found: dict[HeldGroup, list[HeldPull]] = {}
    for pull in pulls:
        if pull.group is not None:
            found.setdefault(pull.group, []).append(pull)
    return found


def _is_light(key: QueueKey) -> bool:
    """Whether a queue gets messages of other topics, which are reported under the names of those topics."""
    return key[0].startswith(LIGHT_PREFIX)


def _end_of(queues: QueueStore, key: QueueKey) -> int | None:
    """The end of a queue; None where there is no queue or it cannot be read, which the pull's own look-up reports."""
    try:
        queue = queues.queue(*key)
        return None if queue is None else queue.max_offset
    except StoreError:
        return None
