"""Send what an account has planned: in the order of queues or keys, at a rate, and ask where an answer is lost.

Messages go by lanes, of which each has one request in flight: a lane for each queue of the target, so that its messages
keep their order, or, where order does not count, as many as requests may be in flight. A lane that got no answer asks
the target for what it sent before it sends that again.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.cluster.client import Client, ClientError, NotConnected, ResponseError
from protocol.codes import ResponseCode
from protocol.command import ext_fields_of
from protocol.java_hash import java_hash
from protocol.properties import UNIQ_KEY, property_value
from protocol.sending import BUSY, STORED, OutgoingMessage, send_request
from protocol.system_topics import RETRY_PREFIX
from rocketlens.replay.account import ReplayAccount, SendState, SentMessage
from rocketlens.replay.choice import Chosen, ReplayChoice
from rocketlens.replay.plan import in_a_thread, sent_already
from rocketlens.replay.resent import ORIGIN, NotResent, ResendManner, order_key, resent
from rocketlens.replay.target import ReplayTarget, TargetQueue, TargetTopic

ORDERS: Final = ("queue", "key", "none")
GROUP: Final = "ROCKETLENS_REPLAY"
"""The producer group that messages are sent in."""

AHEAD: Final = 4096
"""Messages that are read ahead of the sending; they are noted as leaving in one change."""
AHEAD_BYTES: Final = 64 * 1024 * 1024
NOTED_SECONDS: Final = 0.2
"""How often what became of messages is noted."""
NOTED_MOST: Final = 2000

FOUND_THERE: Final = "its answer was lost, and the target has it"

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
STALLED_SECONDS: Final = 0.5

MOST_BATCH_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SendSpeed:
    """How fast messages are sent: `rate` a second, `in_flight` requests, of at most `batch` messages.

    After `most_failures` in a row nothing more is sent.
    """

    rate: float | None = None
    in_flight: int = 16
    batch: int = 32
    most_failures: int = 10


@dataclass(slots=True)
class LeavingMessage:
    """A message that is to be sent now."""

    number: int
    outgoing: OutgoingMessage
    queue: TargetQueue
    topic: TargetTopic

    def sent(self) -> SentMessage:
        """It as the account has it."""
        properties = self.outgoing.properties
        key, origin = (property_value(properties, name) or "" for name in (UNIQ_KEY, ORIGIN))
        return SentMessage(self.number, "", key, self.outgoing.topic, origin, len(self.outgoing.body), 0, "")


@dataclass(slots=True)
class SendTally:
    """How many messages are through, and since when."""

    planned: int
    done: int = 0
    started: float = field(default_factory=time.monotonic)

    def sentence(self) -> str:
        """How far the sending is, and how long it takes."""
        passed = max(time.monotonic() - self.started, 0.001)
        rate = self.done / passed
        left = f", {(self.planned - self.done) / rate:,.0f} s left" if self.done else ""
        return f"replay: {self.done:,} of {self.planned:,} messages, {rate:,.0f} a second{left}"


class ReplayStopped(Exception):
    """Nothing more is sent, for a reason that is a sentence; empty where it was asked for."""


class SendPace:
    """Lets messages go at a rate; what was late is made up for within a second."""

    def __init__(
        self,
        rate: float | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._next = clock()

    async def wait(self, count: int) -> None:
        """Wait until so many more messages may go."""
        if self._rate is None:
            return
        now = self._clock()
        self._next = max(self._next, now - 1)
        at, self._next = self._next, self._next + count / self._rate
        if at > now:
            await self._sleep(at - now)


class SendNotes:
    """What became of messages, noted in the account some times a second."""

    def __init__(self, account: ReplayAccount, tally: SendTally) -> None:
        self._account, self._tally = account, tally
        self._waiting: list[tuple[int, SendState, str, str]] = []
        self._last = time.monotonic()

    def add(self, number: int, state: SendState, sent_id: str = "", reason: str = "") -> None:
        """Note one soon."""
        self._waiting.append((number, state, sent_id, reason))
        if state is not SendState.PLANNED:
            self._tally.done += 1
        if len(self._waiting) >= NOTED_MOST or time.monotonic() - self._last > NOTED_SECONDS:
            self.write()

    def write(self) -> None:
        """Note all now."""
        waiting, self._waiting = self._waiting, []
        self._last = time.monotonic()
        if waiting:
            self._account.note(waiting)


class ReplaySending:
    """One run's sending, from the account's plan to its end."""

    def __init__(
        self,
        choice: ReplayChoice,
        manner: ResendManner,
        target: ReplayTarget,
        account: ReplayAccount,
        speed: SendSpeed,
        order: str,
        report: Callable[[SendTally], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self._choice, self._manner, self._target, self._account = choice, manner, target, account
        self._speed, self._order = speed, order
        self._report, self._should_stop = report, should_stop
        self._client: Client = target.client
        self._pace = SendPace(speed.rate)
        # A batch is no longer than what goes in a fifth of a second.
        self._most = speed.batch if speed.rate is None else max(1, min(speed.batch, int(speed.rate / 5)))
        self._place = 0
        self._brokers: dict[object, int] = {}
        self._lanes: dict[object, deque[LeavingMessage]] = {}
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._flights = asyncio.Semaphore(speed.in_flight)
        self._moved = asyncio.Event()
        self._waiting = self._waiting_bytes = 0
        self._failures = 0
        self._stop_reason: str | None = None
        counts = account.states()
        self._tally = SendTally(counts[SendState.PLANNED] + counts[SendState.SENDING] + counts[SendState.UNKNOWN])
        self._notes = SendNotes(account, self._tally)

    async def run(self) -> None:
        """Send all that is planned, and note what becomes of it; raises `ReplayStopped`, and what the source raises."""
        try:
            await self._settle_doubtful()
            async for piece in in_a_thread(self._choice.pieces(self._is_over)):
                await self._send(piece)
                if self._is_over():
                    break
            await self._drained()
        finally:
            await self._end()
        if self._stop_reason is not None:
            raise ReplayStopped(self._stop_reason)
        self._account.give_up_planned("the source does not have it any more")

    async def _end(self) -> None:
        """Wait for the answers that are still to come; what has not left is planned again."""
        if self._waiting:
            self._stop("")
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))
        for lane in self._lanes.values():
            for leaving in lane:
                self._notes.add(leaving.number, SendState.PLANNED)
        self._notes.write()
        self._report(self._tally)

    def _stop(self, reason: str) -> None:
        """Send nothing more, for a reason that is a sentence, or because it was asked for."""
        if self._stop_reason is None:
            self._stop_reason = reason
        self._moved.set()

    def _is_over(self) -> bool:
        if self._stop_reason is None and self._should_stop():
            self._stop_reason = ""
        return self._stop_reason is not None

    # -- from the source into lanes ---------------------------------------------------------------------------------

    async def _send(self, piece: Sequence[Chosen]) -> None:
        """Give the messages of a piece that are to be sent to their lanes, as soon as there is room."""
        for start in range(0, len(piece), AHEAD // 2):
            some = piece[start : start + AHEAD // 2]
            known = self._account.of_places([each.place for each in some])
            new = [(known[each.place][0], each) for each in some if self._is_planned(known.get(each.place))]
            leaving = [each for number, chosen in new if (each := await self._leaving(number, chosen)) is not None]
            while self._waiting > AHEAD or self._waiting_bytes > AHEAD_BYTES:
                if self._is_over():
                    return
                self._moved.clear()
                await self._moved.wait()
            if self._is_over():
                return
            self._account.begin(each.number for each in leaving)
            for each in leaving:
                self._put(each)
            self._report(self._tally)
            await asyncio.sleep(0)

    @staticmethod
    def _is_planned(known: tuple[int, SendState] | None) -> bool:
        return known is not None and known[1] is SendState.PLANNED

    async def _leaving(self, number: int, chosen: Chosen) -> LeavingMessage | None:
        try:
            outgoing = resent(chosen.message, self._manner)
        except NotResent as error:
            self._notes.add(number, SendState.REFUSED, reason=str(error))
            return None
        topic = await self._target.topic(outgoing.topic)
        if topic.problem:
            self._notes.add(number, SendState.REFUSED, reason=topic.problem)
            return None
        return LeavingMessage(number, outgoing, self._queue_of(topic, chosen), topic)

    def _queue_of(self, topic: TargetTopic, chosen: Chosen) -> TargetQueue:
        """The queue of the target that a message goes to."""
        message, queues = chosen.message, topic.queues
        if self._order == "none":
            return queues[self._place // self._speed.batch % len(queues)]
        if self._order == "key" and (key := order_key(message)):
            return queues[abs(java_hash(key)) % len(queues)]
        # The brokers of the source one after the other to those of the target, each queue to the one of its number.
        source = self._brokers.setdefault(message.store_host, len(self._brokers))
        names = list(topic.brokers)
        mine = [queue for queue in queues if queue.broker == names[source % len(names)]]
        return mine[message.queue_id % len(mine)]

    def _put(self, leaving: LeavingMessage) -> None:
        key: object = (leaving.outgoing.topic, leaving.queue)
        if self._order == "none":
            key = self._place // self._speed.batch % self._speed.in_flight
            self._place += 1
        lane = self._lanes.setdefault(key, deque())
        lane.append(leaving)
        self._waiting += 1
        self._waiting_bytes += len(leaving.outgoing.body)
        if key not in self._tasks:
            self._tasks[key] = asyncio.get_running_loop().create_task(self._run_lane(key, lane))

    async def _drained(self) -> None:
        """Wait until all lanes are empty."""
        while self._waiting and not self._is_over():
            self._moved.clear()
            try:
                async with asyncio.timeout(STALLED_SECONDS):
                    await self._moved.wait()
            except TimeoutError:
                self._report(self._tally)

    # -- a lane -----------------------------------------------------------------------------------------------------

    async def _run_lane(self, key: object, lane: deque[LeavingMessage]) -> None:
        try:
            while lane and not self._is_over():
                batch = self._next_batch(lane)
                await self._pace.wait(len(batch))
                async with self._flights:
                    if self._is_over():
                        lane.extendleft(reversed(batch))
                        return
                    await self._deliver(batch)
                self._waiting -= len(batch)
                self._waiting_bytes -= sum(len(each.outgoing.body) for each in batch)
                self._moved.set()
        except Exception as error:  # of the account, say: the run ends with it
            self._stop(str(error) or type(error).__name__)
        finally:
            del self._tasks[key]  # at once: what comes later to this lane needs another

    def _next_batch(self, lane: deque[LeavingMessage]) -> list[LeavingMessage]:
        """The next messages that one request may hold."""
        batch = [lane.popleft()]
        first, size = batch[0], len(batch[0].outgoing.body)
        most = 1 if first.topic.name.startswith(RETRY_PREFIX) else self._most
        limit = min(MOST_BATCH_BYTES, first.topic.size_limit)
        while lane and len(batch) < most:
            each = lane[0]
            size += len(each.outgoing.body) + len(each.outgoing.properties) + 32
            alike = (each.outgoing.topic, each.queue, each.outgoing.sys_flag)
            if size > limit or alike != (first.outgoing.topic, first.queue, first.outgoing.sys_flag):
                break
            batch.append(lane.popleft())
        return batch

    async def _deliver(self, batch: list[LeavingMessage]) -> None:
        """Send messages until they are taken, refused, or nothing more is sent."""
        pause = FIRST_PAUSE_SECONDS
        note = ""
        while True:
            try:
                answer = await self._request(batch)
            except NotConnected as error:
                if self._fails(str(error)):
                    return self._plan_again(batch)
            except ResponseError as error:
                if error.code in BUSY:
                    if self._fails(str(error)):
                        return self._plan_again(batch)
                elif error.code == ResponseCode.SYSTEM_ERROR:
                    batch = await self._without_stored(batch, str(error))
                    for each in batch:
                        self._notes.add(each.number, SendState.REFUSED, reason=str(error))
                    self._fails(str(error))
                    return None
                elif len(batch) > 1:  # it may be about one of them
                    for each in batch:
                        await self._deliver([each])
                    return None
                else:
                    self._notes.add(batch[0].number, SendState.REFUSED, reason=str(error))
                    self._fails(str(error))
                    return None
            except ClientError as error:
                # It may be stored: what the target has is not sent again.
                note = f"its answer was lost, and the target did not have it: sent again ({error})"
                if self._fails(str(error)):
                    return self._leave_doubtful(batch, str(error))
                batch = await self._without_stored(batch, str(error))
                if not batch:
                    return None
            else:
                self._failures = 0
                for each, sent_id, said in answer:
                    self._notes.add(each.number, SendState.SENT, sent_id, "; ".join(filter(None, (note, said))))
                return None
            if self._is_over():
                return self._plan_again(batch)
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _request(self, batch: Sequence[LeavingMessage]) -> Iterator[tuple[LeavingMessage, str, str]]:
        """Send messages in one request: each with its id at the target, and what is to be said of it."""
        queue = batch[0].queue
        now = int(time.time() * 1000)
        code, fields, body = send_request(GROUP, [each.outgoing for each in batch], queue.queue_id, now, queue.broker)
        answer = await self._client.call(queue.endpoint, code, fields, body, expected=STORED)
        ids = ext_fields_of(answer).get("msgId", "").split(",")
        ids = ids if len(ids) == len(batch) else [ids[0]] * len(batch)
        said = "" if answer.code == ResponseCode.SUCCESS else f"stored, with {ResponseCode(answer.code).name}"
        return ((each, sent_id, said) for each, sent_id in zip(batch, ids, strict=True))

    def _fails(self, reason: str) -> bool:
        """Count a failure; whether nothing more is sent."""
        self._failures += 1
        if self._failures >= self._speed.most_failures:
            self._stop(f"{self._failures} failures in a row, the last: {reason}")
        return self._is_over()

    async def _without_stored(self, batch: Sequence[LeavingMessage], problem: str) -> list[LeavingMessage]:
        """Those of some messages, whose answer was lost, that the target does not have; the others are noted as sent.

        Where it cannot be asked they are noted as unknown, and none is left.
        """
        ids = await self._asked(batch[0].topic, [each.sent() for each in batch])
        if ids is None:
            self._leave_doubtful(batch, problem)
            return []
        for each, known in zip(batch, ids, strict=True):
            if known:
                self._notes.add(each.number, SendState.SENT, known, FOUND_THERE)
        return [each for each, known in zip(batch, ids, strict=True) if not known]

    async def _asked(self, topic: TargetTopic, sent: Sequence[SentMessage]) -> list[str] | None:
        """The ids at the target of what may have been sent, empty for what is not there; None where nothing answers."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return await sent_already(self._target, topic, sent)
            except ClientError as error:
                if self._fails(str(error)):
                    return None
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _leave_doubtful(self, batch: Sequence[LeavingMessage], problem: str) -> None:
        for each in batch:
            self._notes.add(each.number, SendState.UNKNOWN, reason=f"its answer was lost: {problem}")

    def _plan_again(self, batch: Sequence[LeavingMessage]) -> None:
        for each in batch:
            self._notes.add(each.number, SendState.PLANNED)

    # -- what an earlier process left -------------------------------------------------------------------------------

    async def _settle_doubtful(self) -> None:
        """Ask for what may have been sent by a process that ended: it is sent, or planned again."""
        for piece in self._account.each_sent(SendState.SENDING, SendState.UNKNOWN):
            for name in dict.fromkeys(each.topic for each in piece):
                if self._is_over():
                    return
                mine = [each for each in piece if each.topic == name]
                topic = await self._target.topic(name)
                ids = None if topic.problem else await self._asked(topic, mine)
                for number, each in enumerate(mine):
                    if ids is None:
                        self._notes.add(each.number, SendState.UNKNOWN, reason=topic.problem or "its answer was lost")
                    elif known := ids[number]:
                        self._notes.add(each.number, SendState.SENT, known, FOUND_THERE)
                    else:
                        self._notes.add(each.number, SendState.PLANNED)
            self._notes.write()
