"""A session is tested with bytes alone, in every split and state; and what connections may cost together."""

import asyncio
import logging
import struct
from functools import partial
from itertools import product

import pytest

from broker.endpoint import Endpoint
from broker.limits import MIB, Limits
from broker.metrics.slow_queries import Visit
from broker.net._pending_requests import FIELD_COST, PendingRequest, PendingRequests
from broker.net._session import Session, SessionState
from broker.net.budget import COMPLAINTS, COMPLAINTS_SECONDS, PENDING_REQUEST_BYTES, ConnectionBudget
from broker.net.scheduler import SHARE_BYTES, SLICE_BYTES, SMALL_READ, TURN_FRAMES, Scheduler
from broker.net.session_settings import SessionSettings
from broker.service.dispatcher import Dispatcher, handles
from broker.service.pending_reply import PendingReply
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, Response, decode_command, encode_request
from protocol.errors import StoreError
from protocol.frame import PREFIX, FrameDecoder
from protocol.headers import EmptyRequestHeader, ViewMessageRequestHeader
from still_clock import StillClock
from storage.files.waiting import Unfinished, Wait

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
    is_given_up = False

    def give_up(self) -> None:
        self.is_given_up = True


class Work:
    is_cancelled = False

    def __await__(self):
        raise AssertionError("nobody waits here")

    def cancel(self) -> None:
        self.is_cancelled = True


