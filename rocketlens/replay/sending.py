"""Send what an account has planned: in the order of queues or keys, at a rate, and ask where an answer is lost.

Messages go by lanes, of which each has one request in flight: a lane for each queue of the target, so that its messages
keep their order, or, where order does not count, as many as requests may be in flight. A lane that got no answer asks
the target for what it sent before it sends that again.
"""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from broker.cluster.client import Client, ClientError, NotConnected, ResponseError
from protocol.codes import ResponseCode
from protocol.command import ext_fields_of
from protocol.java_hash import java_hash
from protocol.properties import UNIQ_KEY, property_value
from protocol.sending import BUSY, STORED, packed, packed_size, properties_of_packed, send_request
from protocol.system_topics import RETRY_PREFIX
from rocketlens.arguments import never
from rocketlens.replay.account import PlannedTuple, ReplayAccount, SendState, SentName
from rocketlens.replay.choice import Chosen, Parcels, Piece, PlainRun, ReplayChoice, runs_of
from rocketlens.replay.plan import in_a_thread, row_of, rules_of, sent_already
from rocketlens.replay.resent import ORIGIN, ResendManner, order_key
from rocketlens.replay.target import ReplayTarget, TargetQueue, TargetTopic

Answer = TypeVar("Answer")

GROUP: Final = "ROCKETLENS_REPLAY"
"""The producer group that messages are sent in."""

AHEAD: Final = 4096
"""Messages that still wait when more are read; all that a piece of the source brings is noted as leaving at once."""
AHEAD_BYTES: Final = 64 * 1024 * 1024
NOTED_SECONDS: Final = 0.2
"""How often what became of messages is noted."""
NOTED_MOST: Final = 2000

GONE: Final = "the source does not have it any more as it was when the plan was made: --fresh plans anew"
FOUND_THERE: Final = "its answer was lost, and the target has it"

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
STALLED_SECONDS: Final = 0.5
LAST_ANSWERS_SECONDS: Final = 3.0
"""How long a run that is stopped waits for answers; what has none by then is asked for by the next run."""

MOST_BATCH_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SendSpeed:
    """How fast messages are sent: `rate` a second, `in_flight` requests, of at most `batch` messages.

    Nothing more is sent after `most_failures` of one request, or refusals of messages in a row.
    """

    rate: float | None = None
    in_flight: int = 16
    batch: int = 32
    most_failures: int = 10


@dataclass(frozen=True, slots=True)
class SendWay:
    """Where messages go."""

    topic: TargetTopic
    queue: TargetQueue


@dataclass(slots=True)
class LeavingMessages:
    """Messages with numbers that follow one another, which one request may hold, as they lie in a batch."""

    first: int
    count: int
    way: SendWay
    sys_flag: int
    packed: memoryview
    reconsume_times: int = 0

    @property
    def last(self) -> int:
        """The number of the last one."""
        return self.first + self.count - 1

    def each(self) -> "Iterator[LeavingMessages]":
        """The messages one by one."""
        start = 0
        for place in range(self.count):
            end = start + packed_size(self.packed[start:])
            one = self.packed[start:end]
            yield LeavingMessages(self.first + place, 1, self.way, self.sys_flag, one, self.reconsume_times)
            start = end

    @property
    def name(self) -> SentName:
        """By what the one message is found at the target."""
        properties = properties_of_packed(self.packed)
        return SentName(property_value(properties, UNIQ_KEY) or "", property_value(properties, ORIGIN) or "")


def one_by_one(batch: Iterable[LeavingMessages]) -> list[LeavingMessages]:
    """The messages of a request, each as one that leaves alone."""
    return [one for each in batch for one in each.each()]


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

    async def wait(self, count: int, is_over: Callable[[], bool] = never) -> None:
        """Wait until so many more messages may go, or none is to go any more."""
        if self._rate is None:
            return
        now = self._clock()
        self._next = max(self._next, now - 1)
        at, self._next = self._next, self._next + count / self._rate
        while at > now and not is_over():
            await self._sleep(min(at - now, STALLED_SECONDS))
            now = self._clock()


