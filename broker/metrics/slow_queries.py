"""One line in the log for each query that took long, with the reason; never a key, a body or a signature."""

import contextlib
import logging
import time
from dataclasses import dataclass, replace

from broker.config import DEFAULT_MILLISECONDS
from broker.metrics.metrics_rows import ASKED_ANOTHER, COLD, EVENT_LOOP, LONG_CHAIN, PARSING, POOL_QUEUE, REASONS, SCAN
from protocol.codes import RequestCode, ResponseCode
from protocol.command import Command, ext_field_of
from protocol.errors import ProtocolError
from storage.amounts import counted
from storage.files.waiting import Wait, WaitKind

logger = logging.getLogger(__name__)

LINES = 50
"""Lines in one period; a slow disk must not fill a fast one with them."""

PERIOD_SECONDS = 10.0

LONGEST_NAME = 255

_KINDS = {WaitKind.PAGE: COLD, WaitKind.CHAIN: LONG_CHAIN, WaitKind.SCAN: SCAN, WaitKind.PARSING: PARSING}


class Visit:
    """A request's way from when it could not be answered at once; times in ns of the monotonic clock.

    `wait` is what its look-up waits for first; the thread that goes on with it calls :meth:`warm` in the place of that.
    Without that it waits for another worker, or for a client, and for no thread.
    """

    __slots__ = ("asked", "begun", "wait", "warmed")

    def __init__(self, wait: Wait | None = None) -> None:
        self.wait = wait
        self.asked = time.perf_counter_ns()
        self.begun = self.warmed = 0

    def warm(self) -> None:
        """Read the missing bytes into memory, on the thread that answers the request."""
        self.begun = time.perf_counter_ns()
        if self.wait is not None:
            self.wait.warm()
        self.warmed = time.perf_counter_ns()

    @property
    def kind(self) -> int:
        """Why it could not be answered at once, as a number of REASONS."""
        return ASKED_ANOTHER if self.wait is None else _KINDS[self.wait.kind]

    @property
    def queued(self) -> int:
        """ns that it waited for a thread."""
        return max(self.begun - self.asked, 0)

    def reason(self, elapsed: int) -> int:
        """The reason that took most of `elapsed` ns, as a number of REASONS."""
        return POOL_QUEUE if self.wait is not None and 2 * self.queued > elapsed else self.kind


@dataclass(frozen=True, slots=True)
class SlowQuery:
    """What a line says; times in milliseconds. `queued` and `disk` None where no thread was waited for.

    `code` and `result` None: a turn of the event loop whose requests compiled code has answered, or none at once.
    """

    code: str | None
    result: str | None
    peer: str
    milliseconds: float
    reason: str
    topic: str | None = None
    group: str | None = None
    queued: float | None = None
    disk: float | None = None
    detail: str | None = None
    requests: int = 1
    broker: str | None = None

    def sentence(self) -> str:
        """The line for people."""
        of = "".join(f" {what} {name}" for what, name in (("topic", self.topic), ("group", self.group)) if name)
        many = f" and {self.requests - 1} more in one turn" if self.requests > 1 else ""
        waited = "" if self.queued is None else f", {self.queued:g} ms for a thread, {self.disk:g} ms for the disk"
        detail = f" ({self.detail})" if self.detail else ""
        code = "a turn of requests" if self.code is None else self.code
        ended = "" if self.result is None else f" and ended with {self.result}"
        at = "" if self.broker is None else f" at {self.broker}"
        return (
            f"slow query{at}: {code}{of}{many} from {self.peer} took {self.milliseconds:g} ms{ended}; "
            f"{self.reason.replace('_', ' ')}{waited}{detail}"
        )

    def fields(self) -> dict[str, object]:
        """The members of the log line in JSON; what is not known is left out."""
        fields = {
            "code": self.code,
            "result": self.result,
            "peer": self.peer,
            "milliseconds": self.milliseconds,
            "reason": self.reason,
            "topic": self.topic,
            "group": self.group,
            "queued_milliseconds": self.queued,
            "disk_milliseconds": self.disk,
            "detail": self.detail,
            "requests": self.requests,
            "broker": self.broker,
        }
        return {name: value for name, value in fields.items() if value is not None}


class SlowQueries:
    """Logs queries that take `milliseconds` or longer; for the event loop alone.

    `broker` is named in each line, where one process serves several stores.
    """

    def __init__(self, milliseconds: float = DEFAULT_MILLISECONDS, broker: str | None = None) -> None:
        self._broker = broker
        self.limit = int(milliseconds * 1e6)
        """The limit in ns."""
        self._lines = 0
        self._end_seconds = 0.0

    def report_waited(self, command: Command, result: int, peer: object, elapsed: int, visit: Visit) -> None:
        """Log a query that could not be answered at once; `elapsed` in ns."""
        topic, group = _names(command)
        reason = REASONS[visit.reason(elapsed)]
        queued = disk = detail = None
        if visit.wait is not None:
            queued, disk = _milliseconds(visit.queued), _milliseconds(visit.warmed - visit.begun)
            detail = _printable(str(visit.wait))
        code, ended = code_name(command.code), result_name(result)
        self._log(SlowQuery(code, ended, str(peer), _milliseconds(elapsed), reason, topic, group, queued, disk, detail))

    def report_turn(self, code: int, result: int, requests: int, peer: object, elapsed: int) -> None:
        """Log a turn of the event loop that took this long.

        `code` and `result` are those of the first of its `requests`, as far as they are known one by one.
        """
        name, ended = (code_name(code), result_name(result)) if requests else (None, None)
        self._log(SlowQuery(name, ended, str(peer), _milliseconds(elapsed), REASONS[EVENT_LOOP], requests=requests))

    def _log(self, query: SlowQuery) -> None:
        query = replace(query, broker=self._broker)
        now = time.monotonic()
        if now >= self._end_seconds:
            if self._lines > LINES:
                logger.warning(
                    "%s not logged", counted(self._lines - LINES, "more slow query was", "more slow queries were")
                )
            self._lines, self._end_seconds = 0, now + PERIOD_SECONDS
        self._lines += 1
        if self._lines <= LINES:
            logger.warning("%s", query.sentence(), extra={"fields": query.fields()})


def code_name(code: int) -> str:
    """The name of a request code, or its number."""
    try:
        return RequestCode(code).name
    except ValueError:
        return str(code)


def result_name(result: int) -> str:
    """The name of a response code, or its number."""
    try:
        return ResponseCode(result).name
    except ValueError:
        return str(result)


def _names(command: Command) -> tuple[str | None, str | None]:
    """Topic and group that a request names, as far as it can be read."""
    with contextlib.suppress(ProtocolError):
        group = ext_field_of(command, "consumerGroup") or ext_field_of(command, "group")
        return _printable(ext_field_of(command, "topic")), _printable(group)
    return None, None


def _printable(text: str | None) -> str | None:
    """A text that cannot break a line of the log, or None for none."""
    if not text:
        return None
    text = text if len(text) <= LONGEST_NAME else f"{text[:LONGEST_NAME]}…"
    return text if text.isprintable() else ascii(text)


def _milliseconds(nanoseconds: int) -> float:
    return round(nanoseconds / 1e6, 1)
