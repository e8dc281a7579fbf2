"""From the bytes that one client sends to whole requests, a turn at a time.

Bytes that came and are not answered are kept in one of four places:

- `_part` is the beginning of a frame. It is put before the next read, so that the fast lane sees the whole frame.
- The decoder has the beginning of a frame that is too long for that.
- `_unread` are bytes that nobody has looked at, because the turn was over.
- `_backlog` are frames that the decoder has cut and no turn has answered.

`_unread` and `_backlog` are never filled together: what comes while there is a backlog is cut into frames too.

A turn answers so many requests and then ends, so that one client's burst does not keep the others waiting; the session
asks for the next turn. One read may hold many frames; their answers go out in one write. How much of a request a client
may leave unfinished, and for how long, is in `broker.limits`; `broker.net.budget` counts it over all connections.
"""

from itertools import islice
from time import perf_counter_ns
from typing import Final

from broker.net._request_answerer import RequestAnswerer
from broker.net.scheduler import SLICE_FRAMES, SMALL_READ, TURN_BYTES, TURN_FRAMES
from broker.net.session_settings import (
    LEFT_OVER,
    NOT_TAKEN,
    TURN_OVER,
    WANTS_MORE,
    Lane,
    SessionClient,
    SessionSettings,
)
from broker.service.long_work import PARSED_BODIES
from protocol.command import decode_command
from protocol.errors import BadFrame, ProtocolError, RequestByHttp
from protocol.frame import LENGTH_SIZE, PREFIX, Frame, FrameDecoder

LONGEST_BEGINNING: Final = 4096
"""Bytes of a frame's beginning that are put before the next read, for the fast lane; the decoder gets longer ones."""


