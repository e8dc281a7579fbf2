"""Foretell what a broker that starts on the store does to its log, and say first of all where messages would be lost.

A broker's recovery ends the log at damage and deletes what lies behind, though all of it can be read
(:mod:`storage.recovery.log_outcome`). So no other finding may advise a start, or a rebuild in place, which ends where
the recovery ends.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from protocol.errors import StoreError
from storage.amounts import count_text, counted
from storage.doctor._opened_store import OpenedStore
from storage.doctor._rescue_line import CHANGES, MOVES, after_checkpoint, removal_line, rescue_line, set_aside_line
from storage.doctor.finding import (
    ALL,
    ALL_ANEW,
    CLEARED_BY_A_START,
    IN_PLACE,
    INDEX,
    INDEX_ANEW,
    NO_COMMAND,
    QUEUES,
    Finding,
    Findings,
    FoundAt,
    Kind,
    Known,
    Severity,
)
from storage.layout.store_config import TOPICS
from storage.recovery.log_outcome import LogForecast, LogOutcome
from storage.recovery.queue_ends import NOWHERE, RecoveredQueue, recovered_queues
from storage.recovery.queue_outcome import doomed_index_files, queue_outcomes
from storage.recovery.start_place import CHECKED_BACK, Broker, StartFacts
from storage.recovery.start_refusals import BACKUP, EVERY, FROM_5, Refusal, foretell_refusals

LONGEST_V1_TOPIC: Final = 127
"""Bytes of the longest topic name that a record of the first version holds."""

MOST_QUEUES: Final = 10_000
"""Queues whose recovery is foretold."""

MOST_NAMED: Final = 5
"""Topics that are named in a sentence."""

DO_NOT_START: Final = "do not start a broker on this store: its recovery will cut"
DO_NOT_RESTART: Final = "do not restart the broker on this store: its recovery will cut"
WHO: Final = {frozenset(EVERY): "a broker", frozenset(FROM_5): "a broker from 5.0 on"}
REFUSED: Final = "as its files are now it does not even start, which the next findings say"
STARTS_NEWER: Final = "from 5.1.4 on they start: an empty last file is deleted, and a directory passed over"
NOTHING_TO_DO: Final = "nothing to do"
MADE_ANEW: Final = "what the damage of the log asks for: a rescue makes this anew"
NO_START: Final = "do not start a broker here, which would write over"
RIGHT_NAMES: Final = (
    "no command fixes this: give the files their names again, or copy this one from a slave or a backup"
)
AFTER_NAMES: Final = "what the log's end asks for: once each segment has its name, ask the doctor again"
MADE_WHOLE: Final = "what the first finding says: it makes a whole store of this one"


@dataclass(frozen=True, slots=True)
class NextStart:
    """What starts of several kinds of brokers make of the log as it lies.

    `needs_checkpoint`: without the checkpoint that is there it would be cut, or more of it. `refusals`: on what brokers
    end before they read it.
    """

    outcomes: tuple[LogOutcome, ...]
    needs_checkpoint: bool
    refusals: tuple[Refusal, ...] = ()

    @property
    def losing(self) -> tuple[LogOutcome, ...]:
        """The outcomes in which messages are lost."""
        return tuple(each for each in self.outcomes if each.cut_bytes)


def foretell_start(store: OpenedStore) -> NextStart | None:
    """Foretell the next start; None where it is not known how queues or log are recovered. Waits for the disk."""
    log = store.commit_log
    if store.layout.ledgers or store.layout.rocksdb_queues is not None or not log.segments:
        return None
    try:
        queues = list(itertools.islice(recovered_queues(store.layout.root), MOST_QUEUES))
    except (StoreError, FileNotFoundError):  # named by the checks of queues, or expired meanwhile
        return None
    queues_end = max((queue.physical_end for queue in queues), default=NOWHERE)
    has_long_names = any(len(topic.encode("utf-8", "replace")) > LONGEST_V1_TOPIC for topic in store.queues.topics())
    brokers = [each for each in Broker if not (has_long_names and each is Broker.UP_TO_4_9)]  # it knows no such records
    forecast = LogForecast(log, store.layout.commit_log_directories)

    def cuts(facts: StartFacts) -> tuple[LogOutcome, ...]:
        return tuple(forecast.outcome(facts, broker) for broker in brokers)

    has_crashed = store.state.has_crashed
    outcomes = cuts(StartFacts(has_crashed, store.checkpoint, queues_end))
    bare = cuts(StartFacts(has_crashed, None, queues_end)) if has_crashed else outcomes
    is_dispatching = has_crashed or any(_dispatched_from(store, each, queues_end) < each.end for each in outcomes)
    batches = _topics_of_batches(store)
    refusals = tuple(foretell_refusals(store.layout, batches, is_dispatching=is_dispatching))
    return NextStart(
        tuple(_whole(store, each, refusals, queues, queues_end) for each in outcomes),
        refusals=refusals,
        needs_checkpoint=any(one.cut_bytes < other.cut_bytes for one, other in zip(outcomes, bare, strict=True)),
    )


def _topics_of_batches(store: OpenedStore) -> Callable[[str], bool] | None:
    """Whether a topic's queues hold batches by topics.json; None where topics are kept elsewhere and cannot be read."""
    path = store.layout.config / TOPICS
    if store.config.is_unknown(TOPICS) and not path.exists() and not path.with_name(TOPICS + BACKUP).exists():
        return None
    topics = store.config.topics
    return lambda topic: topic in topics and topics[topic].has_batches


