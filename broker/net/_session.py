"""The states of one client's connection, without its socket: bytes in, bytes and wishes out.

A session opens nothing, waits for nothing and starts nothing. `broker.net.transport`, which owns the socket, reports
what happened (bytes came, the client reads no more, a look-up is done). After each report it carries out what the
session then holds: bytes to be sent, requests that wait, and the `state`, which says whether to read on:

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

The state follows from what the two parts of a session hold. The reader (`broker.net._request_reader`) cuts the bytes
into requests, a turn at a time; the answerer (`broker.net._request_answerer`) answers each, or has it wait.
"""

from enum import Enum
from typing import Final

from broker.net._pending_requests import PendingRequest, PendingRequests
from broker.net._request_answerer import RequestAnswerer
from broker.net._request_reader import RequestReader
from broker.net.session_settings import SessionClient, SessionSettings
from broker.service.dispatcher import Answer
from broker.service.pending_reply import Outcome, PendingReply

IDLE_SWEEPS: Final = 2
"""Sweeps without a sign of life after which a client is idle."""


class SessionState(Enum):
    """The states of a session; the module's docstring has the table."""

    OPEN = "open", True
    QUEUED = "queued", True
    HELD = "held", True
    ENDING = "ending", False
    FINISHED = "finished", False
    LOST = "lost", False

    def __init__(self, _: str, takes_requests: bool) -> None:
        self.takes_requests = takes_requests
        """Whether what the client sends from now on is answered, perhaps later."""


# Read for every read of the socket: names of this module cost a third of what members of an enumeration do.
OPEN: Final = SessionState.OPEN
QUEUED: Final = SessionState.QUEUED
HELD: Final = SessionState.HELD
ENDING: Final = SessionState.ENDING
FINISHED: Final = SessionState.FINISHED
LOST: Final = SessionState.LOST


class Session:
    """One client's session, with its `state`; `answers` holds what its transport is to send and start.

    Each report may change both.
    """

    __slots__ = ("_reader", "_sweeps", "_unsent_bytes", "answers", "state")

    def __init__(self, settings: SessionSettings, client: SessionClient) -> None:
        self.state = OPEN
        self.answers = RequestAnswerer(settings, client)
        self._reader = RequestReader(settings, client, self.answers)
        self._sweeps = 0
        self._unsent_bytes = 0

    # ------------------------------------------------------------------ what others may read

    @property
    def pending(self) -> PendingRequests:
        """The requests that wait, and what they hold."""
        return self.answers.pending

    @property
    def is_held(self) -> bool:
        """Whether nothing is answered at present: the client does not read, or too many of its requests wait."""
        return self.answers.is_held

    @property
    def wants_turn(self) -> bool:
        """Whether it is to join the line for a turn."""
        if self.state is ENDING:
            return self._reader.has_unanswered and not self.is_held
        return self.state is QUEUED

    @property
    def owes_rest(self) -> bool:
        """Whether the client has begun a request and is to send the rest, and nothing of it waits for us."""
        return self.state is OPEN and self._reader.owes_rest

    @property
    def farewell(self) -> bytes:
        """What a session that is FINISHED has sent last."""
        return self._reader.farewell

    @property
    def is_answered(self) -> bool:
        """Whether everything that came as a whole is answered, and every answer is in the output or was sent."""
        return not (self._reader.has_unanswered or self.answers.has_unanswered)

    # ------------------------------------------------------------------ what the socket reports

    def receive_data(self, data: bytes) -> bytes | None:
        """Take what the client sent, and answer all requests that are complete.

        Returns the answers where they are all there is to do, and None where there is more or nothing: then it is in
        `answers`, and the state may be another.
        """
        self._sweeps = 0
        state = self.state
        if state is OPEN:
            answers = self._reader.receive(data)
            if answers is not None:
                return answers
        elif state is QUEUED or state is HELD:
            self._reader.keep(data)
        else:
            self._reader.discard(data)
            return None
        self._settle()
        return None

    def receive_eof(self) -> None:
        """The client will ask no more, but may still read: what ends by itself is answered, then the session ends.

        That is a look-up, the answer of worker 0, and that of another client, which is waited for some seconds. What
        waits for a message to arrive is given up: the client may be gone altogether.
        """
        self.answers.give_up_replies()
        self.end()

    def pause_writing(self) -> None:
        """The client does not read as fast as it asks; this may come in the middle of a write."""
        self.answers.pause()
        if self.state.takes_requests:
            self.state = HELD

    def resume_writing(self) -> None:
        """The client has read most of what it was sent; due replies come first, then :meth:`go_on`."""
        self.answers.resume()

    def connection_lost(self) -> None:
        """Forget what waits: the client is gone."""
        self.state = LOST
        self._reader.lose()
        self.answers.lose()

    # ------------------------------------------------------------------ what the server reports

    def end(self) -> None:
        """Read nothing further, and finish what is in flight."""
        self._reader.close()
        self._settle()

    def push(self, frame: bytes) -> None:
        """Send a frame that answers nothing; not to a client that is gone or does not read."""
        if self.state.takes_requests and not self.answers.is_read_slowly:
            self.answers.push(frame)

    def go_on(self) -> None:
        """Use a turn, or what a change of things allows: answer what was left, then have reading go on."""
        if self.state is LOST:
            return
        if self.answers.is_held:
            self._settle()
            return
        was_reading = self.state is OPEN
        had_backlog = self._reader.use_turn()
        self._settle()
        if had_backlog or (self.state is OPEN and not was_reading):
            self._reader.restart_clock()

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
        self.answers.resolve(request, outcome)
        self.go_on()

    def reply(self, replies: list[PendingReply], outcome: Outcome) -> None:
        """Take one answer to several requests; it is due as long as :meth:`send_due` says."""
        self.answers.reply(replies, outcome)

    def send_due(self) -> bool:
        """Put about a turn of due replies into the output; False when there are none or the client does not read."""
        return self.answers.append_due()

    # ------------------------------------------------------------------ from state to state

    def _settle(self) -> None:
        """Set the state of the session after what happened."""
        state, answers = self.state, self.answers
        if state.takes_requests:
            if self._reader.is_closed:
                state = ENDING
            elif answers.is_read_slowly or (answers.pending.cost and answers.is_held):
                state = HELD
            elif self._reader.wants_turn:
                state = QUEUED
            else:
                state = OPEN
        if state is ENDING and self.is_answered:
            state = FINISHED
        self.state = state