def is_final(error: ClientError) -> bool:
    """Whether asking again would bring the same answer."""
    return isinstance(error, ResponseError) and error.code not in BUSY


@dataclass(slots=True)
class Patience:
    """The failures of one request, and the pause before it is tried again: each longer than the one before."""

    failures: int = 0

    async def pause(self) -> None:
        """Wait, longer each time."""
        await asyncio.sleep(min(FIRST_PAUSE_SECONDS * 2 ** (self.failures - 1), LONGEST_PAUSE_SECONDS))

    async def answer(self, ask: Callable[[], Awaitable[Answer]], gives_up: Callable[[ClientError], bool]) -> Answer:
        """Ask again and again until there is an answer; raises the `ClientError` with which one `gives_up`."""
        while True:
            try:
                return await ask()
            except ClientError as error:
                self.failures += 1
                if gives_up(error):
                    raise
            await self.pause()


class SendNotes:
    """What became of messages, which is noted in the account some times a second."""

    def __init__(self, account: ReplayAccount, tally: SendTally) -> None:
        self._account, self._tally = account, tally
        self._sent: list[tuple[int, int, str, str]] = []
        self._others: list[tuple[int, SendState, str]] = []
        self._last = time.monotonic()
        self._is_leaving = False

    def add(self, number: int, state: SendState, reason: str = "") -> None:
        """Note a message that was not sent."""
        self._others.append((number, state, reason))
        self._tally.done += state is not SendState.PLANNED
        self._write_in_time()

    def add_sent(self, first: int, count: int, ids: str, reason: str = "") -> None:
        """Note messages whose numbers follow one another as sent; their ids at the target stand between commas."""
        self._sent.append((first, first + count - 1, ids, reason))
        self._tally.done += count
        self._write_in_time()

    def _write_in_time(self) -> None:
        if len(self._sent) + len(self._others) >= NOTED_MOST or time.monotonic() - self._last > NOTED_SECONDS:
            self.write()

    def write(self) -> None:
        """Note all now; what could not be noted, as on a full disk, is kept until it can."""
        if self._is_leaving:  # the account is another thread's
            return
        self._last = time.monotonic()
        if self._sent or self._others:
            self._account.note(self._sent, self._others)
            self._sent, self._others = [], []

    async def begin(self, ranges: Sequence[tuple[int, int]]) -> None:
        """Note on the disk that messages are about to leave; a thread waits for that."""
        self._is_leaving = True
        try:
            await asyncio.to_thread(self._account.begin, ranges)
        finally:
            self._is_leaving = False


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
        self._rules = rules_of(order, manner, account)
        self._turn = self._behind = 0
        self._ways: dict[int, SendWay] = {}
        self._first_ways: dict[str, int] = {}
        self._is_settled = False
        self._lanes: dict[object, deque[LeavingMessages]] = {}
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._flights = asyncio.Semaphore(speed.in_flight)
        self._moved = asyncio.Event()
        self._waiting = self._waiting_bytes = 0
        self._refusals = 0
        self._stop_reason: str | None = None
        counts = account.states()
        self._doubtful = counts[SendState.SENDING] + counts[SendState.UNKNOWN]
        self._tally = SendTally(counts[SendState.PLANNED] + self._doubtful)
        self._notes = SendNotes(account, self._tally)

    async def run(self) -> None:
        """Send all that is planned, and note what becomes of it; raises `ReplayStopped`, and what the source raises."""
        try:
            await self._settle_doubtful()
            has_more = self._is_settled and self._tally.planned > 0
            if has_more:
                await self._note_ends()
            async for piece in in_a_thread(self._choice.pieces(self._is_over) if has_more else iter(())):
                await self._send(piece)
                if self._is_over():
                    break
            await self._drained()
        finally:
            await self._end()
        if self._stop_reason is not None:
            raise ReplayStopped(self._stop_reason)
        self._account.give_up_planned(GONE)

    async def _end(self) -> None:
        """Wait for the answers that are still to come; what has not left is planned again."""
        if self._waiting:
            self._stop("")
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LAST_ANSWERS_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        self._notes.write()
        if self._is_settled:
            self._account.end_all()
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

    async def _note_ends(self) -> None:
        """Note where the queues end that are sent to from now on: `verify` reads them from there.

        Not of topics that were sent to before and not noted, as where it could not be asked.
        """
        doubtful = (SendState.SENT, SendState.UNKNOWN)
        begun = set() if self._account.has_sent_nothing else {each.topic for each in self._account.by_topic(*doubtful)}
        for name in self._account.topics():
            if name in begun and not self._account.end_of_queues(name):
                continue
            if self._is_over():
                return
            with suppress(ClientError):
                await self._note_ends_of(name)

    async def _note_ends_of(self, name: str) -> None:
        patience = Patience()

        async def ends() -> tuple[str, dict[tuple[str, int], int]]:
            topic = await self._target.topic(name)
            return topic.name, await self._target.ends(topic)

        def gives_up(error: ClientError) -> bool:
            return is_final(error) or self._gives_up(patience, error)

        self._account.end_queues(*await patience.answer(ends, gives_up))

    # -- from the source into lanes ---------------------------------------------------------------------------------

    async def _send(self, piece: Piece) -> None:
        """Give the messages of a piece that are to be sent to their lanes, as soon as there is room."""
        leaving: list[tuple[object, LeavingMessages]] = []
        for run in runs_of(piece, self._rules):
            leaving += await self._leaving(run.parcels() if isinstance(run, PlainRun) else self._parcels(run))
            await asyncio.sleep(0)  # for answers, behind which the next requests leave
        await self._moved_until(lambda: self._waiting <= AHEAD and self._waiting_bytes <= AHEAD_BYTES)
        if self._is_over():
            return
        if leaving:
            await self._notes.begin([(each.first, each.last) for _, each in leaving])
        for lane, each in leaving:
            self._put(lane, each)
        self._report(self._tally)
        await asyncio.sleep(0)

    def _parcels(self, chosen: Sequence[Chosen]) -> Parcels:
        """Messages of which more than bytes is looked at."""
        made = [row_of(each, self._manner, self._account.ways) for each in chosen]
        messages = [b"" if each is None else packed(each) for _, each in made]
        return Parcels(
            [row.planned for row, _ in made],
            b"".join(messages),
            np.cumsum([*map(len, messages)], dtype=np.int64),
            np.array([0 if each is None else each.sys_flag for _, each in made], np.int32),
            [0 if each is None else each.reconsume_times for _, each in made],
            [order_key(each.message) for each in chosen] if self._order == "key" else (),
        )

    async def _leaving(self, parcels: Parcels) -> list[tuple[object, LeavingMessages]]:
        """What is to be sent, as much as one request may hold at a time, each with the lane that it goes by."""
        rows, ends, view = parcels.rows, parcels.ends.tolist(), memoryview(parcels.messages)
        numbers = self._numbers(rows)
        ways = self._together(np.fromiter((-1 if row is None else row[0] for row in rows), np.int64, len(rows)))
        leaving: list[tuple[object, LeavingMessages]] = []
        for start, stop in _stretches(parcels, numbers, ways):
            key = parcels.keys[start] if parcels.keys else ""
            way = await self._way(int(ways[start]), key)
            if way is None:
                continue
            flag, times = int(parcels.flags[start]), parcels.times[start] if parcels.times else 0
            while start < stop:
                begin = ends[start - 1] if start else 0
                end = min(start + self._most_of(way.topic), stop)
                while end > start + 1 and ends[end - 1] - begin > self._limit_of(way.topic):
                    end -= 1
                lane, to = self._lane(way)
                some = view[begin : ends[end - 1]]
                leaving.append((lane, LeavingMessages(int(numbers[start]), end - start, to, flag, some, times)))
                start = end
        return leaving

    def _numbers(self, rows: Sequence[PlannedTuple | None]) -> npt.NDArray[np.int64]:
        """The numbers of messages, 0 for those that are not to be sent.

        They come in the order of the plan, unless the source was changed.
        """
        first = self._behind + 1
        if self._account.planned(first, len(rows)) == rows:
            numbers = np.arange(first, first + len(rows))
        else:
            numbers = np.array(self._account.numbers(rows), np.int64)
        if not numbers.any():
            return numbers
        self._behind = int(numbers.max())
        decided = self._account.decided(int(numbers[numbers > 0].min()), self._behind)
        if decided:
            firsts, lasts = np.array(sorted(decided)).T
            behind = np.maximum.accumulate(np.insert(lasts, 0, 0))  # Of the first ranges, where the last of them ends.
            numbers[numbers <= behind[np.searchsorted(firsts, numbers, "right")]] = 0
        return numbers

    def _together(self, ways: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The ways of messages; where order does not count, the first one to each topic in place of all to it."""
        if self._order != "none":
            return ways
        known, places = np.unique(ways, return_inverse=True)
        topics = ((way, self._account.ways[way].topic) for way in known.tolist() if way >= 0)
        firsts = {way: self._first_ways.setdefault(topic, way) for way, topic in topics}
        return np.array([firsts.get(way, way) for way in known.tolist()], np.int64)[places]

    def _most_of(self, topic: TargetTopic) -> int:
        """How many messages a request to a topic may hold."""
        return 1 if topic.name.startswith(RETRY_PREFIX) else self._most

    def _limit_of(self, topic: TargetTopic) -> int:
        """How many bytes of messages a request to a topic may hold."""
        return min(MOST_BATCH_BYTES, topic.size_limit)

    async def _way(self, number: int, key: str) -> SendWay | None:
        """The queue of the target for messages of a way, or those that share a key; None for none."""
        if not key and number in self._ways:
            return self._ways[number]
        source = self._account.ways[number]
        topic = await self._target.topic(source.topic)
        if topic.problem:
            self._stop(topic.problem)
            return None
        if key:
            return SendWay(topic, topic.queues[abs(java_hash(key)) % len(topic.queues)])
        # The brokers of the source one after the other to those of the target, each queue to the one of its number.
        brokers = list(topic.by_broker.values())
        mine = brokers[self._account.ways.broker(number) % len(brokers)]
        way = self._ways[number] = SendWay(topic, mine[source.queue_id % len(mine)])
        return way

    def _lane(self, way: SendWay) -> tuple[object, SendWay]:
        """The lane that messages go by, and where they go: without order each to the next queue."""
        if self._order != "none":
            return (way.topic.name, way.queue), way
        self._turn += 1
        queues = way.topic.queues
        return self._turn % self._speed.in_flight, SendWay(way.topic, queues[self._turn % len(queues)])

    def _put(self, key: object, leaving: LeavingMessages) -> None:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = deque()
        lane.append(leaving)
        self._waiting += leaving.count
        self._waiting_bytes += len(leaving.packed)
        if key not in self._tasks:
            self._tasks[key] = asyncio.get_running_loop().create_task(self._run_lane(key, lane))

    async def _drained(self) -> None:
        """Wait until all lanes are empty."""
        await self._moved_until(lambda: not self._waiting)

    async def _moved_until(self, is_enough: Callable[[], bool]) -> None:
        """Wait until enough was sent, or nothing more is."""
        while not is_enough() and not self._is_over():
            self._moved.clear()
            try:
                async with asyncio.timeout(STALLED_SECONDS):
                    await self._moved.wait()
            except TimeoutError:
                self._report(self._tally)

    # -- a lane -----------------------------------------------------------------------------------------------------

    async def _run_lane(self, key: object, lane: deque[LeavingMessages]) -> None:
        batch: list[LeavingMessages] = []
        try:
            while lane and not self._is_over():
                async with self._flights:
                    batch = self._next_batch(lane)
                    count = sum(each.count for each in batch)
                    await self._pace.wait(count, self._is_over)
                    await self._deliver(batch)
                self._waiting -= count
                self._waiting_bytes -= sum(len(each.packed) for each in batch)
                self._moved.set()
                batch = []
        except asyncio.CancelledError:
            self._leave_doubtful(batch, "the run was stopped before it came")
            raise
        except Exception as error:  # of the account, say: the run ends with it
            self._is_settled = False
            self._stop(str(error) or type(error).__name__)
        finally:
            del self._tasks[key]  # at once: what comes later to this lane needs another

    def _next_batch(self, lane: deque[LeavingMessages]) -> list[LeavingMessages]:
        """The next messages that one request may hold."""
        first = lane.popleft()
        batch, count, size = [first], first.count, len(first.packed)
        while lane:
            each = lane[0]
            count, size = count + each.count, size + len(each.packed)
            if (
                count > self._most_of(first.way.topic)
                or size > self._limit_of(first.way.topic)
                or each.way.queue != first.way.queue
                or each.way.topic is not first.way.topic
                or each.sys_flag != first.sys_flag
            ):
                break
            batch.append(lane.popleft())
        return batch

    async def _deliver(self, batch: list[LeavingMessages], note: str = "") -> None:
        """Send messages until they are taken, refused, or nothing more is sent; `note` is to be said of them."""
        patience = Patience()
        while True:
            if self._is_over():
                return self._plan_again(batch)
            try:
                answer = await self._request(batch)
            except NotConnected as error:
                if self._fails(patience, error):
                    return self._plan_again(batch)
            except ResponseError as error:
                # That says nothing of a message: its topic was changed, or its rights, since the plan was made.
                if error.is_denied or error.code == ResponseCode.TOPIC_NOT_EXIST:
                    self._stop(str(error))
                    return self._plan_again(batch)
                if error.code not in BUSY:
                    if error.code == ResponseCode.SYSTEM_ERROR:
                        batch = await self._without_stored(batch, str(error), patience)
                    return await self._refused(batch, note, str(error))
                if self._fails(patience, error):
                    return self._plan_again(batch)
            except ClientError as error:
                # It may be stored: what the target has is not sent again.
                note = f"its answer was lost, and the target did not have it: sent again ({error})"
                if self._fails(patience, error):
                    return self._leave_doubtful(batch, str(error))
                batch = await self._without_stored(batch, str(error), patience)
                if not batch:
                    return None
            else:
                self._refusals = 0
                self._note_sent(batch, *answer, note)
                return None
            await patience.pause()

    async def _refused(self, batch: list[LeavingMessages], note: str, reason: str) -> None:
        """Send each of some messages alone, as the refusal may be about one of them; one alone is refused."""
        singles = one_by_one(batch)
        if len(singles) > 1:
            for each in singles:
                await self._deliver([each], note)
        elif singles:
            self._notes.add(singles[0].first, SendState.REFUSED, reason)
            self._refusals += 1
            if self._refusals >= self._speed.most_failures:
                self._stop(f"{self._refusals} messages in a row were refused, the last: {reason}")

    def _note_sent(self, batch: Sequence[LeavingMessages], ids: str, said: str, note: str) -> None:
        """Note messages as sent, with the ids that the target gave them: one of each, or one of all."""
        reason = "; ".join(filter(None, (note, said)))
        left = ids.split(",")
        if len(left) != sum(each.count for each in batch) or len(set(map(len, left))) > 1:
            left = left[:1]  # the account finds those of a range by their length
        for each in batch:
            self._notes.add_sent(each.first, each.count, ",".join(left[: each.count]), reason)
            left = left[each.count :] or left[:1]

    async def _request(self, batch: Sequence[LeavingMessages]) -> tuple[str, str]:
        """Send messages in one request: their ids at the target, and what is to be said of them."""
        first = batch[0]
        topic, queue = first.way.topic, first.way.queue
        now, count = int(time.time() * 1000), sum(each.count for each in batch)
        messages = first.packed if len(batch) == 1 else b"".join(each.packed for each in batch)
        code, fields, body = send_request(
            GROUP, topic.name, first.sys_flag, messages, count, queue.queue_id, now, queue.broker, first.reconsume_times
        )
        answer = await self._client.call(queue.endpoint, code, fields, body, expected=STORED)
        ids = ext_fields_of(answer).get("msgId", "")
        return ids, "" if answer.code == ResponseCode.SUCCESS else f"stored, with {ResponseCode(answer.code).name}"

    def _fails(self, patience: Patience, error: ClientError) -> bool:
        """Count a failure of a request; whether nothing more is sent."""
        patience.failures += 1
        return self._gives_up(patience, error)

    def _gives_up(self, patience: Patience, error: ClientError) -> bool:
        """Stop after many failures of one request; whether nothing more is sent."""
        if patience.failures >= self._speed.most_failures:
            self._stop(f"{patience.failures} failures in a row, the last: {error}")
        return self._is_over()

    async def _without_stored(
        self, batch: Sequence[LeavingMessages], problem: str, patience: Patience
    ) -> list[LeavingMessages]:
        """Return those of some messages with a lost answer that the target does not have; the others are noted as sent.

        Where it cannot be asked they are noted as unknown, and none is left.
        """
        singles = one_by_one(batch)
        ids = await self._asked(batch[0].way.topic, [each.name for each in singles], patience)
        if ids is None:
            self._leave_doubtful(batch, problem)
            return []
        for each, known in zip(singles, ids, strict=True):
            if known:
                self._notes.add_sent(each.first, 1, known, FOUND_THERE)
        return [each for each, known in zip(singles, ids, strict=True) if not known]

    async def _asked(self, topic: TargetTopic, sent: Sequence[SentName], patience: Patience) -> list[str] | None:
        """The ids at the target of what may have been sent, empty for what is not there; None where nothing answers."""
        with suppress(ClientError):
            return await patience.answer(
                lambda: sent_already(self._target, topic, sent), lambda error: self._gives_up(patience, error)
            )
        return None

    def _leave_doubtful(self, batch: Sequence[LeavingMessages], problem: str) -> None:
        self._note_each(batch, SendState.UNKNOWN, f"its answer was lost: {problem}")

    def _plan_again(self, batch: Sequence[LeavingMessages]) -> None:
        self._note_each(batch, SendState.PLANNED)

    def _note_each(self, batch: Sequence[LeavingMessages], state: SendState, reason: str = "") -> None:
        for each in batch:
            for number in range(each.first, each.last + 1):
                self._notes.add(number, state, reason)

    # -- what an earlier process left -------------------------------------------------------------------------------

    async def _settle_doubtful(self) -> None:
        """Ask for what may have been sent by a process that ended: it is sent, or planned again."""
        for piece in self._account.each_sent(SendState.SENDING, SendState.UNKNOWN) if self._doubtful else ():
            for name in dict.fromkeys(each.topic for each in piece):
                if self._is_over():
                    return
                mine = [each for each in piece if each.topic == name]
                topic = await self._target.topic(name)
                ids = None if topic.problem else await self._asked(topic, [each.name for each in mine], Patience())
                for number, each in enumerate(mine):
                    if ids is None:
                        self._notes.add(each.number, SendState.UNKNOWN, topic.problem or "its answer was lost")
                    elif known := ids[number]:
                        self._notes.add_sent(each.number, 1, known, FOUND_THERE)
                    else:
                        self._notes.add(each.number, SendState.PLANNED)
            self._notes.write()
        self._account.end_all()
        self._is_settled = True


def _stretches(
    parcels: Parcels, numbers: npt.NDArray[np.int64], ways: npt.NDArray[np.int64]
) -> Iterator[tuple[int, int]]:
    """Where messages that are to be sent begin and end whose numbers follow one another, and which may go together."""
    is_cut = (np.diff(numbers) != 1) | (np.diff(ways) != 0) | (np.diff(parcels.flags) != 0)
    for more in filter(len, (parcels.times, parcels.keys)):
        is_cut |= np.array([one != other for one, other in itertools.pairwise(more)], bool)
    cuts = (np.flatnonzero(is_cut) + 1).tolist()
    for start, stop in itertools.pairwise([0, *cuts, len(numbers)]):
        if start < stop and numbers[start] > 0:
            yield start, stop
