"""Pulls that found nothing new at the end of their queue: held until a message arrives or their time is up.

A consumer that keeps up asks again at once whatever it is told, so its pull is answered late instead: a broker with
ten thousand idle queues is asked a few hundred times a second, not without end (remoting-protocol §3.4, §9). A held
pull is one future and what it asks; there is no Task, and one timer for all of them.

Whoever follows the store says which queues got messages. On that thread those with held pulls are looked at, since
that may wait for the disk; pulls whose queue has grown are then made again on the event loop, and stay held if nothing
that arrived passes their filter. Of pulls that ask the same one is made, and answers all: thousands may wait for one
message.

A server that stops answers held pulls, and those that still come, that it is busy: consumers of every kind then ask
again seconds later, of whoever serves by then. Told that there is nothing new they would ask at once, and clients up
to 4.9 wait half a minute for the answer to what they sent into a connection that was being closed.
"""

import asyncio
import contextlib
import itertools
import math
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping, Set
from functools import partial
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias, TypeVar

from protocol.codes import ResponseCode
from protocol.command import Response
from protocol.errors import StoreError
from storage.queue_store import QueueStore
from storage.residency import Cold

if TYPE_CHECKING:
    from storage.message_store import MessageStore

Key = TypeVar("Key")

QueueKey: TypeAlias = tuple[str, int]
"""Topic and queue id."""

LONGEST_HOLD_SECONDS = 20.0
"""Clients give up a pull after 30 s, whatever time they allowed for it."""

TICK_SECONDS = 0.1
"""Pulls whose time is up in one tick are answered together."""

STOPPING = "the server is stopping"

LIGHT_QUEUE_PREFIX = "%LMQ%"
"""Before the names of queues that get the messages of others (store-format §2.10)."""

ANSWERS_A_TURN = 1024
"""Pulls answered alike before the loop does other things: one message may be what ten thousand wait for."""

QUEUES_AT_ONCE = 64
"""Queues looked at after a refresh before the first pulls of them are made again."""


class Question(Protocol):
    """A pull, as far as holding it is concerned."""

    @property
    def queue_key(self) -> QueueKey:
        """The queue that is asked for."""

    @property
    def queue_offset(self) -> int:
        """The first offset that was not looked at yet."""

    @property
    def sameness(self) -> Hashable:
        """What is equal for pulls of one queue that are answered alike."""

    def look_as(self, other: Self) -> None:
        """Pass over what another pull of the same sameness has passed over."""

    def look(self) -> Response | None:
        """The answer, or None while nothing arrived for it; what was passed over is not looked at again.

        Raises `Cold` on a thread that may not wait.
        """

    def give_up(self) -> Response:
        """The answer when nothing arrived in time."""


class HeldPull(asyncio.Future[Response]):
    """The answer that a held pull is going to get; `tick` is when its time is up."""

    __slots__ = ("question", "tick")
    question: Question
    tick: int


RunInPool: TypeAlias = Callable[[Callable[[], Response | None]], "asyncio.Future[Response | None]"]


