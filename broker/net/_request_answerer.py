"""The answers of one session: each request becomes bytes in the output at once, or waits.

A request goes to the dispatcher. Where that returns a response, its bytes are appended to the output. Where the answer
has to be waited for, the request is counted as pending and put into `started` (it gets an answer of its own) or
`replies` (many are answered alike); the transport takes both out, and reports the outcome to the session later. So
answers may leave in another order than their requests came: clients match them by `opaque`.
"""

from collections.abc import Awaitable
from typing import Final

from broker.metrics.metrics_meter import RESULT_BITS
from broker.metrics.slow_queries import Visit
from broker.net._pending_requests import PendingRequest, PendingRequests
from broker.net.scheduler import TURN_BYTES
from broker.net.session_settings import SessionClient, SessionSettings
from broker.service.dispatcher import BUSY, Answer, is_better_unanswered
from broker.service.pending_reply import Outcome, PendingReply, QueuedReplies
from protocol.codes import ResponseCode
from protocol.command import (
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Command,
    Response,
    decode_command,
    encode_response,
    ext_fields_of,
)
from protocol.errors import BadCommand, ProtocolError, RocketLensError
from protocol.frame import Frame
from storage.files.waiting import Unfinished
from storage.kernels.file_map import count_cuts

SHORTEST_FIELD: Final = 6
"""Bytes of a header that one field of a request takes at least, in either form."""

OVERLOADED: Final = Response(ResponseCode.SYSTEM_BUSY, remark=BUSY)
"""The answer to a request that would have to wait while the requests of all clients hold too much."""