def _whole(
    store: OpenedStore, outcome: LogOutcome, refusals: Sequence[Refusal], queues: list[RecoveredQueue], queues_end: int
) -> LogOutcome:
    """An outcome of the log with what keeps its broker from starting, and what becomes of queues and index."""
    dispatched_from = _dispatched_from(store, outcome, queues_end)
    doomed = doomed_index_files(store.layout.index, store.checkpoint) if store.state.has_crashed else []
    return dataclasses.replace(
        outcome,
        cut_topics=_topics_behind(queues, outcome.end) if outcome.cut_bytes else (),
        refused=tuple(f"{each.path} {each.found}" for each in refusals if outcome.broker in each.brokers),
        dispatched_from=dispatched_from,
        queues=tuple(queue_outcomes(queues, store.commit_log, outcome.end, dispatched_from)),
        deleted_index_files=tuple(map(str, doomed)),
    )


def _topics_behind(queues: list[RecoveredQueue], end: int) -> tuple[str, ...]:
    """The topics of queues that reach beyond a place in the log, sorted."""
    return tuple(sorted({queue.directory.parent.name for queue in queues if queue.physical_end > end}))


def _dispatched_from(store: OpenedStore, outcome: LogOutcome, queues_end: int) -> int:
    """From where on records are put into queues again: all that are read after a crash, else those behind the queues.

    Newer brokers pass over one that lies exactly where the queues end.
    """
    if store.state.has_crashed:
        return outcome.start
    return max(queues_end + (outcome.broker in CHECKED_BACK), store.commit_log.minimum)


def check_refusals(store: OpenedStore, start: NextStart | None, others: Iterable[Finding]) -> list[Finding]:
    """Report that brokers do not start; the remedy is that of the finding of another check about the same place.

    What only brokers of old versions refuse is a note. What a start would clear is none of them: there is none.
    """
    findings = Findings("next-start", Known.FORETOLD)
    remedies = {each.path: each.remedy for each in others if not each.remedy.startswith(NOTHING_TO_DO)}
    for refusal in start.refusals if start is not None else ():
        is_of_all = Broker.FROM_5_5 in refusal.brokers
        if store.state.is_live and not is_of_all:  # a running broker has just made the file
            continue
        who = WHO.get(frozenset(refusal.brokers)) or f"a broker {' or '.join(refusal.brokers)}"
        path, is_empty = str(refusal.path), not is_of_all and not refusal.path.is_dir()
        findings.add(
            Kind.NEXT_START,
            Severity.ERROR if is_of_all else Severity.INFO,
            refusal.path,
            f"{who} does not start on this store: {path} {refusal.found}",
            "it ends before it recovers anything, and leaves the store as it is" if is_of_all else STARTS_NEWER,
            removal_line(store, refusal.path) if is_empty else remedies.get(path) or _remedy_of_refusal(store, refusal),
        )
    return findings.listed()


def _remedy_of_refusal(store: OpenedStore, refusal: Refusal) -> str:
    """What to do where no other check has a finding about the place."""
    path, trees = refusal.path, (store.layout.consume_queue, store.layout.batch_consume_queue)
    if path.parent in trees:
        return f"copy {store.layout.config / TOPICS} from a slave or a backup: what topics hold is said nowhere else"
    if path.is_dir():
        return set_aside_line(store, path)
    if store.state.is_live:
        return "let it run; before it is stopped, copy the file from a slave"
    return store.command("rebuild queues") if any(map(path.is_relative_to, trees)) else rescue_line(store)