class LongPolling:
    """All held pulls of a server. `hold` and `wake` may be called on any thread; the rest is the event loop's."""

    def __init__(self, store: "MessageStore") -> None:
        self._store = store
        self._held: dict[QueueKey, set[HeldPull]] = {}
        self._wheel: dict[int, set[HeldPull]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._run_in_pool: RunInPool | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._next_tick = 0
        self.is_stopping = False
        """Whether pulls are to be refused, see `refusal`."""

    def __len__(self) -> int:
        return sum(map(len, self._held.values()))

    def start(self, run_in_pool: RunInPool) -> None:
        """Hold pulls from now on, on the running loop; `run_in_pool` is for what would make it wait."""
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
        for pull in list(itertools.chain.from_iterable(self._wheel.values())):
            _answer(pull, self.refusal())

    def hold(self, question: Question, timeout_seconds: float, queues: QueueStore) -> Response | HeldPull:
        """Hold a pull that found nothing in `queues`; where nothing is held, its answer comes at once."""
        loop = self._loop
        if self.is_stopping:
            return self.refusal()
        if loop is None or timeout_seconds <= 0:
            return question.give_up()
        pull = HeldPull(loop=loop)
        pull.question = question
        pull.tick = math.ceil((loop.time() + min(timeout_seconds, LONGEST_HOLD_SECONDS)) / TICK_SECONDS)
        if threading.get_ident() == self._thread:
            self._keep(pull, queues)
        else:
            loop.call_soon_threadsafe(self._keep, pull, queues)
        return pull

    def wake(self, arrived: Set[QueueKey] | None = None) -> None:
        """Make again the pulls whose queue has grown, of those that got messages; None: of all. Waits for the disk."""
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

    def _keep(self, pull: HeldPull, queues: QueueStore) -> None:
        if pull.done():
            return
        if self._loop is None:
            pull.set_result(self.refusal())
            return
        self._held.setdefault(pull.question.queue_key, set()).add(pull)
        self._wheel.setdefault(pull.tick, set()).add(pull)
        pull.add_done_callback(self._release)
        if self._timer is None or pull.tick < self._next_tick:
            self._wait_until(pull.tick)
        if self._store.queues is not queues:
            # The store was read anew since this pull looked at it, and perhaps nobody has been woken later.
            self._loop.call_soon(self._look_at, [pull])

    def _release(self, pull: asyncio.Future[Response]) -> None:
        """Forget a pull that was answered, or given up with its connection."""
        assert isinstance(pull, HeldPull)
        _discard(self._held, pull.question.queue_key, pull)
        _discard(self._wheel, pull.tick, pull)

    # ------------------------------------------------------------------ looking again

    def _look_at_queues(self, ends: Mapping[QueueKey, int]) -> None:
        for key, end in ends.items():
            self._look_at([pull for pull in self._held.get(key, ()) if pull.question.queue_offset < end])

    def _look_at(self, pulls: Iterable[HeldPull]) -> None:
        """Make pulls of one queue again, one of those that are the same for all of them."""
        groups: dict[Hashable, list[HeldPull]] = {}
        for pull in pulls:
            groups.setdefault(pull.question.sameness, []).append(pull)
        for first, *others in groups.values():
            try:
                answer = first.question.look()
            except Cold as cold:
                for pull in (first, *others):
                    self._look_in_pool(pull, cold)
            except Exception as error:
                for pull in (first, *others):
                    _fail(pull, error)
            else:
                _answer(first, answer)
                self._answer_alike(first.question, others, answer)

    def _answer_alike(self, question: Question, pulls: list[HeldPull], answer: Response | None) -> None:
        """Answer pulls as one was that asked the same, some in each turn of the loop: they leave while it goes on."""
        for pull in pulls[:ANSWERS_A_TURN]:
            pull.question.look_as(question)
            _answer(pull, answer)
        if len(pulls) > ANSWERS_A_TURN and self._loop is not None:
            self._loop.call_soon(self._answer_alike, question, pulls[ANSWERS_A_TURN:], answer)

    def _look_in_pool(self, pull: HeldPull, cold: Cold) -> None:
        def look() -> Response | None:
            cold.warm()
            return pull.question.look()

        assert self._run_in_pool is not None
        self._run_in_pool(look).add_done_callback(partial(_looked, pull))

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
            for pull in self._wheel.pop(tick):
                _answer(pull, pull.question.give_up())
        if self._wheel:
            self._wait_until(min(self._wheel))


def _is_light(key: QueueKey) -> bool:
    """Whether a queue gets messages of other topics, so that its own name stands in none."""
    return key[0].startswith(LIGHT_QUEUE_PREFIX)


def _end_of(queues: QueueStore, key: QueueKey) -> int | None:
    """Where a queue ends, None where there is none or it cannot be read: whoever asks for it is told."""
    try:
        queue = queues.queue(*key)
        return None if queue is None else queue.max_offset
    except StoreError:
        return None


def _discard(table: dict[Key, set[HeldPull]], key: Key, pull: HeldPull) -> None:
    """Take a pull out of one set of a table, and the set with it when it was the last."""
    pulls = table.get(key)
    if pulls is not None:
        pulls.discard(pull)
        if not pulls:
            del table[key]


def _answer(pull: HeldPull, answer: Response | None) -> None:
    if answer is not None and not pull.done():
        pull.set_result(answer)


def _fail(pull: HeldPull, error: BaseException) -> None:
    if not pull.done():
        pull.set_exception(error)


def _looked(pull: HeldPull, looked: "asyncio.Future[Response | None]") -> None:
    """Take over what a look on a thread found."""
    if looked.cancelled():
        return
    error = looked.exception()
    if error is not None:
        _fail(pull, error)
    else:
        _answer(pull, looked.result())
