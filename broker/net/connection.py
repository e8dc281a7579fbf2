"""One client's TCP connection: frames in, answers out, and a bound on what it can cost.

One read may hold many frames; their answers go out in one write. Only a request that has to wait gets a future, so
answers may leave in another order than their requests came: clients match them by `opaque`.

A connection is *held* while its client does not read what it was sent, or while too many of its requests wait. A held
connection answers nothing further and reads nothing further; frames it has already received stay in the backlog. What
it may hold, and for how long, is in `broker.limits`; what all hold together is counted by `broker.net.budget`.
"""

import asyncio
from functools import partial
from itertools import islice
from time import perf_counter_ns
from typing import Any, cast

from broker.endpoint import Endpoint
from broker.lane.fast_lane import LEFT_OVER, NOT_TAKEN, TURN_OVER, WANTS_MORE, FastLane
from broker.metrics.metrics_meter import RESULT_BITS
from broker.metrics.slow_queries import Visit
from broker.net.connection_settings import OVERLOADED, ConnectionSettings, answer_unreadable
from broker.net.proxy_protocol import ProxyHeader
from broker.net.scheduler import SLICE_FRAMES, SMALL_READ, TURN_BYTES, TURN_FRAMES
from broker.net.waiting import Waiting
from broker.net.writing import close_gently, write_pieces
from broker.service.dispatcher import Answer, is_better_unanswered
from broker.service.pending_reply import Deferred, DueAnswers, Outcome
from protocol.codes import ResponseCode
from protocol.command import ONEWAY_FLAG, RESPONSE_FLAG, Command, Response, decode_command, encode_response
from protocol.errors import BadCommand, BadFrame, RocketLensError
from protocol.frame import Frame
from storage.files.residency import Cold

NO_HEADER = ProxyHeader(0)

SHORTEST_FIELD = 6
"""Bytes of a header that one field of a request takes at least, in either form."""

IDLE_SWEEPS = 2
"""Sweeps without a sign of life after which a connection is closed."""