def check_next_start(store: OpenedStore, start: NextStart | None) -> list[Finding]:
    """Report that a start would cut the log, or that not all was read that it reads."""
    findings = Findings("next-start", Known.FORETOLD)
    if start is None:
        return []
    if not start.losing:
        _add_unqueued(store, start, findings)
        unread = [each for each in start.outcomes if not each.is_complete]
        if unread:
            found = f"a broker that starts here reads its log from physical offset {unread[0].start} on"
            meaning = "not all of that was looked at: at damage in it the log is cut"
            remedy = store.command("doctor --deep")
            at = FoundAt(store.layout.root, physical_offset=unread[0].start)
            findings.add(Kind.NOT_COMPARED, Severity.INFO, at, found, meaning, remedy)
        return findings.listed()
    worst = start.losing[0]
    gone = f"deletes {counted(len(worst.deleted), 'segment')} behind" if worst.deleted else "writes over what is behind"
    segment = store.commit_log.segment_of(worst.end) or store.commit_log.segments[0]
    findings.add(
        Kind.NEXT_START,
        Severity.ERROR,
        FoundAt(segment.file.path, position=worst.end - segment.base_offset, physical_offset=worst.end),
        _warning(store, start),
        f"it reads the log again from physical offset {worst.start} on, ends it at {worst.end}, where it finds no "
        f"record, and {gone}; here all these messages are served{'; ' + REFUSED if worst.refused else ''}",
        _remedy(store, segment.file.path),
    )
    return findings.listed()


def safe_advice(store: OpenedStore, start: NextStart | None, findings: Iterable[Finding]) -> list[Finding]:
    """Exchange advice to start a broker, or to rebuild in place, where a start would cut the log.

    Damage of the log that no start meets, or of which that is not foretold, is passed over by a rescue as well, which
    makes queues and index anew.
    """
    listed = list(findings)
    is_damaged = not store.state.is_live and any(_is_of_log(each) for each in listed)
    if is_damaged:
        listed = _with_rescue(store, listed)
    if start is None:
        return [_without_start(each) for each in listed] if is_damaged else listed
    if not start.losing:
        return [_with_care(store, start, each) if start.needs_checkpoint else each for each in listed]
    commands = [store.command(name) for name in IN_PLACE]

    def is_unsafe(remedy: str) -> bool:
        return remedy.startswith(NOTHING_TO_DO) or any(command in remedy for command in commands)

    return [
        replace(each, remedy=MADE_WHOLE, severity=Severity.WARNING if each.severity is Severity.INFO else each.severity)
        if is_unsafe(each.remedy)
        else each
        for each in listed
    ]


def _is_of_log(finding: Finding) -> bool:
    """Whether a finding is damage of the log, of which nothing brings back what is lost."""
    return finding.check in ("segments", "log-end") and finding.remedy == NO_COMMAND


def _with_rescue(store: OpenedStore, findings: Iterable[Finding]) -> list[Finding]:
    """Advise a rescue for damage of the log."""
    line = rescue_line(store)
    return [replace(each, remedy=line) if _is_of_log(each) else each for each in findings]


def only_rescue(store: OpenedStore, findings: Iterable[Finding]) -> list[Finding]:
    """Where a rescue is advised, advise nothing else for what that makes anew, leaves out or mends on the way."""
    listed = list(findings)
    line = rescue_line(store)
    if store.state.is_live or line not in {each.remedy for each in listed}:
        return listed
    commands = [store.command(name) for name in IN_PLACE]

    def is_done_by_it(remedy: str) -> bool:
        return remedy != line and (remedy.startswith(MOVES) or any(command in remedy for command in commands))

    return [replace(each, remedy=MADE_ANEW) if is_done_by_it(each.remedy) else each for each in listed]


def kept_as_it_is(store: OpenedStore, findings: Iterable[Finding]) -> list[Finding]:
    """Advise no start where one would write over what lies behind the log's end.

    Where that is a segment with the name of another one, nothing is to be changed before each has its own: messages
    of it would be left out of whatever is made of the log.
    """
    listed = list(findings)
    if store.state.is_live or not any(NO_START in each.meaning for each in listed):
        return listed
    commands = [store.command(name) for name in IN_PLACE]
    is_misplaced = any(each.remedy == RIGHT_NAMES for each in listed)

    def kept(remedy: str) -> str:
        if not is_misplaced:
            return MADE_ANEW if remedy.startswith(NOTHING_TO_DO) else remedy
        is_change = remedy.startswith((*CHANGES, NOTHING_TO_DO)) or any(command in remedy for command in commands)
        return AFTER_NAMES if is_change or remedy in (MADE_ANEW, MADE_WHOLE) else remedy

    return [replace(each, remedy=kept(each.remedy)) for each in listed]


