"""Send what an account has planned: in the order of queues or keys, at a rate, and ask where an answer is lost.

Messages go by lanes, of which each has one request in flight: a lane for each queue of the target, so that its messages
keep their order, or, where order does not count, as many as requests may be in flight. A lane that got no answer asks
the target for what it sent before it sends that again.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from broker.cluster.client import Client, ClientError, NotConnected, ResponseError
from protocol.checksum import body_crc
from protocol.codes import ResponseCode
from protocol.command import ext_fields_of
from protocol.java_hash import java_hash
from protocol.properties import UNIQ_KEY, property_value
from protocol.sending import BUSY, STORED, packed, properties_of_packed, send_request
from protocol.system_topics import RETRY_PREFIX
from rocketlens.arguments import never
from rocketlens.replay.account import PlannedTuple, ReplayAccount, SendState, SentName
from rocketlens.replay.choice import Chosen, Piece, PlainPiece, ReplayChoice
from rocketlens.replay.plan import in_a_thread, sent_already
from rocketlens.replay.resent import ORIGIN, NotResent, ResendManner, order_key, plain_rules, resent, source_queue
from rocketlens.replay.target import ReplayTarget, TargetQueue, TargetTopic

Answer = TypeVar("Answer")

GROUP: Final = "ROCKETLENS_REPLAY"
"""The producer group that messages are sent in."""

AHEAD: Final = 4096
"""Messages that are read ahead of the sending; they are noted as leaving in one change."""
AHEAD_BYTES: Final = 64 * 1024 * 1024
NOTED_SECONDS: Final = 0.2
"""How often what became of messages is noted."""
NOTED_MOST: Final = 2000

CHANGED: Final = "it was changed in the source since the plan was made: --fresh plans anew"
FOUND_THERE: Final = "its answer was lost, and the target has it"

FIRST_PAUSE_SECONDS: Final = 0.1
LONGEST_PAUSE_SECONDS: Final = 5.0
STALLED_SECONDS: Final = 0.5
LAST_ANSWERS_SECONDS: Final = 3.0
"""How long a run that is stopped waits for answers; what has none by then is asked for by the next run."""

OF_THE_TOPIC: Final = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST})
"""Answers that say nothing of a message: its topic was changed, or its rights, since the plan was made."""

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


@dataclass(slots=True, eq=False)
class SendWay:
    """Where messages of one queue of the source go."""

    topic: TargetTopic
    queue: TargetQueue


@dataclass(slots=True)
class LeavingMessage:
    """A message that is to be sent now."""

    number: int
    way: "SendWay"
    sys_flag: int
    packed: bytes
    reconsume_times: int = 0

    @property
    def name(self) -> SentName:
        """By what it is found at the target."""
        properties = properties_of_packed(self.packed)
        return SentName(property_value(properties, UNIQ_KEY) or "", property_value(properties, ORIGIN) or "")


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
    """Outcomes of messages, which are noted in the account some times a second."""

    def __init__(self, account: ReplayAccount, tally: SendTally) -> None:
        self._account, self._tally = account, tally
        self._waiting: list[tuple[int, SendState, str, str]] = []
        self._last = time.monotonic()

    def add(self, number: int, state: SendState, sent_id: str = "", reason: str = "") -> None:
        """Note one soon."""
        self._waiting.append((number, state, sent_id, reason))
        if state is not SendState.PLANNED:
            self._tally.done += 1
        self._write_in_time()

    def add_sent(self, numbers: Sequence[int], ids: Sequence[str], said: str) -> None:
        """Note soon that messages were sent, with their ids at the target."""
        self._waiting += [(number, SendState.SENT, each, said) for number, each in zip(numbers, ids, strict=True)]
        self._tally.done += len(numbers)
        self._write_in_time()

    def _write_in_time(self) -> None:
        if len(self._waiting) >= NOTED_MOST or time.monotonic() - self._last > NOTED_SECONDS:
            self.write()

    def write(self) -> None:
        """Note all now; what could not be noted, as on a full disk, is kept until it can."""
        self._last = time.monotonic()
        if self._waiting:
            self._account.note(self._waiting)
            self._waiting = []


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
        # Which messages share a key is in their properties, which a kernel does not look at.
        self._rules = None if order == "key" else plain_rules(manner)
        self._place = self._behind = 0
        self._brokers: dict[str, int] = {}
        self._ways: dict[tuple[str, str, int], SendWay] = {}
        self._ways_to: dict[tuple[str, TargetQueue], SendWay] = {}
        self._is_settled = False
        self._lanes: dict[object, deque[LeavingMessage]] = {}
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._flights = asyncio.Semaphore(speed.in_flight)
        self._moved = asyncio.Event()
        self._waiting = self._waiting_bytes = 0
        self._refusals = 0
        self._stop_reason: str | None = None
        counts = account.states()
        self._tally = SendTally(counts[SendState.PLANNED] + counts[SendState.SENDING] + counts[SendState.UNKNOWN])
        self._notes = SendNotes(account, self._tally)

    async def run(self) -> None:
        """Send all that is planned, and note what becomes of it; raises `ReplayStopped`, and what the source raises."""
        try:
            await self._settle_doubtful()
            has_more = self._is_settled and self._account.has_planned
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
        self._account.give_up_planned("the source does not have it any more")

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

        Not of topics that were sent to before and not noted, as by an earlier version, or where it may not be asked.
        """
        doubtful = (SendState.SENT, SendState.UNKNOWN)
        begun = set() if self._account.has_sent_nothing else {each.topic for each in self._account.by_topic(*doubtful)}
        for planned in self._account.by_topic(SendState.PLANNED):
            if planned.topic in begun and not self._account.end_of_queues(planned.topic):
                continue
            if self._is_over():
                return
            with suppress(ClientError):
                await self._note_ends_of(planned.topic)

    async def _note_ends_of(self, name: str) -> None:
        patience = Patience()

        async def ends() -> tuple[str, dict[tuple[str, int], int]]:
            topic = await self._target.topic(name)
            return topic.name, await self._target.ends(topic)

        def gives_up(error: ClientError) -> bool:
            is_final = isinstance(error, ResponseError) and error.code not in BUSY
            return is_final or self._gives_up(patience, error)

        self._account.end_queues(*await patience.answer(ends, gives_up))

    # -- from the source into lanes ---------------------------------------------------------------------------------

    async def _send(self, piece: Piece) -> None:
        """Give the messages of a piece that are to be sent to their lanes, as soon as there is room."""
        all_of_it = piece.parcels(self._rules) if isinstance(piece, PlainPiece) else piece
        for start in range(0, len(all_of_it), AHEAD // 2):
            some = all_of_it[start : start + AHEAD // 2]
            rows = self._rows([one.place if isinstance(one, Chosen) else one[0] for one in some])
            leaving: list[LeavingMessage] = []
            for one, row in zip(some, rows, strict=True):
                host = str(one.message.store_host) if isinstance(one, Chosen) else one[4]
                if host not in self._brokers:
                    # Of all, sent or not: so a broker of the source has one at the target in each run.
                    self._brokers[host] = len(self._brokers)
                if row is None or row[2] != SendState.PLANNED:
                    continue
                if isinstance(one, Chosen):
                    if (made := await self._leaving(row, one)) is not None:
                        leaving.append(made)
                    continue
                _, key, topic, crc, _, queue_id, sys_flag, inner = one
                _, number, _, planned_topic, planned_key, planned_crc = row
                if crc != planned_crc or key != planned_key or topic != planned_topic:
                    self._notes.add(number, SendState.REFUSED, reason=CHANGED)
                    continue
                way = self._ways.get((topic, host, queue_id)) or await self._way(topic, host, queue_id, "")
                if way is not None:
                    leaving.append(LeavingMessage(number, way, sys_flag, inner))
            await self._moved_until(lambda: self._waiting <= AHEAD and self._waiting_bytes <= AHEAD_BYTES)
            if self._is_over():
                return
            if leaving:
                self._account.begin(each.number for each in leaving)
            for each in leaving:
                self._put(each)
            self._report(self._tally)
            await asyncio.sleep(0)

    def _rows(self, places: list[str]) -> Sequence[PlannedTuple | None]:
        """What was planned for messages: they come in the order of the plan, unless the source was changed."""
        rows = self._account.in_order(self._behind, len(places))
        if [row[0] for row in rows] == places:
            self._behind = rows[-1][1]
            return rows
        known = {row[0]: row for row in rows}
        if missing := [place for place in places if place not in known]:
            known |= {row[0]: row for row in self._account.of_places(missing)}
        found = [known.pop(place, None) for place in places]
        self._behind = max((row[1] for row in found if row is not None), default=self._behind)
        return found

    async def _leaving(self, row: PlannedTuple, chosen: Chosen) -> LeavingMessage | None:
        """Make the message to send; None where it is not the one that was planned, or its topic takes nothing now."""
        try:
            outgoing = resent(chosen.message, self._manner)
        except NotResent as error:
            self._notes.add(row[1], SendState.REFUSED, reason=str(error))
            return None
        key = property_value(outgoing.properties, UNIQ_KEY) or ""
        if (outgoing.topic, key, body_crc(outgoing.body)) != row[3:]:
            self._notes.add(row[1], SendState.REFUSED, reason=CHANGED)
            return None
        message = chosen.message
        shared = order_key(message) if self._order == "key" else ""
        way = await self._way(outgoing.topic, str(message.store_host), source_queue(message), shared)
        if way is None:
            return None
        return LeavingMessage(row[1], way, outgoing.sys_flag, packed(outgoing), outgoing.reconsume_times)

    async def _way(self, name: str, host: str, queue_id: int, key: str) -> SendWay | None:
        """The queue of the target for messages of a queue of the source, or those that share a key; None for none."""
        topic = await self._target.topic(name)
        if topic.problem:
            self._stop(topic.problem)
            return None
        if key:
            queue = topic.queues[abs(java_hash(key)) % len(topic.queues)]
        else:
            # The brokers of the source one after the other to those of the target, each queue to the one of its number.
            brokers = list(topic.by_broker.values())
            mine = brokers[self._brokers[host] % len(brokers)]
            queue = mine[queue_id % len(mine)]
        way = self._way_to(topic, queue)
        if not key:
            self._ways[name, host, queue_id] = way
        return way

    def _way_to(self, topic: TargetTopic, queue: TargetQueue) -> SendWay:
        return self._ways_to.setdefault((topic.name, queue), SendWay(topic, queue))

    def _put(self, leaving: LeavingMessage) -> None:
        key: object = leaving.way
        if self._order == "none":
            turn = self._place // self._speed.batch
            self._place += 1
            key, topic = turn % self._speed.in_flight, leaving.way.topic
            leaving.way = self._way_to(topic, topic.queues[turn % len(topic.queues)])
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = deque()
        lane.append(leaving)
        self._waiting += 1
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

    async def _run_lane(self, key: object, lane: deque[LeavingMessage]) -> None:
        batch: list[LeavingMessage] = []
        try:
            while lane and not self._is_over():
                async with self._flights:
                    batch = self._next_batch(lane)
                    await self._pace.wait(len(batch), self._is_over)
                    await self._deliver(batch)
                self._waiting -= len(batch)
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

    def _next_batch(self, lane: deque[LeavingMessage]) -> list[LeavingMessage]:
        """The next messages that one request may hold."""
        batch = [lane.popleft()]
        first, size = batch[0], len(batch[0].packed)
        most = 1 if first.way.topic.name.startswith(RETRY_PREFIX) else self._most
        limit = min(MOST_BATCH_BYTES, first.way.topic.size_limit)
        while lane and len(batch) < most:
            each = lane[0]
            size += len(each.packed)
            if size > limit or each.way is not first.way or each.sys_flag != first.sys_flag:
                break
            batch.append(lane.popleft())
        return batch

    async def _deliver(self, batch: list[LeavingMessage], note: str = "") -> None:
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
                if error.code in OF_THE_TOPIC:
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
                ids, said = answer
                self._notes.add_sent([each.number for each in batch], ids, "; ".join(filter(None, (note, said))))
                return None
            await patience.pause()

    async def _refused(self, batch: list[LeavingMessage], note: str, reason: str) -> None:
        """Send each of some messages alone, as the refusal may be about one of them; one alone is refused."""
        if len(batch) > 1:
            for each in batch:
                await self._deliver([each], note)
        elif batch:
            self._notes.add(batch[0].number, SendState.REFUSED, reason=reason)
            self._refusals += 1
            if self._refusals >= self._speed.most_failures:
                self._stop(f"{self._refusals} messages in a row were refused, the last: {reason}")

    async def _request(self, batch: Sequence[LeavingMessage]) -> tuple[list[str], str]:
        """Send messages in one request: their ids at the target, and what is to be said of them."""
        first = batch[0]
        topic, queue = first.way.topic, first.way.queue
        now, messages = int(time.time() * 1000), [each.packed for each in batch]
        code, fields, body = send_request(
            GROUP, topic.name, first.sys_flag, messages, queue.queue_id, now, queue.broker, first.reconsume_times
        )
        answer = await self._client.call(queue.endpoint, code, fields, body, expected=STORED)
        ids = ext_fields_of(answer).get("msgId", "").split(",")
        ids = ids if len(ids) == len(batch) else [ids[0]] * len(batch)
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
        self, batch: Sequence[LeavingMessage], problem: str, patience: Patience
    ) -> list[LeavingMessage]:
        """Return those of some messages with a lost answer that the target does not have; the others are noted as sent.

        Where it cannot be asked they are noted as unknown, and none is left.
        """
        ids = await self._asked(batch[0].way.topic, [each.name for each in batch], patience)
        if ids is None:
            self._leave_doubtful(batch, problem)
            return []
        for each, known in zip(batch, ids, strict=True):
            if known:
                self._notes.add(each.number, SendState.SENT, known, FOUND_THERE)
        return [each for each, known in zip(batch, ids, strict=True) if not known]

    async def _asked(self, topic: TargetTopic, sent: Sequence[SentName], patience: Patience) -> list[str] | None:
        """The ids at the target of what may have been sent, empty for what is not there; None where nothing answers."""
        with suppress(ClientError):
            return await patience.answer(
                lambda: sent_already(self._target, topic, sent), lambda error: self._gives_up(patience, error)
            )
        return None

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
                ids = None if topic.problem else await self._asked(topic, [each.name for each in mine], Patience())
                for number, each in enumerate(mine):
                    if ids is None:
                        self._notes.add(each.number, SendState.UNKNOWN, reason=topic.problem or "its answer was lost")
                    elif known := ids[number]:
                        self._notes.add(each.number, SendState.SENT, known, FOUND_THERE)
                    else:
                        self._notes.add(each.number, SendState.PLANNED)
            self._notes.write()
        self._account.end_all()
        self._is_settled = True