class Connection(asyncio.Protocol):
    """The protocol object of one connection.

    `local_address` is our address as this client reached it, `peer_address` the client's own; a PROXY `header` tells
    both for a client behind a proxy. `port_distance` is what to add to the local port to get the main port, for
    connections to the VIP port.
    """

    local_address: Endpoint
    peer_address: Endpoint
    _transport: asyncio.Transport

    def __init__(self, settings: ConnectionSettings, port_distance: int = 0, header: ProxyHeader | None = None) -> None:
        self._settings = settings
        self._dispatcher = settings.dispatcher
        self._costs = settings.costs
        self._turns = settings.turns
        self._limits = settings.costs.limits
        self._meter = settings.meter
        self._port_distance = port_distance
        self._header = header
        self._is_tls = False
        self._decoder = settings.new_decoder()
        self._backlog: list[Frame] = []
        self._rest = b""
        self._beginning = b""
        self._waiting = Waiting(settings.costs)
        self._due: list[DueAnswers] = []
        self._held_bytes = 0
        self._reader_is_slow = False
        self._ending = self._peer_ended = self._finished = self._lost = False
        self._sweeps = 0
        self._unread_bytes = 0

    @property
    def is_open(self) -> bool:
        """Whether the client is still there."""
        return not self._lost

    # ------------------------------------------------------------------ what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember both addresses; they cannot be asked for once the client is gone."""
        # uvloop's transports are no subclass of asyncio's.
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=self._limits.unsent_bytes_per_connection)
        header = self._header or NO_HEADER
        host, port = header.destination or Endpoint.of_socket(transport.get_extra_info("sockname"))
        self.local_address = Endpoint(host, port + self._port_distance)
        self.peer_address = header.source or Endpoint.of_socket(transport.get_extra_info("peername"))
        self._is_tls = transport.get_extra_info("sslcontext") is not None
        if len(self._settings.open) >= self._limits.connections:
            self._lost = self._ending = True
            self.drop("there are as many connections already as the limit (connections) allows")
            return
        self._settings.add(self, transport.get_write_buffer_size)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what waits: nobody is there to be answered."""
        self._lost = self._ending = True
        self._settings.discard(self)
        self._backlog.clear()
        self._rest = b""
        self._due.clear()
        self._waiting.give_up()

    def pause_writing(self) -> None:
        """The client does not read as fast as it asks."""
        self._reader_is_slow = True
        self._costs.reads_slowly(self)
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The client has read most of what it was sent."""
        self._reader_is_slow = False
        self._costs.reads_again(self)
        self._send_due()
        self.go_on()

    def eof_received(self) -> bool:
        """The client will ask no more, but may still read: finish its look-ups, then close.

        What waits for something else, for a message to arrive perhaps, is given up: the client may be gone altogether.
        """
        self._peer_ended = True
        self._waiting.give_up(but_look_ups=True)
        self.end()
        # TLS knows no half-closed connections.
        return not (self._finished or self._is_tls)

    def data_received(self, data: bytes) -> None:
        """Answer all frames that are complete, in one write."""
        if self._meter is not None:
            self._meter.received += len(data)
        self._sweeps = 0
        if self._ending:
            return
        if self._rest:
            self._rest += data
            self._count(is_new=False)
        elif (
            len(data) > SMALL_READ
            and self._turns.must_wait(len(data))
            and not (self._backlog or self._decoder.needs_more)
        ):
            self._rest = data
            self._wait_in_line()
            self._count(is_new=False)
        else:
            self._take(data)

    def _count(self, *, is_new: bool) -> None:
        """Report what is held of requests that cannot be answered yet; `is_new` when one was completed since.

        To be called while anything is held, and once when that has ended.
        """
        size = self._decoder.buffered + len(self._beginning) + len(self._rest)
        if self._backlog:
            size += sum(len(header) + len(body) for _, header, body in self._backlog)
        if size or self._held_bytes:
            self._held_bytes = size
            self._costs.holds(self, size, is_new=is_new)

    def _take(self, data: bytes) -> None:
        """Answer what `data` completes, in the fast lane as far as that goes."""
        if self._beginning:
            data, self._beginning = self._beginning + data, b""
        lane, left, is_new = self._settings.fast_lane, data, False
        is_held = self._reader_is_slow or (self._waiting.cost and self.is_held)
        if lane is not None and not (is_held or self._backlog or self._decoder.needs_more):
            left = self._take_the_lane(lane, data)
            if self._ending or not (left or self._reader_is_slow or (self._waiting.cost and self.is_held)):
                if self._beginning or self._rest or self._held_bytes:
                    self._count(is_new=len(self._beginning) + len(self._rest) < len(data))
                if self._ending:
                    self._close_when_done()
                return
            # What the lane answered is not there any more.
            is_new = len(left) + len(self._beginning) + len(self._rest) < len(data)
        try:
            frames = self._decoder.feed(left)
        except BadFrame as error:
            frames = self._give_up(error)
        if self._backlog or self.is_held or self._turns.must_wait(len(data)):
            # Read before reading could be paused, or too much for this turn: the one that empties the backlog answers.
            self._backlog += frames
            self._wait_in_line()
        else:
            self._turns.spend(len(data))
            self._answer_all(frames)
        self._count(is_new=is_new or bool(frames))
        if self._ending:
            self._close_when_done()

    # ------------------------------------------------------------------ what the server calls

    def push(self, frame: bytes) -> None:
        """Send a frame that answers nothing; not to a client that is gone or does not read."""
        if not (self._ending or self._reader_is_slow):
            self._transport.write(frame)
            if self._meter is not None:
                self._meter.sent += len(frame)

    def end(self) -> None:
        """Read nothing further, finish what is in flight, then close."""
        if not self._ending:
            self._ending = True
            self._transport.pause_reading()
        self._close_when_done()

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        self._transport.abort()

    def drop(self, reason: str) -> None:
        """Close at once and say why."""
        if self._meter is not None:
            self._meter.dropped()
        self._costs.complain("%s: %s; connection closed", self.peer_address, reason)
        self._transport.abort()

    def sweep(self) -> None:
        """Close after `IDLE_SWEEPS` calls in a row without a request, a look-up under way or a byte that left."""
        unread_bytes = self._transport.get_write_buffer_size()
        if self._waiting.cost or unread_bytes != self._unread_bytes:
            self._sweeps = 0
        self._unread_bytes = unread_bytes
        self._sweeps += 1
        if self._sweeps > IDLE_SWEEPS:
            self._transport.abort()

    # ------------------------------------------------------------------ answering

    @property
    def is_held(self) -> bool:
        """Whether nothing is answered and nothing is read at present."""
        return self._reader_is_slow or (self._waiting.cost > 0 and self._waiting.is_much())

    @property
    def owes_rest(self) -> bool:
        """Whether its client has begun a request and is to send the rest, and nothing of it waits for us."""
        has_begun = bool(self._beginning) or self._decoder.needs_more
        return has_begun and not (self._rest or self._backlog or self._ending or self.is_held)

    def _take_the_lane(self, lane: FastLane, data: bytes) -> bytes:
        """Answer what the fast lane takes, and one by one what it does not; returns what the decoder is to judge.

        When the turn is over or the connection held, the rest is kept as it came: the next turn starts in the lane.
        """
        meter = self._meter
        started = 0 if meter is None else perf_counter_ns()
        stop = len(data) if len(data) <= SMALL_READ else self._turns.stop(len(data))
        answers, position, reason = lane.answer(data, 0, stop, self)
        if position == len(data):  # what most reads are: one call, one write
            self._transport.write(answers)
            self._end_turn_of_lane(started, position, len(answers))
            return b""
        output: list[bytes | memoryview] = []
        size = 0
        for number in range(TURN_FRAMES):
            if number:
                answers, position, reason = lane.answer(data, position, stop, self)
            if answers:
                output.append(answers)
                size += len(answers)
            if reason == WANTS_MORE and not position and stop < len(data):
                # A frame longer than a slice.
                stop = len(data)
                continue
            if reason != NOT_TAKEN or size >= TURN_BYTES or (self._waiting.cost and self.is_held):
                break
            end = position + 4 + int.from_bytes(data[position : position + 4])
            try:
                (frame,) = self._decoder.feed(data[position:end])
            except BadFrame as error:
                self._give_up(error)
                break
            position = end
            size += self._answer(frame, output)
        if output:
            write_pieces(self._transport, output, size)
        self._end_turn_of_lane(started, position, size)
        if self._ending:
            return b""
        if stop < len(data):
            # Cut by us, not by the client.
            reason = TURN_OVER
        if reason == LEFT_OVER or (reason == WANTS_MORE and self._settings.is_for_decoder(data, position)):
            return data[position:]
        if reason == WANTS_MORE:
            self._beginning = data[position:]
        else:
            self._rest = data[position:]
            self._wait_in_line()
        return b""

    def _end_turn_of_lane(self, started: int, position: int, size: int) -> None:
        """Count a turn that began at `started` (ns), answered requests up to a position and wrote so many bytes."""
        if position > SMALL_READ:
            self._turns.spend(position)
        meter = self._meter
        if meter is not None:
            meter.sent += size  # and so on as in `end_turn`
            elapsed = perf_counter_ns() - started
            meter.note_turn(elapsed)
            if meter.answers or elapsed > meter.limit:
                meter.count_answers(elapsed, self.peer_address)

    def _answer_all(self, frames: list[Frame]) -> None:
        """Answer frames until the turn is over or the connection is held; the rest waits in the backlog."""
        started = 0 if self._meter is None else perf_counter_ns()
        remaining = iter(frames)
        output: list[bytes | memoryview] = []
        size = 0
        for frame in islice(remaining, SLICE_FRAMES if self._turns.is_crowded else TURN_FRAMES):
            size += self._answer(frame, output)
            if size >= TURN_BYTES or (self._waiting.cost and self.is_held):
                break
        if output:
            write_pieces(self._transport, output, size)
        if self._meter is not None:
            self._meter.end_turn(started, size, self.peer_address)
        self._backlog = list(remaining)
        if self._backlog or self.is_held:
            self._wait_in_line()

    def _answer(self, frame: Frame, output: list[bytes | memoryview]) -> int:
        """Answer one frame, at once if that can be; returns the bytes appended to `output`."""
        try:
            command = decode_command(frame)
        except BadCommand as error:
            return self._append(*answer_unreadable(error), output)
        if command.flag & RESPONSE_FLAG:
            if self._settings.replied is not None:
                self._settings.replied(self, command)
            return 0
        if len(frame[1]) > SHORTEST_FIELD * self._limits.ext_fields:
            refused = self._settings.too_many_fields(command)
            if refused is not None:
                return self._append(command, refused, output)
        try:
            answer = self._dispatcher.dispatch(command, self)
        except Cold as cold:
            if self._costs.in_flight > self._limits.in_flight_bytes:
                return self._append(command, OVERLOADED, output)
            visit = Visit(cold.without_frames())
            future = self._dispatcher.dispatch_in_pool(command, self, visit)
            self._wait_for(command, future, visit, is_look_up=True)
            return 0
        if isinstance(answer, Response):
            return self._append(command, answer, output)
        if isinstance(answer, Deferred):
            if self._costs.in_flight > self._limits.in_flight_bytes:
                answer.give_up()
                return self._append(command, OVERLOADED, output)
            self._defer(command, answer)
            return 0
        waited: asyncio.Future[Any] = asyncio.ensure_future(answer)
        if self._costs.in_flight > self._limits.in_flight_bytes:
            waited.cancel()
            return self._append(command, OVERLOADED, output)
        self._wait_for(command, waited, Visit())
        return 0

    def _append(self, command: Command, response: Response, output: list[bytes | memoryview]) -> int:
        """Encode an answer into `output` unless its request wants none, or there is to be none; returns its bytes."""
        if self._settings.checks:
            response = self._settings.checked(command, self, response)
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
        output.append(prefix)
        if not response.body:
            return len(prefix)
        output.append(response.body)
        return len(prefix) + len(response.body)

    # ------------------------------------------------------------------ waiting

    def _wait_for(
        self, command: Command, future: asyncio.Future[Answer], visit: Visit, *, is_look_up: bool = False
    ) -> None:
        if self._meter is not None:
            self._meter.begin_wait(visit)
        self._waiting.add(command, future, is_look_up=is_look_up)
        future.add_done_callback(partial(self._waited, visit))

    def _defer(self, command: Command, deferred: Deferred) -> None:
        if self._meter is not None:
            self._meter.held()
        if self._settings.checks:
            deferred.command = command
        self._waiting.defer(command, deferred, self)

    def _waited(self, visit: Visit, future: asyncio.Future[Answer]) -> None:
        """Send an answer that had to wait, and take up what was held because of it."""
        command = self._waiting.done(future)
        if future.cancelled():
            self.go_on()
            return
        error = future.exception()
        answer = self._dispatcher.failure(command, error) if error is not None else future.result()
        if isinstance(answer, Deferred):
            self._defer(command, answer)
        elif not isinstance(answer, Response):
            self._wait_for(command, asyncio.ensure_future(answer), Visit())
        elif not self._lost:
            output: list[bytes | memoryview] = []
            size = self._append(command, answer, output)
            if output:
                write_pieces(self._transport, output, size)
            if self._meter is not None:
                self._meter.end_wait(command, visit, size, self.peer_address)
        if self._lost:
            self._waiting.give_up()
        self.go_on()

    def answer_deferred(self, deferred: list[Deferred], outcome: Outcome) -> None:
        """Send one answer to several requests."""
        self._waiting.answered(deferred)
        if self._lost:
            return
        if not isinstance(outcome, Response):
            outcome = self._dispatcher.failure(Command(code=deferred[0].code), outcome)
        if not self._settings.checks:
            self._note_due(deferred, outcome)
        for each in deferred if self._settings.checks else ():
            self._note_due([each], self._settings.checked(each.command or Command(code=each.code), self, outcome))
        self._send_due()
        self.go_on()

    def _note_due(self, deferred: list[Deferred], response: Response) -> None:
        """Note that an answer is to be sent to some requests."""
        try:
            due = DueAnswers(deferred, response)
        except RocketLensError as error:
            due = DueAnswers(deferred, self._dispatcher.failure(Command(code=deferred[0].code), error))
        if self._meter is not None:
            self._meter.answered_later(deferred[0].code, response.code, len(deferred))
        self._due.append(due)

    def _send_due(self) -> None:
        """Write deferred answers as long as the client reads."""
        while self._due and not self._reader_is_slow:
            output, size, is_all = self._due[0].piece(TURN_BYTES)
            if is_all:
                del self._due[0]
            if output:
                write_pieces(self._transport, output, size)
                if self._meter is not None:
                    self._meter.sent += size

    def _wait_in_line(self) -> None:
        """Read nothing further; go on when it is our turn, or when what holds the connection is over."""
        self._transport.pause_reading()
        if not self.is_held:
            self._turns.join(self)

    def go_on(self) -> None:
        """Take up the backlog, then reading, unless the connection is held."""
        if self.is_held or self._lost:
            return
        backlog, self._backlog = self._backlog, []
        rest, self._rest = self._rest, b""
        if backlog:
            self._answer_all(backlog)
        elif rest:
            # Never both: the lane is not taken while there is a backlog.
            self._take(rest)
        is_read_again = not (self._ending or self._backlog or self._rest or self.is_held)
        # What began while its client could not send on has its time from now on.
        if backlog or (is_read_again and self._held_bytes and not self._transport.is_reading()):
            self._count(is_new=True)
        if self._ending:
            self._close_when_done()
        elif is_read_again:
            self._transport.resume_reading()

    # ------------------------------------------------------------------ ending

    def _give_up(self, error: BadFrame) -> list[Frame]:
        """Trust nothing further of this stream; returns the frames before the bad one."""
        self._costs.complain("%s: %s; connection closed", self.peer_address, error)
        self._ending = True
        self._transport.pause_reading()
        return error.frames

    def _close_when_done(self) -> None:
        """Close once everything received is answered and sent; what still comes is thrown away."""
        if self._backlog or self._rest or self._due or self._waiting.cost or self._finished:
            return
        self._finished = True
        close_gently(self._transport, may_be_half_closed=not (self._peer_ended or self._is_tls))
