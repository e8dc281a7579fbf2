"""The whole examination: open a store, run every check, put the findings in order."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from storage.doctor._access import check_access
from storage.doctor._checkpoint_file import check_checkpoint
from storage.doctor._config_files import check_config
from storage.doctor._done_before import without_repeated_advice
from storage.doctor._linked_parts import into_links
from storage.doctor._liveness import check_liveness
from storage.doctor._next_start import (
    NextStart,
    check_next_start,
    check_refusals,
    foretell_start,
    kept_as_it_is,
    one_advice,
    only_rescue,
    safe_advice,
)
from storage.doctor._opened_store import OpenedStore
from storage.doctor._rescue_line import typed_by_whom, way_cleared
from storage.doctor._sampling import sample_log
from storage.doctor.finding import Finding, Kind, Known, Severity, with_command
from storage.doctor.index.index_files import check_index_files
from storage.doctor.index.index_health import IndexFileHealth, measure_index_files
from storage.doctor.index.index_reach import check_index_reach, indexed_ranges, measure_index_reach
from storage.doctor.log.clock import check_clock
from storage.doctor.log.log_end import check_log_end
from storage.doctor.log.segments import check_segments
from storage.doctor.queues.queue_files import check_queues
from storage.doctor.queues.queue_reach import check_queue_reach, measure_reach
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from storage.ranges import Ranges, merge, subtract
from storage.recovery.log_outcome import LogOutcome

TREES = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE, CONSUME_QUEUE_EXT)
CLOSED = "closed"
"""The state of a store of which a part cannot be opened; nothing else is said of it."""

ORDER = (Severity.ERROR, Severity.WARNING, Severity.INFO)

Advise = Callable[[OpenedStore, NextStart | None, Iterable[Finding]], list[Finding]]
"""Exchanges the advice of findings by what the others are."""


def _of_store(advise: Callable[[OpenedStore, Iterable[Finding]], list[Finding]]) -> Advise:
    return lambda store, _start, findings: advise(store, findings)


ADVICE_STEPS: Final[tuple[Advise, ...]] = (
    safe_advice,  # what a start would lose is advised against first: whatever comes after knows the rescue by its line
    _of_store(without_repeated_advice),  # before rebuilds are joined: one that was done is known by its own command
    _of_store(one_advice),  # before what is in a rebuild's way is put into its line, of which there is only one then
    _of_store(way_cleared),  # before the rescue takes the place of such lines, which move things
    _of_store(only_rescue),  # before starts are advised against, since what that exchanges must not be exchanged again
    _of_store(kept_as_it_is),  # the last to say which command it is
    _of_store(into_links),  # how the command is typed where parts lie elsewhere: it ends the line no more
    _of_store(typed_by_whom),  # by whom the whole line is typed, which nothing may look into any more
)
"""The steps in which advice is chosen; each says why it stands where it does."""

STEPS = ("the log", "the log's end", "index files", "what the index covers", "what queues cover", "everything else")
"""What an examination does, one after the other; the names are for people."""


MOST_TIMES = 64


@dataclass(frozen=True, slots=True)
class Coverage:
    """Ranges of physical offsets in [minimum, end): `log` holds intact messages, `queues` and `index` know them.

    `times` are (physical offset, store time in ms) of sampled messages, ascending by offset. `queues` is estimated from
    samples.
    """

    minimum: int
    end: int
    log: Ranges
    queues: Ranges
    index: Ranges
    times: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The findings of an examination, the worst first; `state` is live, crashed, stopped or `CLOSED`.

    `minimum`, `end`, `queues_end` and `unindexed_messages` are physical offsets and a number; `next_starts` is what the
    next start of each kind of broker makes of the log, empty where it is not foretold; `seconds` is how long it took.
    """

    store: str
    state: str
    segments: int
    minimum: int
    end: int
    queues_end: int
    unindexed_messages: int
    next_starts: tuple[LogOutcome, ...]
    index_files: tuple[IndexFileHealth, ...]
    coverage: Coverage
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def is_clean(self) -> bool:
        """Whether nothing needs anybody's attention."""
        return is_clean(self.findings)


def is_clean(findings: Iterable[Finding]) -> bool:
    """Whether all findings are informational."""
    return all(finding.severity is Severity.INFO for finding in findings)


@dataclass(frozen=True, slots=True)
class Examination:
    """The result of the checks before remedies are chosen, with the data that the choice depends on.

    `store` is None where a part cannot be opened, for which whatever else is found would be taken for damage.
    """

    store: OpenedStore | None
    next_start: NextStart | None
    found: tuple[Finding, ...]
    diagnosis: Diagnosis

    def joined(self, read: Sequence[Finding]) -> tuple[Finding, ...]:
        """The findings of the look together with those of a reading of everything, the worst first.

        What both have found stands there once, with what the look says of it; what only says that something is wrong
        with a queue or an index file is left out where the reading names it.
        """
        if self.store is None:
            return self.diagnosis.findings
        seen = {finding.identity for finding in read}
        named = {_queue_of(finding) for finding in read} | {(finding.path,) for finding in read}
        known: dict[tuple[str | int, ...], Finding] = {}
        for each in self.found:
            if not each.more and _summarised(each) not in named:
                known.setdefault(each.identity, replace(each, known=Known.READ) if each.identity in seen else each)
        for each in read:
            if not each.more:
                known.setdefault(each.identity, each)
        more = [each for each in (*self.found, *read) if each.more]
        found = (with_command(each, self.store.command) for each in (*known.values(), *more))
        return _advised(self.store, self.next_start, found)


