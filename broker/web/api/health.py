"""Examine the store as `rocketlens doctor` does, once for all clients that ask at the same time.

An examination takes seconds, so an answer may be that it is under way and how far; the client then asks again. It ends
by itself when no client has asked for a while: closing the page stops it.
"""

import threading
import time
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from broker.web.api.endpoint import Question
from broker.web.api.request_context import RequestContext
from protocol.errors import RocketLensError
from storage.doctor.examine import STEPS, Diagnosis, examine
from storage.ranges import subtract

KEPT_SECONDS: Final = 30.0
"""How long an outcome is answered before the store is examined anew."""

PATIENCE_SECONDS: Final = 5.0
"""How long after the last request an examination is given up."""

WAITED_SECONDS: Final = 0.25
"""How long an answer waits for an examination that may be done any moment."""


class HealthQuestion(Question):
    """`maximumAge`: an outcome that is older, in seconds, is not answered; the store is examined anew."""

    maximum_age: Annotated[int, Meta(ge=0, le=3600)] = int(KEPT_SECONDS)


class FindingLine(msgspec.Struct, rename="camel", kw_only=True):
    """One finding of an examination: where it is, what is there, what it means, and how to fix it."""

    severity: Literal["error", "warning", "info"]
    check: str
    place: str
    found: str
    meaning: str
    remedy: str
    physical_offset: int | None


class Picture(msgspec.Struct, rename="camel", kw_only=True):
    """Ranges of physical offsets from `minimum` to `end`: intact messages, and those that queues and index know.

    `damaged` are those of the log that are not intact, or missing; `times` are (physical offset, store time in ms).
    """

    minimum: int
    end: int
    log: list[tuple[int, int]]
    queues: list[tuple[int, int]]
    index: list[tuple[int, int]]
    damaged: list[tuple[int, int]]
    times: list[tuple[int, int]]


class Outcome(msgspec.Struct, rename="camel", kw_only=True):
    """What an examination found; `state` is live, crashed or stopped, `seconds` how long it took."""

    state: str
    is_clean: bool
    segments: int
    index_files: int
    unindexed_messages: int
    picture: Picture
    findings: list[FindingLine]
    examined_timestamp: int
    seconds: float


class HealthAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """`running`: `step` of `steps` is at work, ask again. `done`: there is an `outcome`, `failed`: a `problem`.

    While it runs, `outcome` is that of the last examination, if there was one.
    """

    state: Literal["running", "done", "failed"]
    step: str | None = None
    steps_done: int = 0
    steps: int = len(STEPS)
    seconds: float = 0.0
    outcome: Outcome | None = None
    problem: str | None = None


class _NobodyAsks(Exception):
    """The examination is given up."""


class Examinations:
    """The examinations of all stores; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_broker: dict[str, Examination] = {}

    def close(self) -> None:
        """Give up what is under way."""
        with self._lock:
            for each in self._by_broker.values():
                each.close()

    def health(self, context: RequestContext, question: HealthQuestion) -> HealthAnswer:
        """Findings about the store, with a picture of what log, queues and index cover."""
        context.require_admin()
        with self._lock:
            examination = self._by_broker.setdefault(context.service.broker_name, Examination())
        return examination.health(context, question)


class Examination:
    """Examines one store, at most once at a time; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._asked_at = self._started = 0.0
        self._step = 0
        self._outcome: Outcome | None = None
        self._ended = -KEPT_SECONDS
        self._problem: str | None = None

    def close(self) -> None:
        """Give up what is under way."""
        self._is_closed = True

    def health(self, context: RequestContext, question: HealthQuestion) -> HealthAnswer:
        """How far it has come, or what it found."""
        with self._lock:
            self._asked_at = time.monotonic()
            thread = self._thread
            if thread is None and (time.monotonic() - self._ended > question.maximum_age or not self._is_known):
                thread = self._thread = threading.Thread(target=self._run, args=(context,), name="doctor", daemon=True)
                self._started, self._step = time.monotonic(), 0
                thread.start()
        if thread is not None:
            thread.join(WAITED_SECONDS)
            if self._thread is thread:
                return HealthAnswer(
                    state="running",
                    step=STEPS[self._step],
                    steps_done=self._step,
                    seconds=time.monotonic() - self._started,
                    outcome=self._outcome,
                )
        if self._problem is not None:
            return HealthAnswer(state="failed", problem=self._problem)
        return HealthAnswer(state="done", steps_done=len(STEPS), outcome=self._outcome)

    @property
    def _is_known(self) -> bool:
        return self._outcome is not None or self._problem is not None

    def _run(self, context: RequestContext) -> None:
        options = context.service.options
        vouched = None
        if options.index_slots is not None and options.index_entries is not None:
            vouched = options.index_slots, options.index_entries
        outcome, problem = None, None
        try:
            root = context.store.layout.root
            outcome = _outcome(examine(root, options.commit_log_directories, vouched, self._begin_step))
        except _NobodyAsks:
            problem = None
        except RocketLensError as error:
            problem = str(error)
        except Exception:
            problem = "the examination failed; the server's log has the reason"
            with self._lock:
                self._thread, self._problem, self._ended = None, problem, time.monotonic()
            raise
        with self._lock:
            self._thread = None
            self._problem = problem
            if outcome is not None:
                self._outcome = outcome
            if outcome is not None or problem is not None:
                self._ended = time.monotonic()

    def _begin_step(self, number: int) -> None:
        if self._is_closed or time.monotonic() - self._asked_at > PATIENCE_SECONDS:
            raise _NobodyAsks
        self._step = number


def _outcome(diagnosis: Diagnosis) -> Outcome:
    coverage = diagnosis.coverage
    whole = [(coverage.minimum, coverage.end)] if coverage.end > coverage.minimum else []
    return Outcome(
        state=diagnosis.state,
        is_clean=diagnosis.is_clean,
        segments=diagnosis.segments,
        index_files=len(diagnosis.index_files),
        unindexed_messages=diagnosis.unindexed_messages,
        picture=Picture(
            minimum=coverage.minimum,
            end=coverage.end,
            log=list(coverage.log),
            queues=list(coverage.queues),
            index=list(coverage.index),
            damaged=list(subtract(whole, coverage.log)),
            times=list(coverage.times),
        ),
        findings=[
            FindingLine(
                severity=finding.severity.value,
                check=finding.check,
                place=finding.place,
                found=finding.found,
                meaning=finding.meaning,
                remedy=finding.remedy,
                physical_offset=finding.physical_offset if finding.physical_offset >= 0 else None,
            )
            for finding in diagnosis.findings
        ],
        examined_timestamp=time.time_ns() // 1_000_000,
        seconds=diagnosis.seconds,
    )