class RequestAnswerer:
    """Answers the requests of one client.

    `output` are the bytes to be sent, in order, `output_bytes` of them. `started` and `replies` are the requests that
    began to wait since they were last taken out, and `pending` are all requests that wait.
    """

    __slots__ = (
        "_awaited_commands",
        "_budget",
        "_checks",
        "_client",
        "_cuts",
        "_dispatcher",
        "_due",
        "_frame_limit",
        "_is_lost",
        "_limits",
        "_meter",
        "_settings",
        "_short_header",
        "_takes_replies",
        "is_read_slowly",
        "output",
        "output_bytes",
        "pending",
        "replies",
        "started",
    )

    def __init__(self, settings: SessionSettings, client: SessionClient) -> None:
        self.output: list[bytes | memoryview] = []
        self.output_bytes = 0
        self.started: list[PendingRequest] = []
        self.replies: list[tuple[PendingReply, Command]] = []
        self.pending = PendingRequests(settings.budget)
        self.is_read_slowly = False
        """Whether the client does not read as fast as it asks."""
        self._settings = settings
        self._client = client
        self._dispatcher = settings.dispatcher
        self._frame_limit = settings.frame_limit
        self._budget = settings.budget
        self._limits = settings.budget.limits
        self._short_header = SHORTEST_FIELD * self._limits.ext_fields
        self._meter = settings.meter
        self._checks = settings.checks
        self._due: list[QueuedReplies] = []
        self._awaited_commands: dict[PendingReply, Command] = {}
        """The requests of replies that wait; kept only where answers are checked before they leave."""
        self._cuts = 0
        """How often files had been cut under their maps before the answer was begun that comes next."""
        self._is_lost = False
        self._takes_replies = True
        """Whether a request may wait for an event that may never come."""

    # ------------------------------------------------------------------ what the session reads

    @property
    def is_held(self) -> bool:
        """Whether nothing is answered at present: the client does not read, or too many of its requests wait."""
        return self.is_read_slowly or (self.pending.cost > 0 and self.pending.is_much())

    @property
    def has_unanswered(self) -> bool:
        """Whether a request waits, or its answer is not yet in the output."""
        return bool(self._due) or self.pending.cost > 0

    # ------------------------------------------------------------------ what the transport takes

    def take_output(self) -> tuple[list[bytes | memoryview], int]:
        """Return what is to be sent and how many bytes that is, and forget it here."""
        output, size = self.output, self.output_bytes
        self.output, self.output_bytes = [], 0
        return output, size

    def take_started(self) -> list[PendingRequest]:
        """Return the requests for which something is to be begun, see :class:`PendingRequest`, and forget them here."""
        started, self.started = self.started, []
        return started

    def take_replies(self) -> list[tuple[PendingReply, Command]]:
        """Return the replies that are to be delivered to this client later, with their requests; forget them here."""
        replies, self.replies = self.replies, []
        return replies

    # ------------------------------------------------------------------ one request

    def answer(self, frame: Frame) -> int:
        """Answer one frame, at once if possible; returns the bytes appended to the output."""
        self._cuts = count_cuts()
        try:
            command = decode_command(frame)
        except BadCommand as error:
            unreadable = Command(code=0, opaque=error.opaque)
            return self._append(unreadable, Response(ResponseCode.SYSTEM_ERROR, remark=str(error)))
        if command.flag & RESPONSE_FLAG:
            if self._settings.replied is not None:
                self._settings.replied(self._client, command)
            return 0
        if len(frame[1]) > self._short_header:
            refused = self._refuse_too_many_fields(command)
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

    def add_answers(self, answers: bytes) -> None:
        """Put the encoded answers of the fast lane into the output; it counts them itself."""
        self.output.append(answers)
        self.output_bytes += len(answers)

    def push(self, frame: bytes) -> None:
        """Put a frame that answers nothing into the output."""
        self.output.append(frame)
        self.output_bytes += len(frame)
        if self._meter is not None:
            self._meter.note_sent(len(frame))

    def _refuse_too_many_fields(self, command: Command) -> Response | None:
        """Return the answer to a request of too many fields, None if it does not have too many."""
        limit = self._limits.ext_fields
        try:
            count = len(ext_fields_of(command))
        except ProtocolError as error:
            return self._dispatcher.failure(command, error)
        if count <= limit:
            return None
        return Response(ResponseCode.SYSTEM_ERROR, f"{count} fields, more than the limit of {limit}")

    def _is_overloaded(self) -> bool:
        """Whether no further request of any client may wait."""
        return self._budget.in_flight > self._limits.in_flight_bytes

    def _start(self, request: PendingRequest) -> None:
        """Have a request wait for an answer of its own."""
        if self._meter is not None:
            self._meter.begin_wait(request.visit)
        self.pending.add(request)
        self.started.append(request)

    def _add_reply(self, command: Command, reply: PendingReply) -> None:
        """Have a request wait for a reply that many requests get."""
        if not self._takes_replies and reply.outcome is None:
            reply.give_up()
            return
        if self._meter is not None:
            self._meter.held()
        if self._checks:
            self._awaited_commands[reply] = command
        self.pending.add_reply(command, reply)
        self.replies.append((reply, command))

    def _append(self, command: Command, response: Response) -> int:
        """Encode an answer into the output, unless its request is to get none; returns its bytes."""
        if (cut := self._settings.cut(self._cuts)) is not None:
            response = self._dispatcher.failure(command, cut)
        if self._checks:
            response = self._checked(command, response)
        if command.flag & ONEWAY_FLAG or (response.code and is_better_unanswered(command.code, response.code)):
            if self._meter is not None:
                self._meter.answers.append(command.code << RESULT_BITS | response.code)
            return 0
        try:
            prefix = encode_response(command, response)
        except Exception as error:
            response = self._dispatcher.failure(command, error)
            prefix = encode_response(command, response)
        if len(prefix) + len(response.body) > self._frame_limit:
            # Lists of a huge store; answers with records are cut where they are made.
            remark = f"the answer has {len(response.body)} bytes, more than clients accept in a frame"
            response = Response(ResponseCode.SYSTEM_ERROR, remark)
            prefix = encode_response(command, response)
        if self._meter is not None:
            self._meter.answers.append(command.code << RESULT_BITS | response.code)
        size = len(prefix)
        self.output.append(prefix)
        if response.body:
            size += len(response.body)
            self.output.append(response.body)
        self.output_bytes += size
        return size

    def _checked(self, command: Command, response: Response) -> Response:
        """Return the answer to a request as it leaves, after all checks have seen it."""
        for check in self._checks:
            response = check(command, self._client, response)
        return response

    # ------------------------------------------------------------------ answers that come later

    def resolve(self, request: PendingRequest, outcome: "Answer | BaseException | None") -> None:
        """Answer a request that had to wait; None means that it was given up."""
        self.pending.remove(request)
        if outcome is not None:
            self._answer_later(request, outcome)
        if self._is_lost:
            self._give_up()

    def reply(self, replies: list[PendingReply], outcome: Outcome) -> None:
        """Take one answer to several requests; :meth:`append_due` puts it into the output as the client reads."""
        self.pending.replied(replies)
        if self._is_lost:
            return
        code = replies[0].code
        outcome = self._settings.cut(None) or outcome
        response = outcome if isinstance(outcome, Response) else self._dispatcher.failure(Command(code=code), outcome)
        if not self._checks:
            self._note_due(replies, response)
            return
        for each in replies:
            command = self._awaited_commands.pop(each, None) or Command(code=each.code)
            self._note_due([each], self._checked(command, response))

    def append_due(self) -> bool:
        """Put about a turn of due replies into the output; False when there are none or the client does not read."""
        if not self._due or self.is_read_slowly:
            return False
        pieces, size, is_all = self._due[0].piece(TURN_BYTES)
        if is_all:
            del self._due[0]
        self.output += pieces
        self.output_bytes += size
        if self._meter is not None:
            self._meter.note_sent(size)
        return True

    def _answer_later(self, request: PendingRequest, outcome: "Answer | BaseException") -> None:
        command = request.command
        answer = self._dispatcher.failure(command, outcome) if isinstance(outcome, BaseException) else outcome
        self._cuts = request.cuts
        if (cut := self._settings.cut(request.cuts)) is not None:
            answer = self._dispatcher.failure(command, cut)
        if isinstance(answer, PendingReply):
            self._add_reply(command, answer)
        elif not isinstance(answer, Response):
            self._start(PendingRequest(command, Visit(), answer))
        elif not self._is_lost:
            size = self._append(command, answer)
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

    # ------------------------------------------------------------------ the client and its connection

    def pause(self) -> None:
        """The client does not read as fast as it asks: answer nothing further."""
        self.is_read_slowly = True
        self._budget.reads_slowly(self._client)

    def resume(self) -> None:
        """The client has read most of what it was sent."""
        self.is_read_slowly = False
        self._budget.reads_again(self._client)

    def give_up_replies(self) -> None:
        """Wait for no event that may never come: the client asks no more."""
        self._takes_replies = False
        self.pending.give_up_replies()

    def lose(self) -> None:
        """Forget all answers: the client is gone."""
        self._is_lost = True
        self._due.clear()
        self.output.clear()
        self.output_bytes = 0
        self._give_up()

    def _give_up(self) -> None:
        self.pending.give_up()
        self.replies.clear()
        self._awaited_commands.clear()


def _discard(answer: "Awaitable[Response]") -> None:
    """Stop an awaitable that nobody will wait for: a coroutine that was not started, or a future."""
    stop = getattr(answer, "close", None) or getattr(answer, "cancel", None)
    if stop is not None:
        stop()
