"""A session is tested with bytes alone: every split, every state, and whatever may happen in it."""

import struct
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from itertools import product

import pytest

from broker.endpoint import Endpoint
from broker.limits import Limits
from broker.net._request_reader import LONGEST_BEGINNING
from broker.net._session import IDLE_SWEEPS, Session, SessionState
from broker.net.budget import ConnectionBudget
from broker.net.scheduler import SHARE_BYTES, SMALL_READ, TURN_FRAMES, Scheduler
from broker.net.session_settings import LEFT_OVER, NOT_TAKEN, TURN_OVER, WANTS_MORE, SessionSettings
from broker.service.dispatcher import ClientConnection, Dispatcher, handles
from broker.service.pending_reply import PendingReply
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, Response, decode_command, encode_request, encode_response, ext_fields_of
from protocol.errors import StoreError
from protocol.frame import PREFIX, FrameDecoder
from protocol.headers import EmptyRequestHeader, ViewMessageRequestHeader
from still_clock import StillClock
from storage.files.waiting import Lookup, Wait

OPEN, QUEUED, HELD = SessionState.OPEN, SessionState.QUEUED, SessionState.HELD
ENDING, FINISHED, LOST = SessionState.ENDING, SessionState.FINISHED, SessionState.LOST

VIEW = RequestCode.VIEW_MESSAGE_BY_ID
LATER = RequestCode.GET_CONSUMER_LIST_BY_GROUP
COLD = RequestCode.GET_MAX_OFFSET
WITH_OTHERS = RequestCode.PULL_MESSAGE
BODY = RequestCode.HEART_BEAT

LONGEST_NUMBER = 11
"""Characters of an opaque; replies are counted as if each had so many."""

JUNK = b"GET / HTTP/1.1\r\n\r\n"
"""Read as a frame's length it is far beyond every limit."""


class Reply(PendingReply):
    """A reply that says whether it was given up."""

    is_given_up = False

    def give_up(self) -> None:
        self.is_given_up = True


class Later:
    """What would become an answer; the session itself never waits for it."""

    is_cancelled = False

    def __await__(self) -> Generator[None, None, Response]:
        raise AssertionError("nobody waits here")

    def cancel(self) -> None:
        self.is_cancelled = True