def _without_start(finding: Finding) -> Finding:
    """Exchange advice to start a broker, of which nobody knows what it does to a damaged log."""
    return replace(finding, remedy=MADE_ANEW) if finding.remedy.startswith(NOTHING_TO_DO) else finding


def _with_care(store: OpenedStore, start: NextStart, finding: Finding) -> Finding:
    """Exchange advice to start whatever broker, where only the checkpoint keeps its recovery from the damage."""
    if not finding.remedy.startswith(NOTHING_TO_DO):
        return finding
    meaning = f"{finding.meaning}; one with messageIndexSafe=true reads more, meets damage, and cuts the log there"
    return replace(finding, meaning=meaning, remedy=rescue_line(store), severity=Severity.WARNING)


def _warning(store: OpenedStore, start: NextStart) -> str:
    """Warn what a start would cost."""
    what = DO_NOT_RESTART if store.state.is_live else DO_NOT_START
    costs: dict[str, list[str]] = {}
    for each in start.losing:
        costs.setdefault(_amount(each), []).append(each.broker)
    if len(costs) == 1 and len(start.losing) == len(start.outcomes):
        return f"{what} {next(iter(costs))}"
    sparing = _sparing(start)
    spared = f"; a broker {' or '.join(sparing)} cuts nothing" if sparing else ""
    shares = ", or ".join(f"{cost} (brokers {' and '.join(of)})" for cost, of in costs.items())
    return f"{what} {shares}{spared}"


def _add_unqueued(store: OpenedStore, start: NextStart, findings: Findings) -> None:
    """Report messages that the log keeps and that no queue leads to any more once a broker has started."""
    worst = max(start.outcomes, key=lambda outcome: outcome.unqueued_messages, default=None)
    if worst is None or not worst.unqueued_messages:
        return
    losing = [each for each in worst.queues if each.lost]
    what = "restart the broker" if store.state.is_live else "start a broker"
    findings.add(
        Kind.NEXT_START,
        Severity.ERROR,
        losing[0].path,
        f"do not {what} on this store: its recovery ends {counted(len(losing), 'queue')} at damage, and "
        f"{counted(worst.unqueued_messages, 'message')}{_of(each.topic for each in losing)} will be in none",
        "here they are served; a broker numbers what is sent then from that end on, and consumers get it at offsets "
        "that others had",
        store.command("rebuild queues"),
    )


def _of(topics: Iterable[str]) -> str:
    """Of which topics; nothing where it is not known."""
    names = list(dict.fromkeys(topics))
    return f" of {', '.join(names[:MOST_NAMED])}{', …' if len(names) > MOST_NAMED else ''}" if names else ""


def _sparing(start: NextStart) -> list[str]:
    """The brokers that lose nothing."""
    return [each.broker for each in start.outcomes if not each.cut_bytes]


def _amount(outcome: LogOutcome) -> str:
    cut = f"{count_text(outcome.cut_bytes)} bytes, about {counted(outcome.cut_messages, 'message')}"
    return cut + _of(outcome.cut_topics)


def _remedy(store: OpenedStore, path: Path) -> str:
    if store.state.is_live:
        return f"let it run; before it is stopped, copy {path} from a slave, and put that copy in its place once it is"
    return rescue_line(store)


def one_advice(store: OpenedStore, findings: Iterable[Finding]) -> list[Finding]:
    """Let one rebuild do what two would do one after the other: that of queues and index reads the log once.

    Where queues are rebuilt nothing is left of their lag. A checkpoint that has to go goes before.
    """
    listed = list(findings)
    queues, index, anew = (store.command(name) for name in (QUEUES, INDEX, INDEX_ANEW))
    if queues in {each.remedy for each in listed}:
        listed = [replace(each, remedy=queues) if _is_cleared_lag(each) else each for each in listed]
    first = after_checkpoint(store, "")
    removes = any(each.remedy.startswith(first) for each in listed)
    parts = {each.remedy.removeprefix(first) for each in listed} & {queues, index, anew}
    if len(parts) < 2 and not removes:
        return listed
    both = ALL_ANEW if anew in parts else ALL
    whole = store.command(both) if queues in parts else anew if anew in parts else index
    whole = f"{first}{whole}" if removes else whole
    return [replace(each, remedy=whole) if each.remedy.removeprefix(first) in parts else each for each in listed]


def _is_cleared_lag(finding: Finding) -> bool:
    return (finding.check, finding.kind, finding.remedy) == ("queue-reach", Kind.LAG, CLEARED_BY_A_START)