class RequestReader:
    """Cuts what one client sends into requests, and has them answered by the fast lane or the answerer."""

    __slots__ = (
        "_answerer",
        "_backlog",
        "_budget",
        "_client",
        "_decoder",
        "_has_rest",
        "_held_bytes",
        "_http_port",
        "_is_put_off",
        "_lane",
        "_limits",
        "_meter",
        "_part",
        "_scheduler",
        "_unread",
        "farewell",
        "is_closed",
    )

    def __init__(self, settings: SessionSettings, client: SessionClient, answerer: RequestAnswerer) -> None:
        self.is_closed = False
        """Whether nothing further is read: the server stops, the stream has ended, or it cannot be trusted."""
        self.farewell = b""
        """What the client gets behind all answers, before the connection is closed."""
        self._client = client
        self._answerer = answerer
        self._lane = settings.lane
        self._budget = settings.budget
        self._limits = limits = settings.budget.limits
        self._scheduler = settings.scheduler
        self._meter = settings.meter
        self._http_port = settings.http_port
        self._decoder = FrameDecoder(settings.frame_limit, limits.header_bytes, limits.body_bytes, _is_body_unwanted)
        self._part = b""
        self._unread = b""
        self._backlog: list[Frame] = []
        self._held_bytes = 0
        self._has_rest = False
        self._is_put_off = False

    # ------------------------------------------------------------------ what the session reads

    @property
    def has_unanswered(self) -> bool:
        """Whether whole requests, or bytes nobody has looked at, wait for a turn."""
        return bool(self._backlog or self._unread)

    @property
    def wants_turn(self) -> bool:
        """Whether the rest is for the next turn: so much came that this one is over."""
        return self._is_put_off or bool(self._backlog or self._unread)

    @property
    def owes_rest(self) -> bool:
        """Whether the client has begun a request and not sent all of it."""
        return bool(self._part) or self._decoder.needs_more

    # ------------------------------------------------------------------ what the session reports

    def receive(self, data: bytes) -> bytes | None:
        """Answer the requests that `data` completes, where nothing waits for a turn and nothing is held.

        Returns the answers where they are all there is to do, and None where there is more or nothing: then the answers
        are in the answerer's output. Most reads are whole requests all of which the lane takes: they cost one call of
        the lane, and no object besides the answers.
        """
        lane = self._lane
        meter = self._meter
        if lane is not None and not self._has_rest and len(data) <= SMALL_READ:
            started = 0 if meter is None else perf_counter_ns()
            answered = lane.answer(data, 0, len(data), self._client)
            if answered[1] == len(data):
                if meter is not None:
                    meter.end_turn(started, len(answered[0]), self._client, len(data))
                return answered[0]
            if meter is not None:
                meter.note_received(len(data))
            self._after_lane(data, self._take_lane(lane, data, len(data), answered, started))
        elif len(data) > SMALL_READ:
            self.keep(data)
        else:
            if meter is not None:
                meter.note_received(len(data))
            self._take(data)
        return None

    def keep(self, data: bytes) -> None:
        """Answer what `data` completes if that may be done in this turn, and keep the rest for the next one.

        Data may also come after reading was paused.
        """
        if self._meter is not None:
            self._meter.note_received(len(data))
        if self._unread:
            self._unread += data
            self._count_held(is_new=False)
        elif self._scheduler.must_wait(len(data)) and not (self._backlog or self._decoder.needs_more):
            self._unread = self._part + data
            self._part = b""
            self._count_held(is_new=False)
        elif self._backlog or self._answerer.is_held:
            data, self._part = self._part + data, b""
            self._decode(data, len(data), is_new=False)
        else:
            self._take(data)

    def discard(self, data: bytes) -> None:
        """Throw away what came though nothing is read any more; it is counted all the same."""
        if self._meter is not None:
            self._meter.note_received(len(data))

    def use_turn(self) -> bool:
        """Answer what was kept for this turn; returns whether frames of a backlog were answered."""
        backlog, self._backlog = self._backlog, []
        unread, self._unread = self._unread, b""
        if backlog:
            self._answer_frames(backlog)
        elif unread:
            # The fast lane is not taken while there is a backlog, so there are never both.
            self._take(unread)
        self._is_put_off = False
        return bool(backlog)

    def restart_clock(self) -> None:
        """Have an unfinished request, if there is one, take its time from now on: the client could not send on."""
        self._count_held(is_new=True)

    def close(self) -> None:
        """Read nothing further; what came as a whole is still answered."""
        self.is_closed = True

    def lose(self) -> None:
        """Forget what is not answered: the client is gone."""
        self._backlog.clear()
        self._unread = b""

    # ------------------------------------------------------------------ the fast lane

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

    def _take_lane(self, lane: Lane, data: bytes, stop: int, answered: tuple[bytes, int, int], started: int) -> bytes:
        """Answer what the fast lane takes, and one by one what it does not; returns what the decoder is to judge.

        The lane has `answered` as far as it could, looking up to `stop`, in a turn that began at `started` (ns). When
        the turn is over or the session held, the rest is kept as it came: the next turn starts in the lane.
        """
        answerer = self._answerer
        answers, position, reason = answered
        size = 0
        is_bad = False
        for number in range(TURN_FRAMES):
            if number:
                answers, position, reason = lane.answer(data, position, stop, self._client)
            if answers:
                answerer.add_answers(answers)
                size += len(answers)
            if reason == WANTS_MORE and not position and stop < len(data):
                # A frame longer than a slice.
                stop = len(data)
                continue
            if reason != NOT_TAKEN or size >= TURN_BYTES or (answerer.pending.cost and answerer.is_held):
                break
            end = position + LENGTH_SIZE + int.from_bytes(data[position : position + LENGTH_SIZE])
            try:
                (frame,) = self._decoder.feed(data[position:end])
            except BadFrame as error:
                self._end_of_trust(error)
                is_bad = True
                break
            position = end
            size += answerer.answer(frame)
        if position > SMALL_READ:
            self._scheduler.spend(position)
        if self._meter is not None:
            self._meter.end_turn(started, size, self._client)
        if is_bad:
            return b""
        if stop < len(data):
            # Cut by us, not by the client.
            reason = TURN_OVER
        if reason == LEFT_OVER or (reason == WANTS_MORE and self._is_for_decoder(data, position)):
            return data[position:]
        if reason == WANTS_MORE:
            self._part = data[position:]
        else:
            self._unread = data[position:]
        return b""

    def _is_for_decoder(self, data: bytes, position: int) -> bool:
        """Whether the part of a frame at `position` is too long to put before the next read, or is no frame."""
        header_length = int.from_bytes(data[position + 5 : position + 8])
        is_too_long = header_length > self._limits.header_bytes and len(data) - position >= PREFIX.size
        return is_too_long or len(data) - position > LONGEST_BEGINNING

    def _after_lane(self, data: bytes, left: bytes) -> None:
        """Give the decoder what the lane has left of `data`, and report what is held."""
        if self._part or self._unread or self._held_bytes or left:
            # What the lane answered is not there any more.
            is_new = len(left) + len(self._part) + len(self._unread) < len(data)
            if left and not self.is_closed:
                self._decode(left, len(data), is_new=is_new)
            else:
                self._count_held(is_new=is_new)

    # ------------------------------------------------------------------ frames

    def _decode(self, data: bytes, read_bytes: int, *, is_new: bool) -> None:
        """Cut `data`, what is left of so many bytes, into frames; answer them, or keep them for the next turn."""
        try:
            frames = self._decoder.feed(data)
        except BadFrame as error:
            frames = self._end_of_trust(error)
            if isinstance(error, RequestByHttp) and not (frames or is_new):
                self.farewell = _answer_by_http(self._http_port)
        answerer = self._answerer
        is_held = answerer.is_read_slowly or (answerer.pending.cost and answerer.is_held)
        is_burst = read_bytes > SMALL_READ
        if self._backlog or is_held or (is_burst and self._scheduler.must_wait(read_bytes)):
            # Read before reading could be paused, or too much for this turn: the turn that empties the backlog answers.
            self._backlog += frames
            self._is_put_off = True
        else:
            self._is_put_off = False
            if is_burst:
                self._scheduler.spend(read_bytes)
            self._answer_frames(frames)
        self._count_held(is_new=is_new or bool(frames))

    def _end_of_trust(self, error: BadFrame) -> list[Frame]:
        """Trust nothing further of this stream; returns the frames before the bad one."""
        self._budget.complain("%s: %s; connection closed", self._client.peer_address, error)
        self.is_closed = True
        return error.frames

    def _answer_frames(self, frames: list[Frame]) -> None:
        """Answer frames until the turn is over or the session is held; the rest becomes the backlog."""
        started = 0 if self._meter is None else perf_counter_ns()
        answerer = self._answerer
        remaining = iter(frames)
        size = 0
        for frame in islice(remaining, SLICE_FRAMES if self._scheduler.is_crowded else TURN_FRAMES):
            size += answerer.answer(frame)
            if size >= TURN_BYTES or (answerer.pending.cost and answerer.is_held):
                break
        if self._meter is not None:
            self._meter.end_turn(started, size, self._client)
        self._backlog = list(remaining)

    def _count_held(self, *, is_new: bool) -> None:
        """Report to the budget what is held of requests that cannot be answered yet.

        `is_new` when a request was completed since the last report. To be called while anything is held, and once when
        that has ended.
        """
        size = self._decoder.buffered + len(self._part) + len(self._unread)
        if self._backlog:
            size += sum(len(header) + len(body) for _, header, body in self._backlog)
        self._has_rest = size > 0 or (self._lane is not None and self._decoder.needs_more)
        if size or self._held_bytes:
            self._held_bytes = size
            self._budget.holds(self._client, size, is_new=is_new)


def _is_body_unwanted(serialize_type: int, header: bytes) -> bool:
    """Whether the body of a frame is longer than bodies that are read, given that its request's body would be read."""
    try:
        command = decode_command((serialize_type, header, b""))
    except ProtocolError:
        return False
    return command.code in PARSED_BODIES and not command.is_response


def _answer_by_http(port: int | None) -> bytes:
    """The answer to a request of HTTP, for the person who sent it."""
    place = "it has no port for HTTP: start it with --http" if port is None else f"its port for HTTP is {port}"
    text = f"this is the remoting port of RocketLens; {place}\n".encode()
    head = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(text) + text