def _summarised(finding: Finding) -> tuple[str, ...] | None:
    """The queue of which a finding names a sample, or the index file of which it names the first fault."""
    if finding.kind is Kind.MISSING_UNIT and finding.known is Known.SAMPLED:
        return _queue_of(finding)
    is_first_fault = finding.check == "index-files" and finding.kind is Kind.FILE and not finding.expected
    return (finding.path,) if is_first_fault else None


def _queue_of(finding: Finding) -> tuple[str, ...]:
    """Topic and id of the queue in whose directory, of any tree, a finding is."""
    parts = finding.path.split("/")
    number = next((n for n, part in enumerate(parts) if part in TREES), len(parts))
    return tuple(parts[number + 1 : number + 3])


def _advised(store: OpenedStore, next_start: NextStart | None, findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings with advice that is safe and not in vain, the worst first."""
    for step in ADVICE_STEPS:
        findings = step(store, next_start, findings)
    return _sorted(findings)


def _sorted(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings, the worst first."""
    return tuple(sorted(findings, key=lambda finding: ORDER.index(finding.severity)))


def examine(
    root: Path,
    commit_log_directories: tuple[Path, ...] = (),
    vouched: tuple[int, int] | None = None,
    begin_step: Callable[[int], None] = lambda _number: None,
) -> Diagnosis:
    """Examine a store as :func:`look_at` does; what it finds."""
    return look_at(root, commit_log_directories, vouched, begin_step).diagnosis


def look_at(
    root: Path,
    commit_log_directories: tuple[Path, ...] = (),
    vouched: tuple[int, int] | None = None,
    begin_step: Callable[[int], None] = lambda _number: None,
) -> Examination:
    """Look at a store for seconds; raises NotAStore, or StoreError without a log. Reads only. Waits for the disk.

    `begin_step` is called with the number of each of `STEPS` before it; what it raises ends the examination.
    """
    started = time.monotonic()
    begin_step(0)
    if closed := check_access(root, commit_log_directories):
        return Examination(None, None, tuple(closed), _closed(root, closed, started))
    store = OpenedStore.open(root, commit_log_directories, vouched)
    samples = sample_log(store.commit_log)
    begin_step(1)
    next_start = foretell_start(store)
    log_end, damaged = check_log_end(store, next_start)
    begin_step(2)
    measured = measure_index_files(store)
    begin_step(3)
    index_reach = measure_index_reach(store)
    begin_step(4)
    queue_reach = measure_reach(store, samples)
    begin_step(5)
    others = [
        *check_liveness(store, index_reach.messages),
        *check_segments(store),
        *log_end,
        *check_queues(store),
        *check_queue_reach(store, samples, queue_reach, next_start),
        *check_index_files(store, measured),
        *check_index_reach(store, index_reach),
        *check_clock(store, samples),
        *check_checkpoint(store, samples, next_start),
        *check_config(store),
    ]
    findings = [*check_next_start(store, next_start), *check_refusals(store, next_start, others), *others]
    log = store.commit_log
    diagnosis = Diagnosis(
        store=str(root),
        state=store.state.word,
        segments=len(log.segments),
        minimum=log.minimum,
        end=log.end,
        queues_end=queue_reach.end,
        unindexed_messages=index_reach.messages,
        next_starts=next_start.outcomes if next_start else (),
        index_files=tuple(measured),
        coverage=Coverage(
            minimum=log.segments[0].base_offset if log.segments else 0,
            end=log.segments[-1].end if log.segments else 0,
            log=subtract(merge((segment.base_offset, segment.end) for segment in log.segments), damaged),
            queues=queue_reach.covered(samples, log),
            index=indexed_ranges(store, index_reach),
            times=tuple(
                (sample.physical_offset, sample.store_timestamp)
                for sample in samples[:: max(len(samples) // MOST_TIMES, 1)]
            ),
        ),
        findings=_advised(store, next_start, findings),
        seconds=time.monotonic() - started,
    )
    return Examination(store, next_start, tuple(findings), diagnosis)


def _closed(root: Path, findings: Iterable[Finding], started: float) -> Diagnosis:
    """Report of a store of which a part cannot be opened only that."""
    return Diagnosis(
        store=str(root),
        state=CLOSED,
        segments=0,
        minimum=0,
        end=0,
        queues_end=0,
        unindexed_messages=0,
        next_starts=(),
        index_files=(),
        coverage=Coverage(0, 0, (), (), (), ()),
        findings=_sorted(findings),
        seconds=time.monotonic() - started,
    )