class Families:
    """Answers a view with its offset as text, or with as many bytes as a negative offset says; the rest later."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.awaitables: list[Later] = []

    @handles(VIEW, ViewMessageRequestHeader)
    def view(self, header: ViewMessageRequestHeader) -> Response:
        return Response(body=bytes(-header.offset) if header.offset < 0 else b"%d" % header.offset)

    @handles(LATER, EmptyRequestHeader)
    def later(self, header: EmptyRequestHeader) -> Awaitable[Response]:
        self.awaitables.append(Later())
        return self.awaitables[-1]

    @handles(COLD, EmptyRequestHeader)
    def cold(self, header: EmptyRequestHeader) -> Lookup[Response]:
        yield Wait("page")
        return Response(body=b"cold")

    @handles(WITH_OTHERS, EmptyRequestHeader)
    def with_others(self, header: EmptyRequestHeader) -> PendingReply:
        self.replies.append(Reply())
        return self.replies[-1]

    @handles(BODY, EmptyRequestHeader)
    def body(self, header: EmptyRequestHeader) -> Response:
        return Response(body=b"heard")


class Client:
    """The client as processors and the budget see it."""

    local_address = Endpoint("127.0.0.1", 10911)
    peer_address = Endpoint("127.0.0.1", 50000)
    is_open = True
    owes_rest = True

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def push(self, frame: bytes) -> None:
        raise AssertionError("the transport's")

    def drop(self, reason: str) -> None:
        self.dropped.append(reason)


class EvenLane:
    """A lane in plain Python: takes views of even offsets, so many frames a call."""

    def __init__(self, most: int = TURN_FRAMES) -> None:
        self._most = most
        self.taken = 0

    def answer(self, data: bytes, start: int, stop: int, connection: ClientConnection | None) -> tuple[bytes, int, int]:
        answers, position = b"", start
        for _ in range(self._most):
            if position == stop:
                return answers, position, LEFT_OVER
            if stop - position < PREFIX.size:
                return answers, position, WANTS_MORE
            length, word = PREFIX.unpack_from(data, position)
            if not 4 <= length < 1 << 20 or (word & 0xFFFFFF) > length - 4:
                return answers, position, LEFT_OVER
            end = position + 4 + length
            if end > stop:
                return answers, position, WANTS_MORE
            header = data[position + 8 : position + 8 + (word & 0xFFFFFF)]
            answer = self._answer((word >> 24, header, data[position + 8 + len(header) : end]))
            if answer is None:
                return answers, position, NOT_TAKEN
            answers += answer
            position = end
            self.taken += 1
        return answers, position, TURN_OVER if position < stop else LEFT_OVER

    def _answer(self, frame: tuple[int, bytes, bytes]) -> bytes | None:
        try:
            command = decode_command(frame)
            offset = int(ext_fields_of(command)["offset"])
        except Exception:
            return None
        if command.code != VIEW or command.flag or offset % 2 or offset < 0:
            return None
        response = Response(body=b"%d" % offset)
        return encode_response(command, response) + bytes(response.body)


class Peer:
    """A session and the one who moves its bytes, without a socket: what was sent, and what was begun."""

    def __init__(
        self,
        *,
        lane: EvenLane | None = None,
        families: Families | None = None,
        cut: Callable[[int | None], StoreError | None] = lambda _since: None,
        **limits: int,
    ) -> None:
        self.clock = StillClock()
        self.budget = ConnectionBudget(Limits(**limits), self.clock)
        self.families, self.client = families or Families(), Client()
        self.due: list[Callable[[], None]] = []
        self.scheduler = Scheduler(self.due.append)
        settings = SessionSettings(Dispatcher([self.families]), self.budget, self.scheduler, lane=lane, cut=cut)
        self.session = Session(settings, self.client)
        self.sent = bytearray()
        self.started: list[tuple[int, object]] = []

    @property
    def state(self) -> SessionState:
        return self.session.state

    def receive(self, *pieces: bytes) -> "Peer":
        for data in pieces:
            answers = self.session.receive_data(data)
            if answers is not None:
                assert not self.session.answers.output
                self.sent += answers
            self.collect()
        return self

    def collect(self) -> None:
        """Take out what the session holds for its transport, and begin it."""
        pieces, size = self.session.answers.take_output()
        assert 0 <= size - sum(map(len, pieces)) <= len(pieces) * LONGEST_NUMBER
        self.sent += b"".join(pieces)
        for request in self.session.answers.take_started():
            request.begin(Work())
            self.started.append((request.command.opaque, request))
        for reply, command in self.session.answers.take_replies():
            reply.deliver_to(self, command)

    def send_replies(self, replies: list[PendingReply], outcome: Response | BaseException) -> None:
        self.session.reply(replies, outcome)
        self.send_due()

    def send_due(self) -> None:
        while self.session.send_due():
            self.collect()
        self.go_on()

    def go_on(self) -> None:
        self.session.go_on()
        self.collect()

    def use_turns(self) -> int:
        """Go on as long as there is a turn wanted; how many there were."""
        turns = 0
        while self.session.wants_turn:
            for work in self.due[:]:
                self.due.remove(work)
                work()
            self.go_on()
            turns += 1
            assert turns < 10_000
        return turns

    def resolve(self, outcome: Response | BaseException | None) -> None:
        _, request = self.started.pop(0)
        self.session.resolve(request, outcome)  # type: ignore[arg-type]
        self.collect()

    def resume(self) -> None:
        self.session.resume_writing()
        self.send_due()

    def answers(self) -> list[Command]:
        decoder = FrameDecoder()
        found = [decode_command(frame) for frame in decoder.feed(bytes(self.sent))]
        assert not decoder.needs_more
        return found

    def opaques(self) -> list[int]:
        return [answer.opaque for answer in self.answers()]


class Work:
    """What would be done for a request."""

    is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


def view(offset: int, opaque: int = 0, **members: int) -> bytes:
    return encode_request(VIEW, {"offset": str(offset)}, opaque=opaque, **members)  # type: ignore[arg-type]


def request(code: int, opaque: int = 0, body: bytes = b"") -> bytes:
    return encode_request(code, opaque=opaque, body=body)


def bad_header(header: bytes) -> bytes:
    return PREFIX.pack(4 + len(header), len(header)) + header


def crowd(peer: Peer) -> None:
    """Have others use up this turn of the event loop."""
    peer.scheduler.spend(SHARE_BYTES + SMALL_READ)


STREAM = b"".join(
    (
        view(2, 1),
        view(3, 2),
        bad_header(b"{"),
        view(4, 3, serialize_type=1),
        request(999, 4),
        view(6, 5),
        request(BODY, 6, b"x" * 50),
        bad_header(b""),
        view(8, 7),
    )
)
"""Requests of all kinds that are answered at once: by the lane, on the ordinary way, refused, and no command at all."""

LONG = request(BODY, 8, b"x" * (2 * LONGEST_BEGINNING))
"""A frame of which the decoder gets the beginning."""


@pytest.fixture(params=[True, False], ids=["lane", "no lane"])
def make(request: pytest.FixtureRequest) -> Callable[..., Peer]:
    """Makes sessions with a lane, or without."""
    return lambda **limits: Peer(lane=EvenLane() if request.param else None, **limits)


def splits(data: bytes) -> Iterator[Sequence[bytes]]:
    """The whole, byte by byte, and in two, cut at every third byte."""
    yield (data,)
    yield [data[number : number + 1] for number in range(len(data))]
    for cut in range(1, len(data), 3):
        yield data[:cut], data[cut:]


# ---------------------------------------------------------------------- bytes


def test_answers_are_the_same_however_the_stream_is_split(make: Callable[..., Peer]) -> None:
    whole = bytes(Peer().receive(STREAM).sent)
    assert len(Peer().receive(STREAM).answers()) == 9
    for pieces in splits(STREAM):
        peer = make().receive(*pieces)
        assert (bytes(peer.sent), peer.state, peer.budget.received) == (whole, OPEN, 0), pieces


def test_a_frame_too_long_for_the_lane_may_be_split_too(make: Callable[..., Peer]) -> None:
    stream = view(2, 1) + LONG + view(4, 9)
    whole = bytes(Peer().receive(stream).sent)
    for cut in range(1, len(stream), 97):
        for pieces in ((stream[:cut], stream[cut:]), (stream[:cut], stream[cut : cut + 50], stream[cut + 50 :])):
            peer = make().receive(*pieces)
            assert (bytes(peer.sent), peer.state, peer.budget.received) == (whole, OPEN, 0), cut


@pytest.mark.parametrize(
    "bad",
    [JUNK, PREFIX.pack(4, 5), PREFIX.pack(3, 0), PREFIX.pack(-1, 0), struct.pack(">iI", 1 << 30, 10)],
    ids=["http", "header beyond frame", "no header word", "negative", "too long"],
)
def test_what_came_before_a_bad_frame_is_answered_and_nothing_after_it(bad: bytes, make: Callable[..., Peer]) -> None:
    stream = view(2, 1) + view(3, 2) + bad + view(4, 3)
    for pieces in splits(stream):
        peer = make().receive(*pieces)
        assert (peer.opaques(), peer.state) == ([1, 2], FINISHED), pieces


def test_a_header_beyond_its_limit_ends_the_session_before_it_came(make: Callable[..., Peer]) -> None:
    peer = make(header_bytes=4096).receive(view(2, 1) + PREFIX.pack(10_000, 4097))
    assert (peer.opaques(), peer.state) == ([1], FINISHED)


def test_the_rest_of_a_body_that_nobody_wants_is_no_request(make: Callable[..., Peer]) -> None:
    """Its bytes could be taken for one, and nothing of them is kept."""
    body = view(2, 5) * 100
    frame = request(BODY, 1, body)
    for cut in range(len(frame) - len(body), len(frame), 119):
        peer = make(body_bytes=4096).receive(frame[:cut], frame[cut:], view(2, 2))
        assert peer.opaques() == [1, 2]
        assert (peer.state, peer.budget.received) == (OPEN, 0)


# ---------------------------------------------------------------------- states


def peer_that_is(state: str, make: Callable[..., Peer]) -> Peer:
    """A peer in one of the states of START."""
    peer = make(requests_per_connection=1) if state == "held by requests" else make()
    match state:
        case "within a frame":
            peer.receive(view(2, 1)[:20])
        case "queued":
            crowd(peer)
            peer.receive(view(2, 1) * 300)
        case "held by its reader":
            peer.session.pause_writing()
        case "held by requests":
            peer.receive(request(LATER, 1))
        case "ending":
            peer.receive(request(COLD, 1)).session.end()
        case "finished":
            peer.session.end()
        case "lost":
            peer.session.connection_lost()
    return peer


START = {
    "open": OPEN,
    "within a frame": OPEN,
    "queued": QUEUED,
    "held by its reader": HELD,
    "held by requests": HELD,
    "ending": ENDING,
    "finished": FINISHED,
    "lost": LOST,
}


EVENTS: dict[str, Callable[[Peer], object]] = {
    "data": lambda peer: peer.receive(view(3, 77)),
    "junk": lambda peer: peer.receive(JUNK),
    "eof": lambda peer: peer.session.receive_eof(),
    "end": lambda peer: peer.session.end(),
    "pause": lambda peer: peer.session.pause_writing(),
    "resume": lambda peer: peer.resume(),
    "turn": lambda peer: peer.go_on(),
    "lost": lambda peer: peer.session.connection_lost(),
}


NEXT = {
    # data, junk, eof, end, pause, resume, turn, lost
    "open": (OPEN, FINISHED, FINISHED, FINISHED, HELD, OPEN, OPEN, LOST),
    # what comes then completes a frame, and what is left of it is none
    "within a frame": (FINISHED, OPEN, FINISHED, FINISHED, HELD, OPEN, OPEN, LOST),
    "queued": (QUEUED, QUEUED, ENDING, ENDING, HELD, QUEUED, QUEUED, LOST),
    "held by its reader": (HELD, FINISHED, FINISHED, FINISHED, HELD, OPEN, HELD, LOST),
    "held by requests": (HELD, ENDING, ENDING, ENDING, HELD, HELD, HELD, LOST),
    "ending": (ENDING, ENDING, ENDING, ENDING, ENDING, ENDING, ENDING, LOST),
    "finished": (FINISHED, FINISHED, FINISHED, FINISHED, FINISHED, FINISHED, FINISHED, LOST),
    "lost": (LOST,) * 8,
}


@pytest.mark.parametrize("start", START)
def test_every_event_in_every_state_leads_where_the_table_says(start: str, make: Callable[..., Peer]) -> None:
    for (event, happen), led_to in zip(EVENTS.items(), NEXT[start], strict=True):
        peer = peer_that_is(start, make)
        assert peer.state is START[start]
        happen(peer)
        peer.collect()
        assert peer.state is led_to, event


@pytest.mark.parametrize("start", START)
def test_two_events_leave_no_contradiction(start: str, make: Callable[..., Peer]) -> None:
    for events in product(EVENTS, EVENTS):
        peer = peer_that_is(start, make)
        for event in events:
            EVENTS[event](peer)
            peer.collect()
        peer.use_turns()
        session = peer.session
        assert peer.state is not QUEUED, f"its turns were used: {events}"
        holds = {
            OPEN: not session.is_held and not session._reader.has_unanswered,
            HELD: session.is_held,
            FINISHED: session.is_answered,
            ENDING: session.is_held or not session.is_answered,
            LOST: not session.answers.take_output()[0] and not session.wants_turn,
        }
        assert holds[peer.state], (peer.state, events)
        peer.answers()


# ---------------------------------------------------------------------- turns


@pytest.mark.parametrize("offsets", [(2,), (3,), (2, 3), (3, 3, 2)], ids=str)
@pytest.mark.parametrize("event", ["nothing", "end", "eof", "junk"])
def test_a_burst_of_many_turns_is_answered_to_its_end(
    offsets: tuple[int, ...], event: str, make: Callable[..., Peer]
) -> None:
    """Also where nothing further is read since it came: the server stops, the client has ended, the stream is bad."""
    count = 5 * TURN_FRAMES
    burst = b"".join(view(offsets[number % len(offsets)], number) for number in range(count))
    peer = make().receive(burst)
    assert peer.state is QUEUED
    assert len(peer.answers()) < count
    if event != "nothing":
        EVENTS[event](peer)
    assert peer.use_turns() > 1
    assert peer.opaques() == list(range(count))
    assert peer.state is (OPEN if event == "nothing" else FINISHED)


def test_a_burst_waits_for_its_turn_and_what_comes_meanwhile_stays_behind_it(make: Callable[..., Peer]) -> None:
    burst = b"".join(view(number, number) for number in range(200))
    for cut in (0, 1, 7, 8, 50):
        peer = make().receive(view(2, 999)[:cut]) if cut else make()
        crowd(peer)
        peer.receive((view(2, 999) + burst)[cut:], view(2, 1000)[:9], view(2, 1000)[9:])
        assert (peer.state, bytes(peer.sent)) == (QUEUED, b"")
        peer.use_turns()
        assert (peer.opaques(), peer.state) == ([999, *range(200), 1000], OPEN)
        assert peer.budget.received == 0


# ---------------------------------------------------------------------- a client that does not read


def test_a_client_that_does_not_read_is_answered_nothing_and_then_everything(make: Callable[..., Peer]) -> None:
    stream = view(2, 1) + view(3, 2) + view(4, 3)
    for cut in range(len(stream)):
        peer = make().receive(stream[:cut]) if cut else make()
        before = bytes(peer.sent)
        peer.session.pause_writing()
        peer.receive(stream[cut:])
        assert (bytes(peer.sent), peer.state) == (before, HELD)
        peer.resume()
        assert (peer.opaques(), peer.state, peer.budget.received) == ([1, 2, 3], OPEN, 0)


def test_nothing_is_pushed_to_a_client_that_does_not_read_or_is_to_go(make: Callable[..., Peer]) -> None:
    peer = make()
    peer.session.push(view(1, 1))
    peer.session.pause_writing()
    peer.session.push(view(1, 2))
    peer.session.resume_writing()
    peer.session.end()
    peer.session.push(view(1, 3))
    peer.collect()
    assert bytes(peer.sent) == view(1, 1)


# ---------------------------------------------------------------------- answers that come later


@pytest.mark.parametrize("code", [COLD, LATER])
def test_what_waits_is_answered_after_what_came_later(code: int, make: Callable[..., Peer]) -> None:
    peer = make().receive(view(2, 1) + request(code, 2) + view(4, 3))
    assert peer.opaques() == [1, 3]
    assert peer.budget.in_flight == peer.session.pending.cost > 0
    peer.resolve(Response(body=b"late"))
    assert peer.opaques() == [1, 3, 2]
    assert (peer.state, peer.budget.in_flight) == (OPEN, 0)


def test_no_more_than_so_many_look_ups_wait_and_the_rest_is_not_looked_at(make: Callable[..., Peer]) -> None:
    peer = make(lookups_per_connection=2)
    peer.receive(b"".join(request(COLD, number) for number in range(5)) + view(2, 5))
    assert ([opaque for opaque, _ in peer.started], peer.state) == ([0, 1], HELD)
    while peer.started:
        peer.resolve(Response())
    assert sorted(peer.opaques()) == [0, 1, 2, 3, 4, 5]
    assert (peer.state, peer.budget.in_flight) == (OPEN, 0)


def test_when_all_clients_hold_too_much_what_would_wait_is_refused(make: Callable[..., Peer]) -> None:
    peer = make()
    peer.budget.in_flight = 1 << 40
    peer.receive(request(COLD, 1) + request(LATER, 2) + request(WITH_OTHERS, 3) + view(2, 4))
    codes = {answer.opaque: answer.code for answer in peer.answers()}
    assert codes == dict.fromkeys((1, 2, 3), ResponseCode.SYSTEM_BUSY) | {4: ResponseCode.SUCCESS}
    assert not peer.started
    assert peer.families.replies[0].is_given_up
    assert peer.families.awaitables[0].is_cancelled


def test_one_answer_goes_to_all_who_wait_for_it_also_if_it_was_there_before(make: Callable[..., Peer]) -> None:
    peer = make()
    peer.session.receive_data(b"".join(request(WITH_OTHERS, number) for number in range(10)))
    peer.families.replies[0].answer(Response(body=b"news"))
    peer.collect()
    peer.send_replies(peer.families.replies[1:], Response(body=b"news"))
    assert [(answer.opaque, answer.body) for answer in peer.answers()] == [(number, b"news") for number in range(10)]
    assert (peer.state, peer.budget.in_flight) == (OPEN, 0)


def test_replies_wait_until_the_client_reads_and_an_end_waits_for_all(make: Callable[..., Peer]) -> None:
    peer = make().receive(request(COLD, 1) + request(WITH_OTHERS, 2))
    peer.session.pause_writing()
    peer.send_replies([*peer.families.replies], Response(body=b"news"))
    assert (bytes(peer.sent), peer.state) == (b"", HELD)
    peer.session.end()
    peer.resume()
    assert (peer.opaques(), peer.state) == ([2], ENDING)
    peer.resolve(Response())
    assert (peer.opaques(), peer.state) == ([2, 1], FINISHED)


def test_at_the_end_of_the_stream_what_ends_by_itself_is_finished_and_the_rest_is_given_up(
    make: Callable[..., Peer],
) -> None:
    peer = make().receive(request(COLD, 1) + request(LATER, 2) + request(WITH_OTHERS, 3))
    peer.session.receive_eof()
    assert peer.families.replies[0].is_given_up
    assert not peer.families.awaitables[0].is_cancelled
    peer.resolve(Response(body=b"from another worker"))
    assert peer.state is ENDING
    peer.resolve(Response(body=b"found"))
    assert (sorted(peer.opaques()), peer.state, peer.budget.in_flight) == ([1, 2], FINISHED, 0)


def test_what_begins_to_wait_for_an_event_after_the_end_of_the_stream_is_given_up_at_once(
    make: Callable[..., Peer],
) -> None:
    """Whether it waited for its turn until then, or for a page that was to say whether there is an answer."""
    count = 5 * TURN_FRAMES
    burst = b"".join(view(3, number) for number in range(count))
    peer = make().receive(request(COLD, count) + burst + request(WITH_OTHERS, count + 1))
    assert not peer.families.replies
    peer.session.receive_eof()
    peer.use_turns()
    (waits,) = peer.families.replies
    assert waits.is_given_up
    further = Reply()
    peer.resolve(further)
    assert further.is_given_up
    assert (peer.opaques(), peer.state, peer.budget.in_flight) == ([*range(count)], FINISHED, 0)


def test_what_is_answered_after_the_client_is_gone_goes_nowhere_and_begins_nothing(make: Callable[..., Peer]) -> None:
    peer = make().receive(request(COLD, 1) + request(COLD, 2) + request(WITH_OTHERS, 3))
    peer.session.connection_lost()
    peer.resolve(Response())
    further = Reply()
    _, pending = peer.started.pop()
    peer.session.resolve(pending, further)  # type: ignore[arg-type]
    peer.send_replies([*peer.families.replies], Response())
    assert (bytes(peer.sent), peer.state, peer.budget.in_flight) == (b"", LOST, 0)
    assert peer.families.replies[0].is_given_up
    assert further.is_given_up
    assert not peer.session.answers.take_replies()


# ---------------------------------------------------------------------- time


def test_a_client_owes_the_rest_of_what_it_began_and_nothing_else(make: Callable[..., Peer]) -> None:
    for stream in (view(2, 1), view(3, 1), LONG):
        for cut in range(1, len(stream), 1 + len(stream) // 100):
            peer = make().receive(stream[:cut])
            assert (peer.session.owes_rest, peer.budget.received) == (True, cut)
            peer.session.pause_writing()
            assert not peer.session.owes_rest, "it waits for us"
            peer.resume()
            assert peer.session.owes_rest
            peer.receive(stream[cut:])
            assert (peer.session.owes_rest, peer.budget.received) == (False, 0)


def test_a_silent_client_is_idle_after_some_sweeps_and_one_that_waits_or_reads_is_not(
    make: Callable[..., Peer],
) -> None:
    peer = make()
    for sweep in range(IDLE_SWEEPS + 1):
        assert peer.session.is_idle(0) == (sweep == IDLE_SWEEPS)
    peer.receive(view(2))
    assert not peer.session.is_idle(0)
    assert not any(peer.session.is_idle(unsent) for unsent in range(1, 10))
    peer.receive(request(COLD, 1))
    assert not any(peer.session.is_idle(0) for _ in range(10))


def test_what_a_file_that_was_cut_meanwhile_may_have_spoiled_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts, is_served_still = 0, False

    def count() -> int:
        return cuts

    def cut(since: int | None) -> StoreError | None:
        """As of a store that was read anew at once, unless what was cut is served still."""
        return StoreError("log", what="cut") if is_served_still or since not in (None, cuts) else None

    class Cutting(Families):
        @handles(VIEW, ViewMessageRequestHeader)
        def view(self, header: ViewMessageRequestHeader) -> Response:
            nonlocal cuts
            cuts += header.offset == 5
            return Response(body=b"found")

    monkeypatch.setattr("broker.net._request_answerer.count_cuts", count)
    monkeypatch.setattr("broker.net._pending_requests.count_cuts", count)
    peer = Peer(families=Cutting(), cut=cut).receive(view(3, 1), view(5, 2), view(3, 3))
    peer.receive(request(LATER, 4), request(LATER, 5), view(5, 6))
    peer.resolve(Response(body=b"zeros"))
    peer.receive(request(LATER, 7), request(WITH_OTHERS, 8), request(WITH_OTHERS, 9))
    del peer.started[0]
    peer.resolve(Response(body=b"whole"))
    peer.families.replies[0].answer(Response(body=b"whole"))
    is_served_still = True
    peer.families.replies[1].answer(Response(body=b"zeros"))
    codes = {answer.opaque: (ResponseCode(answer.code), bytes(answer.body)) for answer in peer.answers()}
    good, failed = ResponseCode.SUCCESS, (ResponseCode.SYSTEM_ERROR, b"")
    assert codes == {
        1: (good, b"found"),
        2: failed,
        3: (good, b"found"),
        4: failed,
        6: failed,
        7: (good, b"whole"),
        8: (good, b"whole"),
        9: failed,
    }
