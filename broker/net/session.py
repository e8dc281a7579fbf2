"""What one client's connection knows, without its socket: bytes in, bytes and wishes out.

A session opens nothing, waits for nothing and starts nothing. Whoever owns the socket, `broker.net.transport`, reports
what happened (bytes came, the client reads no more, a look-up is done), and carries out after each report what the
session then holds: bytes to be sent in `output`, requests that wait in `started` and `replies`, and the `state`, which
says whether to read on:

========  ==================================================  =======  ===============================================
state     meaning                                             reads    leaves by
========  ==================================================  =======  ===============================================
OPEN      all that came is answered, but for part of a frame  yes      what came is too much for one turn: QUEUED
QUEUED    more came than one turn answers                     no       its next turn: OPEN
HELD      the client does not read, or too much of it waits   no       the client reads, or an answer is there: OPEN
ENDING    nothing further is read, what came is answered      no       the last answer: FINISHED
FINISHED  everything is answered: to be closed                discard  the client is gone: LOST
LOST      the client is gone                                  no
========  ==================================================  =======  ===============================================

From OPEN, QUEUED and HELD the end of the stream, a bad frame and the server's stop lead to ENDING. LOST may come at any
time. An ENDING session has turns as a QUEUED one, and is held as a HELD one.

What came and is not answered lies in one of four places. `_part` is the beginning of a frame; it is put before the next
read, for the fast lane. The decoder has the beginning of a frame that is too long for that. `_unread` are bytes nobody
has looked at, since there was no turn for them. `_backlog` are frames that the decoder has cut and no turn has
answered. The last two are never filled together: what comes while there is a backlog is cut into frames too.

One read may hold many frames; their answers go out in one write. Only a request that has to wait gets an object of its
own, so answers may leave in another order than their requests came: clients match them by `opaque`. What a session may
hold, and for how long, is in `broker.limits`; what all hold together is counted by `broker.net.budget`.
"""

from collections.abc import Awaitable
from enum import Enum
from itertools import islice
from time import perf_counter_ns
from typing import Final, Protocol

from broker.metrics.metrics_meter import RESULT_BITS
from broker.metrics.slow_queries import Visit
from broker.net.budget import BudgetedConnection
from broker.net.pending_requests import PendingRequest, PendingRequests
from broker.net.scheduler import SLICE_FRAMES, SMALL_READ, TURN_BYTES, TURN_FRAMES
from broker.net.session_settings import (
    LEFT_OVER,
    NOT_TAKEN,
    OVERLOADED,
    TURN_OVER,
    WANTS_MORE,
    Lane,
    SessionSettings,
    answer_unreadable,
)
from broker.service.dispatcher import Answer, ClientConnection, is_better_unanswered
from broker.service.pending_reply import Outcome, PendingReply, QueuedReplies
from protocol.codes import ResponseCode
from protocol.command import ONEWAY_FLAG, RESPONSE_FLAG, Command, Response, decode_command, encode_response
from protocol.errors import BadCommand, BadFrame, RocketLensError
from protocol.frame import LENGTH_SIZE, Frame
from storage.files.waiting import Unfinished

SHORTEST_FIELD = 6
"""Bytes of a header that one field of a request takes at least, in either form."""

IDLE_SWEEPS = 2
"""Sweeps without a sign of life after which a client is idle."""


class SessionState(Enum):
    """Where a session stands; the module's docstring has the table."""

    OPEN = "open"
    QUEUED = "queued"
    HELD = "held"
    ENDING = "ending"
    FINISHED = "finished"
    LOST = "lost"


# Read for every read of the socket: names of this module cost a third of what members of an enumeration do.
OPEN: Final = SessionState.OPEN
QUEUED: Final = SessionState.QUEUED
HELD: Final = SessionState.HELD
ENDING: Final = SessionState.ENDING
FINISHED: Final = SessionState.FINISHED
LOST: Final = SessionState.LOST


class SessionClient(ClientConnection, BudgetedConnection, Protocol):
    """The client as processors and the budget see it; the session only hands it on, and names it in the log."""


