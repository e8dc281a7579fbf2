"""Examine the store as `rocketlens doctor` does, once for all clients that ask at the same time.

An examination takes seconds, so an answer may be that it is under way and how far; the client then asks again. It ends
by itself when no client has asked for a while: closing the page stops it.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from broker.service.kept_work import KEPT_SECONDS, KeptWorks, WorkState
from broker.web.api.answer_lines import FindingLine, finding_line
from broker.web.api.endpoint import MaximumAge, Parameters
from broker.web.api.request_context import RequestContext
from storage.doctor.examine import STEPS, Diagnosis, examine
from storage.ranges import subtract


class HealthQuestion(Parameters):
    """`maximumAge`: an outcome that is older, in seconds, is not answered; the store is examined anew."""

    maximum_age: MaximumAge = int(KEPT_SECONDS)


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
    """What an examination found; `state` is live, crashed, stopped or closed, `seconds` how long it took."""

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


class KeptDiagnosis(NamedTuple):
    """What an examination found, and when it was done, in ms."""

    diagnosis: Diagnosis
    timestamp: int


class Examinations:
    """The examinations of all stores; safe to use from several threads."""

    def __init__(self) -> None:
        self._works: KeptWorks[KeptDiagnosis] = KeptWorks("doctor", "the examination")

    def close(self) -> None:
        """Give up what is under way."""
        self._works.close()

    def examined(self, context: RequestContext, maximum_age: float) -> WorkState[KeptDiagnosis]:
        """What was found not longer than some seconds ago, or how far the examination is; for administrators."""
        context.require_admin()
        return self._works.ask(context.service.broker_name, partial(_examine, context), maximum_age)

    def health(self, context: RequestContext, question: HealthQuestion) -> HealthAnswer:
        """Findings about the store, with a picture of what log, queues and index cover."""
        state = self.examined(context, question.maximum_age)
        outcome = None if state.outcome is None else _outcome(state.outcome)
        if state.is_running:
            return HealthAnswer(
                state="running",
                step=STEPS[state.progress],
                steps_done=state.progress,
                seconds=state.seconds,
                outcome=outcome,
            )
        if state.problem is not None:
            return HealthAnswer(state="failed", problem=state.problem)
        return HealthAnswer(state="done", steps_done=len(STEPS), outcome=outcome)


def _examine(context: RequestContext, report: Callable[[int], None]) -> KeptDiagnosis:
    options = context.service.options
    vouched = None
    if options.index_slots is not None and options.index_entries is not None:
        vouched = options.index_slots, options.index_entries
    found = examine(context.store.layout.root, options.commit_log_directories, vouched, report)
    return KeptDiagnosis(found, time.time_ns() // 1_000_000)


def _outcome(examined: KeptDiagnosis) -> Outcome:
    diagnosis = examined.diagnosis
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
        findings=list(map(finding_line, diagnosis.findings)),
        examined_timestamp=examined.timestamp,
        seconds=diagnosis.seconds,
    )