class Families:
    """Answers a view with its offset as text, or with as many bytes as a negative offset says; the rest later."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.awaitables: list[Work] = []

    @handles(VIEW, ViewMessageRequestHeader)
    def view(self, header: ViewMessageRequestHeader) -> Response:
        return Response(body=bytes(-header.offset) if header.offset < 0 else b"%d" % header.offset)

    @handles(LATER, EmptyRequestHeader)
    def later(self, header):
        self.awaitables.append(Work())
        return self.awaitables[-1]

    @handles(COLD, EmptyRequestHeader)
    def cold(self, header):
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
    peer_address = Endpoint("127.0.0.1", 50000)
    is_open = owes_rest = True

    def drop(self, reason: str) -> None:
        """Nobody is dropped here."""


class Peer:
    """A session and the one who moves its bytes, without a socket: what was sent, and what was begun."""

    def __init__(self, *, families=None, cut=lambda _since: None, **limits) -> None:
        self.clock = StillClock()
        self.budget = ConnectionBudget(Limits(**limits), self.clock)
        self.families = families or Families()
        self.due = []
        self.scheduler = Scheduler(self.due.append)
        settings = SessionSettings(Dispatcher([self.families]), self.budget, self.scheduler, cut=cut)
        self.session = Session(settings, Client())
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
        self.session.resolve(request, outcome)
        self.collect()

    def resume(self) -> None:
        self.session.resume_writing()
        self.send_due()

    def answers(self):
        decoder = FrameDecoder()
        found = [decode_command(frame) for frame in decoder.feed(bytes(self.sent))]
        assert not decoder.needs_more
        return found

    def opaques(self) -> list[int]:
        return [answer.opaque for answer in self.answers()]


def view(offset: int, opaque: int = 0, **members: int) -> bytes:
    return encode_request(VIEW, {"offset": str(offset)}, opaque=opaque, **members)


def request(code: int, opaque: int = 0, body: bytes = b"") -> bytes:
    return encode_request(code, opaque=opaque, body=body)


def bad_header(header: bytes) -> bytes:
    return PREFIX.pack(4 + len(header), len(header)) + header


REQUESTS = (view(2, 1), view(3, 2), bad_header(b"{"), view(4, 3, serialize_type=1), request(999, 4), view(6, 5))
STREAM = b"".join((*REQUESTS, request(BODY, 6, b"x" * 50), bad_header(b""), view(8, 7)))
"""Requests of all kinds that are answered at once: a command, one that is refused, and none at all."""


def splits(data):
    yield (data,)
    yield [data[number : number + 1] for number in range(len(data))]
    for cut in range(1, len(data), 5):
        yield data[:cut], data[cut:]


# ------------------------ bytes


def test_answers_are_the_same_however_the_stream_is_split() -> None:
    whole = bytes(Peer().receive(STREAM).sent)
    assert len(Peer().receive(STREAM).answers()) == 9
    for pieces in splits(STREAM):
        peer = Peer().receive(*pieces)
        assert (bytes(peer.sent), peer.state, peer.budget.received) == (whole, OPEN, 0), pieces


@pytest.mark.parametrize(
    "bad",
    [JUNK, PREFIX.pack(4, 5), PREFIX.pack(3, 0), PREFIX.pack(-1, 0), struct.pack(">iI", 1 << 30, 10)],
    ids=["http", "header beyond frame", "no header word", "negative", "too long"],
)
def test_what_came_before_a_bad_frame_is_answered_and_nothing_after_it(bad: bytes) -> None:
    stream = view(2, 1) + view(3, 2) + bad + view(4, 3)
    for pieces in splits(stream):
        peer = Peer().receive(*pieces)
        assert (peer.opaques(), peer.state) == ([1, 2], FINISHED), pieces


# ------------------------ states


def peer_that_is(state: str) -> Peer:
    peer = Peer(requests_per_connection=1) if state == "held by requests" else Peer()
    match state:
        case "within a frame":
            peer.receive(view(2, 1)[:20])
        case "queued":
            peer.scheduler.spend(SHARE_BYTES + SMALL_READ)
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


START = {"open": OPEN, "within a frame": OPEN, "queued": QUEUED, "held by its reader": HELD, "held by requests": HELD}
START |= {"ending": ENDING, "finished": FINISHED, "lost": LOST}


EVENTS = {
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
def test_every_event_in_every_state_leads_where_the_table_says(start: str) -> None:
    for (event, happen), led_to in zip(EVENTS.items(), NEXT[start], strict=True):
        peer = peer_that_is(start)
        assert peer.state is START[start]
        happen(peer)
        peer.collect()
        assert peer.state is led_to, event


@pytest.mark.parametrize("start", START)
def test_two_events_leave_no_contradiction(start: str) -> None:
    for events in product(EVENTS, EVENTS):
        peer = peer_that_is(start)
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


# ------------------------ turns


@pytest.mark.parametrize("event", ["nothing", "end", "eof", "junk"])
def test_a_burst_of_many_turns_is_answered_to_its_end(event: str) -> None:
    """Also where nothing further is read since it came: the server stops, the client has ended, the stream is bad."""
    count = 5 * TURN_FRAMES
    peer = Peer().receive(b"".join(view(3, number) for number in range(count)))
    assert peer.state is QUEUED
    assert len(peer.answers()) < count
    if event != "nothing":
        EVENTS[event](peer)
    assert peer.use_turns() > 1
    assert peer.opaques() == list(range(count))
    assert peer.state is (OPEN if event == "nothing" else FINISHED)


# ------------------------ a client that does not read


def test_a_client_that_does_not_read_is_answered_nothing_and_then_everything() -> None:
    stream = view(2, 1) + view(3, 2) + view(4, 3)
    for cut in range(len(stream)):
        peer = Peer().receive(stream[:cut]) if cut else Peer()
        before = bytes(peer.sent)
        peer.session.pause_writing()
        peer.receive(stream[cut:])
        assert (bytes(peer.sent), peer.state) == (before, HELD)
        peer.resume()
        assert (peer.opaques(), peer.state, peer.budget.received) == ([1, 2, 3], OPEN, 0)


def test_nothing_is_pushed_to_a_client_that_does_not_read_or_is_to_go() -> None:
    peer = Peer()
    peer.session.push(view(1, 1))
    peer.session.pause_writing()
    peer.session.push(view(1, 2))
    peer.session.resume_writing()
    peer.session.end()
    peer.session.push(view(1, 3))
    peer.collect()
    assert bytes(peer.sent) == view(1, 1)


# ------------------------ answers that come later


def test_when_all_clients_hold_too_much_what_would_wait_is_refused() -> None:
    peer = Peer()
    peer.budget.in_flight = 1 << 40
    peer.receive(request(COLD, 1) + request(LATER, 2) + request(WITH_OTHERS, 3) + view(2, 4))
    codes = {answer.opaque: answer.code for answer in peer.answers()}
    assert codes == dict.fromkeys((1, 2, 3), ResponseCode.SYSTEM_BUSY) | {4: ResponseCode.SUCCESS}
    assert not peer.started
    assert peer.families.replies[0].is_given_up
    assert peer.families.awaitables[0].is_cancelled


def test_at_the_end_of_the_stream_what_ends_by_itself_is_finished_and_the_rest_is_given_up() -> None:
    peer = Peer().receive(request(COLD, 1) + request(LATER, 2) + request(WITH_OTHERS, 3))
    peer.session.receive_eof()
    assert peer.families.replies[0].is_given_up
    assert not peer.families.awaitables[0].is_cancelled
    peer.resolve(Response(body=b"from another worker"))
    assert peer.state is ENDING
    peer.resolve(Response(body=b"found"))
    assert (sorted(peer.opaques()), peer.state, peer.budget.in_flight) == ([1, 2], FINISHED, 0)


def test_what_begins_to_wait_for_an_event_after_the_end_of_the_stream_is_given_up_at_once() -> None:
    """Whether it waited for its turn until then, or for a page that was to say whether there is an answer."""
    count = 5 * TURN_FRAMES
    burst = b"".join(view(3, number) for number in range(count))
    peer = Peer().receive(request(COLD, count) + burst + request(WITH_OTHERS, count + 1))
    assert not peer.families.replies
    peer.session.receive_eof()
    peer.use_turns()
    (waits,) = peer.families.replies
    assert waits.is_given_up
    further = Reply()
    peer.resolve(further)
    assert further.is_given_up
    assert (peer.opaques(), peer.state, peer.budget.in_flight) == ([*range(count)], FINISHED, 0)


def test_what_is_answered_after_the_client_is_gone_goes_nowhere_and_begins_nothing() -> None:
    peer = Peer().receive(request(COLD, 1) + request(COLD, 2) + request(WITH_OTHERS, 3))
    peer.session.connection_lost()
    peer.resolve(Response())
    further = Reply()
    _, pending = peer.started.pop()
    peer.session.resolve(pending, further)
    peer.send_replies([*peer.families.replies], Response())
    assert (bytes(peer.sent), peer.state, peer.budget.in_flight) == (b"", LOST, 0)
    assert peer.families.replies[0].is_given_up
    assert further.is_given_up
    assert not peer.session.answers.take_replies()


# ------------------------ time


def test_what_a_file_that_was_cut_meanwhile_may_have_spoiled_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    cuts, is_served_still = 0, False

    def count() -> int:
        return cuts

    def cut(since: int | None) -> StoreError | None:
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
    found, whole = (good, b"found"), (good, b"whole")
    assert codes == {1: found, 2: failed, 3: found, 4: failed, 6: failed, 7: whole, 8: whole, 9: failed}


LIMITS = Limits(received_bytes=10 * MIB, unsent_bytes=10 * MIB, frame_seconds=60, reader_seconds=60)


class Mate:
    def __init__(self, unsent_bytes: int = 0) -> None:
        self.unsent_bytes = unsent_bytes
        self.owes_rest = True
        self.reasons: list[str] = []

    def drop(self, reason: str) -> None:
        self.reasons.append(reason)


def sizes(*peers):
    return {peer: partial(getattr, peer, "unsent_bytes") for peer in peers}


@pytest.fixture
def costs(clock) -> ConnectionBudget:
    return ConnectionBudget(LIMITS, clock)


def test_what_is_received_is_the_sum_of_what_connections_hold(costs: ConnectionBudget) -> None:
    first, second = Mate(), Mate()
    costs.holds(first, 100, is_new=True)
    costs.holds(second, 50, is_new=True)
    costs.holds(first, 300, is_new=False)
    assert costs.received == 350
    costs.holds(first, 20, is_new=True)
    costs.forget(second)
    assert costs.received == 20
    costs.holds(first, 0, is_new=False)
    costs.holds(second, 0, is_new=True)
    assert costs.received == 0


def test_whoever_is_longest_at_one_request_goes_when_too_much_is_held(costs: ConnectionBudget) -> None:
    oldest, busy, newest = Mate(), Mate(), Mate()
    costs.holds(oldest, MIB, is_new=True)
    costs.holds(busy, 4 * MIB, is_new=True)
    costs.holds(oldest, 2 * MIB, is_new=False)
    costs.holds(newest, 5 * MIB, is_new=True)
    assert "received_bytes" in oldest.reasons[0]
    assert costs.received == 9 * MIB
    # One that completes a request stands behind all others again.
    costs.holds(busy, 4 * MIB, is_new=True)
    costs.holds(Mate(), 2 * MIB, is_new=True)
    assert (len(newest.reasons), busy.reasons) == (1, [])


def test_a_request_has_to_be_complete_in_time(costs, clock) -> None:
    slow, quick, held = Mate(), Mate(), Mate()
    for peer in (slow, quick, held):
        costs.holds(peer, 10, is_new=True)
    held.owes_rest = False
    clock.seconds += 59
    costs.sweep(sizes(slow, quick, held))
    costs.holds(slow, 11, is_new=False)
    costs.holds(quick, 11, is_new=True)
    clock.seconds += 2
    costs.sweep(sizes(slow, quick, held))
    assert "frame_seconds" in slow.reasons[0]
    assert quick.reasons == held.reasons == []
    held.owes_rest = True
    clock.seconds += 61
    costs.sweep(sizes(quick, held))
    assert quick.reasons
    assert held.reasons


def test_a_client_that_is_not_read_has_to_read_in_time(costs, clock) -> None:
    slow, quick = Mate(), Mate()
    costs.reads_slowly(slow)
    costs.reads_slowly(quick)
    costs.reads_again(quick)
    clock.seconds += 61
    costs.sweep(sizes(slow, quick))
    assert "reader_seconds" in slow.reasons[0]
    assert quick.reasons == []


def test_too_much_that_nobody_reads_closes_the_slow_first_then_the_largest(costs: ConnectionBudget) -> None:
    slow, large, small = Mate(3 * MIB), Mate(6 * MIB), Mate(5 * MIB)
    costs.reads_slowly(slow)
    costs.sweep(sizes(slow, large, small))
    assert [len(peer.reasons) for peer in (slow, large, small)] == [1, 1, 0]
    assert costs.unsent == 5 * MIB


def test_complaints_about_clients_do_not_fill_the_log(costs, clock, caplog) -> None:
    with caplog.at_level(logging.WARNING):
        for number in range(COMPLAINTS + 30):
            costs.complain("client %d", number)
        assert len(caplog.records) == COMPLAINTS
        clock.seconds += COMPLAINTS_SECONDS
        costs.complain("client again")
    messages = [record.getMessage() for record in caplog.records[-2:]]
    assert messages == ["30 more such warnings were not logged", "client again"]


def pending_with(**limits: int) -> tuple[PendingRequests, ConnectionBudget]:
    budget = ConnectionBudget(Limits(**limits), lambda: 0.0)
    return PendingRequests(budget), budget


PULL = Command(code=RequestCode.PULL_MESSAGE)


def waiting():
    yield Wait("a page")
    return Response()


def look_up(command: Command = PULL) -> PendingRequest:
    wait = Wait("a page")
    return PendingRequest(command, Visit(wait), Unfinished(wait, waiting()))


@pytest.mark.parametrize(
    ("fields", "size"),
    [({"topic": "T" * 100}, FIELD_COST + 105), ({"topic": "消" * 100}, FIELD_COST + 405), (b"[" * 500, 500)],
)
def test_fields_count_with_the_bytes_that_they_hold(fields: dict[str, str] | bytes, size: int) -> None:
    pending, budget = pending_with()
    request = look_up(Command(code=RequestCode.PULL_MESSAGE, ext_fields=fields, body=b"body"))
    pending.add(request)
    assert (len(pending), pending.cost) == (1, PENDING_REQUEST_BYTES + size + 4)
    pending.remove(request)
    assert (len(pending), pending.cost, budget.in_flight) == (0, 0, 0)


class Reader:
    def __init__(self, turns, work, had_turn) -> None:
        self.turns = turns
        self.work = work
        self.had_turn = had_turn

    def go_on(self) -> None:
        self.had_turn(self)
        self.work -= 1
        if self.work:
            self.turns.join(self)


async def test_one_of_the_line_has_its_turn_in_each_turn_of_the_loop_and_all_in_order() -> None:
    turns, had = Scheduler(asyncio.get_running_loop().call_soon), list[Reader | None]()
    first, second = Reader(turns, 3, had.append), Reader(turns, 2, had.append)
    for client in (first, second, second):
        turns.join(client)
    for _ in range(6):
        await asyncio.sleep(0)
        had.append(None)
    assert had == [first, None, second, None, first, None, second, None, first, None, None]


async def test_who_waits_makes_the_others_answer_in_slices() -> None:
    turns = Scheduler(asyncio.get_running_loop().call_soon)
    assert (turns.is_crowded, turns.stop(10 * SMALL_READ)) == (False, 10 * SMALL_READ)
    turns.join(Reader(turns, 1, lambda client: None))
    assert (turns.is_crowded, turns.stop(10 * SMALL_READ), turns.stop(100)) == (True, SLICE_BYTES, 100)