class Session:
    """One client's session.

    `state` is where it stands. `output` are the bytes to be sent, in order, `output_bytes` of them; `started` and
    `replies` are the requests that began to wait. Whoever sends and starts them calls :meth:`take_output`,
    :meth:`take_started` and :meth:`take_replies`. Each method but those that ask may change all of them.
    """

    __slots__ = (
        "_backlog",
        "_budget",
        "_client",
        "_decoder",
        "_dispatcher",
        "_due",
        "_has_rest",
        "_held_bytes",
        "_is_read_slowly",
        "_lane",
        "_limits",
        "_meter",
        "_part",
        "_scheduler",
        "_settings",
        "_sweeps",
        "_unread",
        "_unsent_bytes",
        "output",
        "output_bytes",
        "pending",
        "replies",
        "started",
        "state",
    )

    def __init__(self, settings: SessionSettings, client: SessionClient) -> None:
        self.state = OPEN
        self.output: list[bytes | memoryview] = []
        self.output_bytes = 0
        self.started: list[PendingRequest] = []
        self.replies: list[tuple[PendingReply, Command]] = []
        self.pending = PendingRequests(settings.budget)
        """The requests that wait, and what they hold."""
        self._settings = settings
        self._client = client
        self._dispatcher = settings.dispatcher
        self._lane = settings.lane
        self._budget = settings.budget
        self._limits = settings.budget.limits
        self._scheduler = settings.scheduler
        self._meter = settings.meter
        self._decoder = settings.new_decoder()
        self._part = b""
        self._unread = b""
        self._backlog: list[Frame] = []
        self._due: list[QueuedReplies] = []
        self._held_bytes = 0
        self._has_rest = False
        self._is_read_slowly = False
        self._sweeps = 0
        self._unsent_bytes = 0

    # ------------------------------------------------------------------ what may be asked

    @property
    def is_held(self) -> bool:
        """Whether nothing is answered at present: the client does not read, or too many of its requests wait."""
        return self._is_read_slowly or (self.pending.cost > 0 and self.pending.is_much())

    @property
    def wants_turn(self) -> bool:
        """Whether it is to stand in the line for a turn."""
        if self.state is ENDING:
            return bool(self._backlog or self._unread) and not self.is_held
        return self.state is QUEUED

    @property
    def owes_rest(self) -> bool:
        """Whether the client has begun a request and is to send the rest, and nothing of it waits for us."""
        return self.state is OPEN and (bool(self._part) or self._decoder.needs_more)

    @property
    def is_answered(self) -> bool:
        """Whether everything that came as a whole is answered, and every answer is in `output` or was."""
        return not (self._backlog or self._unread or self._due or self.pending.cost)

    # ------------------------------------------------------------------ what is to be done

    def take_output(self) -> tuple[list[bytes | memoryview], int]:
        """What is to be sent, and how many bytes that is; it is not kept here any longer."""
        output, size = self.output, self.output_bytes
        self.output, self.output_bytes = [], 0
        return output, size

    def take_started(self) -> list[PendingRequest]:
        """The requests for which something is to be begun, see :class:`PendingRequest`."""
        started, self.started = self.started, []
        return started

    def take_replies(self) -> list[tuple[PendingReply, Command]]:
        """The replies that are to be delivered to this client once they are there, with their requests."""
        replies, self.replies = self.replies, []
        return replies

    # ------------------------------------------------------------------ what the socket reports

    def receive_data(self, data: bytes) -> bytes | None:
        """Take what the client sent, and answer all requests that are complete.

        Returns the answers where they are all that is to be done, and None where there is more or nothing: then it is
        in `output` and the rest. What most reads are, whole requests of which the lane takes each, costs one call of it
        and no object besides the answers.
        """
        meter = self._meter
        if meter is not None:
            meter.received += len(data)
        self._sweeps = 0
        state = self.state
        lane = self._lane
        if state is OPEN and lane is not None and not self._has_rest and len(data) <= SMALL_READ:
            started = 0 if meter is None else perf_counter_ns()
            answered = lane.answer(data, 0, len(data), self._client)
            if answered[1] == len(data):
                if meter is not None:
                    self._end_lane_turn(started, len(data), len(answered[0]))
                return answered[0]
            self._after_lane(data, self._take_lane(lane, data, len(data), answered, started))
        elif state is OPEN:
            if len(data) > SMALL_READ and self._scheduler.must_wait(len(data)) and not self._decoder.needs_more:
                self._unread = self._part + data
                self._part = b""
                self.state = QUEUED
                self._count_held(is_new=False)
            else:
                self._take(data)
        elif state is QUEUED or state is HELD:
            self._keep(data)
        # Otherwise nothing is read any more, and what comes is thrown away.
        return None

    def receive_eof(self) -> None:
        """The client will ask no more, but may still read: its look-ups are finished, then the session is.

        What waits for something else, for a message to arrive perhaps, is given up: the client may be gone altogether.
        """
        self.pending.give_up(but_look_ups=True)
        self.end()

    def pause_writing(self) -> None:
        """The client does not read as fast as it asks."""
        self._is_read_slowly = True
        self._budget.reads_slowly(self._client)
        if self.state is OPEN or self.state is QUEUED:
            self.state = HELD

    def resume_writing(self) -> None:
        """The client has read most of what it was sent; due replies come first, then :meth:`go_on`."""
        self._is_read_slowly = False
        self._budget.reads_again(self._client)

    def connection_lost(self) -> None:
        """Forget what waits: nobody is there to be answered."""
        self.state = LOST
        self._backlog.clear()
        self._unread = b""
        self._due.clear()
        self.output.clear()
        self.output_bytes = 0
        self._give_up_pending()

    # ------------------------------------------------------------------ what the server reports

    def end(self) -> None:
        """Read nothing further, and finish what is in flight."""
        if self.state is OPEN or self.state is QUEUED or self.state is HELD:
            self.state = ENDING
        self._finish_when_answered()

    def push(self, frame: bytes) -> None:
        """Send a frame that answers nothing; not to a client that is gone or does not read."""
        if self._is_read_slowly or not (self.state is OPEN or self.state is QUEUED or self.state is HELD):
            return
        self.output.append(frame)
        self.output_bytes += len(frame)
        if self._meter is not None:
            self._meter.sent += len(frame)

    def go_on(self) -> None:
        """Use a turn, or what a change of things allows: answer what was left, then have reading go on."""
        if self.state is LOST:
            return
        if self.is_held:
            self._settle()
            return
        was_reading = self.state is OPEN
        backlog, self._backlog = self._backlog, []
        unread, self._unread = self._unread, b""
        if backlog:
            self._answer_frames(backlog)
        elif unread:
            # The fast lane is not taken while there is a backlog, so there are never both.
            self._take(unread)
        self._settle()
        is_read_again = self.state is OPEN and not was_reading
        # What began while its client could not send on has its time from now on.
        if backlog or (is_read_again and self._held_bytes):
            self._count_held(is_new=True)

    def is_idle(self, unsent_bytes: int) -> bool:
        """Whether the client gave no sign of life since so many calls as `IDLE_SWEEPS`; one is due each half period.

        A request, one that waits, and bytes that left count; `unsent_bytes` are those that have not.
        """
        if self.pending.cost or unsent_bytes != self._unsent_bytes:
            self._sweeps = 0
        self._unsent_bytes = unsent_bytes
        self._sweeps += 1
        return self._sweeps > IDLE_SWEEPS

    # ------------------------------------------------------------------ answers that come later

    def resolve(self, request: PendingRequest, outcome: "Answer | BaseException | None") -> None:
        """Answer a request that had to wait, and take up what was held because of it; None: it was given up."""
        self.pending.remove(request)
        if outcome is not None:
            self._answer_later(request, outcome)
        if self.state is LOST:
            self._give_up_pending()
        self.go_on()

    def reply(self, replies: list[PendingReply], outcome: Outcome) -> None:
        """Take one answer to several requests; it is due as long as :meth:`send_due` says."""
        self.pending.replied(replies)
        if self.state is LOST:
            return
        if not isinstance(outcome, Response):
            outcome = self._dispatcher.failure(Command(code=replies[0].code), outcome)
        if not self._settings.checks:
            self._note_due(replies, outcome)
            return
        for each in replies:
            self._note_due(
                [each], self._settings.checked(each.command or Command(code=each.code), self._client, outcome)
            )

    def send_due(self) -> bool:
        """Put about a turn of due replies into the output; False when there are none or the client does not read."""
        if not self._due or self._is_read_slowly:
            return False
        pieces, size, is_all = self._due[0].piece(TURN_BYTES)
        if is_all:
            del self._due[0]
        self.output += pieces
        self.output_bytes += size
        if self._meter is not None:
            self._meter.sent += size
        return True

    def _answer_later(self, request: PendingRequest, outcome: "Answer | BaseException") -> None:
        command = request.command
        answer = self._dispatcher.failure(command, outcome) if isinstance(outcome, BaseException) else outcome
        if isinstance(answer, PendingReply):
            self._add_reply(command, answer)
        elif not isinstance(answer, Response):
            self._start(PendingRequest(command, Visit(), answer))
        elif self.state is not LOST:
            size = self._append(command, answer)
            self.output_bytes += size
            if self._meter is not None:
                self._meter.end_wait(command, request.visit, size, self._client.peer_address)

    def _note_due(self, replies: list[PendingReply], response: Response) -> None:
        """Note that an answer is to be sent to some requests."""
        try:
            due = QueuedReplies(replies, response)
        except RocketLensError as error:
            due = QueuedReplies(replies, self._dispatcher.failure(Command(code=replies[0].code), error))
        if self._meter is not None:
            self._meter.answered_later(replies[0].code, response.code, len(replies))
        self._due.append(due)

    def _start(self, request: PendingRequest) -> None:
        """Have a request wait for a thread or for somebody else."""
        if self._meter is not None:
            self._meter.begin_wait(request.visit)
        self.pending.add(request)
        self.started.append(request)

    def _add_reply(self, command: Command, reply: PendingReply) -> None:
        """Have a request wait for what many wait for."""
        if self._meter is not None:
            self._meter.held()
        if self._settings.checks:
            reply.command = command
        self.pending.add_reply(command, reply)
        self.replies.append((reply, command))

    def _give_up_pending(self) -> None:
        self.pending.give_up()
        self.replies.clear()

    # ------------------------------------------------------------------ what came

    def _keep(self, data: bytes) -> None:
        """Keep what was read before reading could be paused."""
        if self._unread:
            self._unread += data
            self._count_held(is_new=False)
        elif (
            len(data) > SMALL_READ
            and self._scheduler.must_wait(len(data))
            and not (self._backlog or self._decoder.needs_more)
        ):
            self._unread = self._part + data
            self._part = b""
            self._settle(wants_turn=True)
            self._count_held(is_new=False)
        elif self._backlog or self.is_held:
            data, self._part = self._part + data, b""
            self._decode(data, len(data), is_new=False)
        else:
            self._take(data)

    def _take(self, data: bytes) -> None:
        """Answer what `data` completes, in the fast lane as far as that goes; there is no backlog."""
        if self._part:
            data, self._part = self._part + data, b""
        lane = self._lane
        if lane is None or self._decoder.needs_more:
            self._decode(data, len(data), is_new=False)
            return
        started = 0 if self._meter is None else perf_counter_ns()
        stop = len(data) if len(data) <= SMALL_READ else self._scheduler.stop(len(data))
        answered = lane.answer(data, 0, stop, self._client)
        self._after_lane(data, self._take_lane(lane, data, stop, answered, started))

    def _after_lane(self, data: bytes, left: bytes) -> None:
        """Have the decoder judge what the lane has left of `data`, and say where the session stands."""
        if self._part or self._unread or self._held_bytes or left:
            # What the lane answered is not there any more.
            is_new = len(left) + len(self._part) + len(self._unread) < len(data)
            if left and self.state is not ENDING:
                self._decode(left, len(data), is_new=is_new)
                return
            self._count_held(is_new=is_new)
        if self.state is ENDING:
            self._finish_when_answered()
        elif self._unread or (self.pending.cost and self.is_held):
            self._settle()

    def _take_lane(self, lane: Lane, data: bytes, stop: int, answered: tuple[bytes, int, int], started: int) -> bytes:
        """Answer what the fast lane takes, and one by one what it does not; returns what the decoder is to judge.

        The lane has `answered` as far as it could, looking up to `stop`, in a turn that began at `started` (ns). When
        the turn is over or the session held, the rest is kept as it came: the next turn starts in the lane.
        """
        answers, position, reason = answered
        size = 0
        is_bad = False
        for number in range(TURN_FRAMES):
            if number:
                answers, position, reason = lane.answer(data, position, stop, self._client)
            if answers:
                self.output.append(answers)
                size += len(answers)
            if reason == WANTS_MORE and not position and stop < len(data):
                # A frame longer than a slice.
                stop = len(data)
                continue
            if reason != NOT_TAKEN or size >= TURN_BYTES or (self.pending.cost and self.is_held):
                break
            end = position + LENGTH_SIZE + int.from_bytes(data[position : position + LENGTH_SIZE])
            try:
                (frame,) = self._decoder.feed(data[position:end])
            except BadFrame as error:
                self._distrust(error)
                is_bad = True
                break
            position = end
            size += self._answer(frame)
        self.output_bytes += size
        self._end_lane_turn(started, position, size)
        if is_bad:
            return b""
        if stop < len(data):
            # Cut by us, not by the client.
            reason = TURN_OVER
        if reason == LEFT_OVER or (reason == WANTS_MORE and self._settings.is_for_decoder(data, position)):
            return data[position:]
        if reason == WANTS_MORE:
            self._part = data[position:]
        else:
            self._unread = data[position:]
        return b""

    def _end_lane_turn(self, started: int, position: int, size: int) -> None:
        """Count a turn that began at `started` (ns), answered requests up to a position with so many bytes."""
        if position > SMALL_READ:
            self._scheduler.spend(position)
        meter = self._meter
        if meter is not None:
            meter.sent += size  # and so on as in `end_turn`
            elapsed = perf_counter_ns() - started
            meter.note_turn(elapsed)
            if meter.answers or elapsed > meter.limit:
                meter.count_answers(elapsed, self._client.peer_address)

    def _decode(self, data: bytes, read_bytes: int, *, is_new: bool) -> None:
        """Cut `data`, what is left of so many bytes, into frames; answer them, or keep them for the next turn."""
        try:
            frames = self._decoder.feed(data)
        except BadFrame as error:
            frames = self._distrust(error)
        if self._backlog or self.is_held or self._scheduler.must_wait(read_bytes):
            # Read before reading could be paused, or too much for this turn: the turn that empties the backlog answers.
            self._backlog += frames
            self._settle(wants_turn=True)
        else:
            self._scheduler.spend(read_bytes)
            self._answer_frames(frames)
            if self._backlog or self.pending.cost or self.state is not OPEN:
                self._settle()
        self._count_held(is_new=is_new or bool(frames))

    def _answer_frames(self, frames: list[Frame]) -> None:
        """Answer frames until the turn is over or the session is held; the rest becomes the backlog."""
        started = 0 if self._meter is None else perf_counter_ns()
        remaining = iter(frames)
        size = 0
        for frame in islice(remaining, SLICE_FRAMES if self._scheduler.is_crowded else TURN_FRAMES):
            size += self._answer(frame)
            if size >= TURN_BYTES or (self.pending.cost and self.is_held):
                break
        self.output_bytes += size
        if self._meter is not None:
            self._meter.end_turn(started, size, self._client.peer_address)
        self._backlog = list(remaining)

    def _count_held(self, *, is_new: bool) -> None:
        """Report what is held of requests that cannot be answered yet; `is_new` when one was completed since.

        To be called while anything is held, and once when that has ended.
        """
        size = self._decoder.buffered + len(self._part) + len(self._unread)
        if self._backlog:
            size += sum(len(header) + len(body) for _, header, body in self._backlog)
        self._has_rest = size > 0 or (self._lane is not None and self._decoder.needs_more)
        if size or self._held_bytes:
            self._held_bytes = size
            self._budget.holds(self._client, size, is_new=is_new)

    # ------------------------------------------------------------------ one request

    def _answer(self, frame: Frame) -> int:
        """Answer one frame, at once if that can be; returns the bytes appended to the output."""
        try:
            command = decode_command(frame)
        except BadCommand as error:
            return self._append(*answer_unreadable(error))
        if command.flag & RESPONSE_FLAG:
            if self._settings.replied is not None:
                self._settings.replied(self._client, command)
            return 0
        if len(frame[1]) > SHORTEST_FIELD * self._limits.ext_fields:
            refused = self._settings.too_many_fields(command)
            if refused is not None:
                return self._append(command, refused)
        answer = self._dispatcher.dispatch(command, self._client)
        if isinstance(answer, Response):
            return self._append(command, answer)
        if isinstance(answer, Unfinished):
            if self._is_overloaded():
                return self._append(command, OVERLOADED)
            self._start(PendingRequest(command, Visit(answer.wait), answer))
            return 0
        if isinstance(answer, PendingReply):
            if self._is_overloaded():
                answer.give_up()
                return self._append(command, OVERLOADED)
            self._add_reply(command, answer)
            return 0
        if self._is_overloaded():
            _discard(answer)
            return self._append(command, OVERLOADED)
        self._start(PendingRequest(command, Visit(), answer))
        return 0

    def _is_overloaded(self) -> bool:
        """Whether no further request of anybody may wait."""
        return self._budget.in_flight > self._limits.in_flight_bytes

    def _append(self, command: Command, response: Response) -> int:
        """Encode an answer into the output unless its request wants none, or there is to be none; returns its bytes."""
        if self._settings.checks:
            response = self._settings.checked(command, self._client, response)
        if command.flag & ONEWAY_FLAG or (response.code and is_better_unanswered(command.code, response.code)):
            if self._meter is not None:
                self._meter.answers.append(command.code << RESULT_BITS | response.code)
            return 0
        try:
            prefix = encode_response(command, response)
        except Exception as error:
            response = self._dispatcher.failure(command, error)
            prefix = encode_response(command, response)
        if len(prefix) + len(response.body) > self._settings.frame_limit:
            # Lists of a huge store; what holds records is cut where it is made.
            remark = f"the answer has {len(response.body)} bytes, more than clients accept in a frame"
            response = Response(ResponseCode.SYSTEM_ERROR, remark)
            prefix = encode_response(command, response)
        if self._meter is not None:
            self._meter.answers.append(command.code << RESULT_BITS | response.code)
        self.output.append(prefix)
        if not response.body:
            return len(prefix)
        self.output.append(response.body)
        return len(prefix) + len(response.body)

    # ------------------------------------------------------------------ from state to state

    def _settle(self, *, wants_turn: bool = False) -> None:
        """Say where an open session stands after what happened; an ending one may be finished."""
        if self.state is ENDING:
            self._finish_when_answered()
        elif self.state is OPEN or self.state is QUEUED or self.state is HELD:
            if self.is_held:
                self.state = HELD
            elif wants_turn or self._backlog or self._unread:
                self.state = QUEUED
            else:
                self.state = OPEN

    def _distrust(self, error: BadFrame) -> list[Frame]:
        """Trust nothing further of this stream; returns the frames before the bad one."""
        self._budget.complain("%s: %s; connection closed", self._client.peer_address, error)
        self.state = ENDING
        return error.frames

    def _finish_when_answered(self) -> None:
        """Finish an ending session once everything received is answered."""
        if self.state is ENDING and self.is_answered:
            self.state = FINISHED


def _discard(answer: "Awaitable[Response]") -> None:
    """Have what would be waited for come to nothing: a coroutine that was not started, or a future."""
    stop = getattr(answer, "close", None) or getattr(answer, "cancel", None)
    if stop is not None:
        stop()
