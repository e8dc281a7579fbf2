"""Foretell what a broker that starts on the store does to its log, and say first of all where messages would be lost.

A broker's recovery ends the log at damage and deletes what lies behind, though all of it can be read
(:mod:`storage.recovery.log_outcome`). So no other finding may advise a start, or a rebuild in place, which ends where
the recovery ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from protocol.errors import StoreError
from storage.amounts import count_text, counted
from storage.doctor.finding import NO_COMMAND, Finding, Findings, FoundAt, Kind, Known, Severity
from storage.doctor.opened_store import OpenedStore
from storage.doctor.rescue_line import rescue_line
from storage.recovery.log_outcome import LogForecast, LogOutcome
from storage.recovery.queue_ends import recovered_queues_end
from storage.recovery.start_place import Broker, StartFacts

LONGEST_V1_TOPIC: Final = 127
"""Bytes of the longest topic name that a record of the first version holds."""

IN_PLACE: Final = ("rebuild index", "rebuild queues", "rebuild all", "compact index --from-log")
DO_NOT_START: Final = "do not start a broker on this store: its recovery will cut"
DO_NOT_RESTART: Final = "do not restart the broker on this store: its recovery will cut"
NOTHING_TO_DO: Final = "nothing to do"
MADE_ANEW: Final = "what the damage of the log asks for: a rescue makes this anew"
MADE_WHOLE: Final = "what the first finding says: it makes a whole store of this one"


@dataclass(frozen=True, slots=True)
class NextStart:
    """What starts of several kinds of brokers make of the log as it lies.

    `needs_checkpoint`: without the checkpoint that is there it would be cut, or more of it.
    """

    outcomes: tuple[LogOutcome, ...]
    needs_checkpoint: bool

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
        queues_end = recovered_queues_end(store.layout.root, log.segments[-1].base_offset)
    except (StoreError, FileNotFoundError):  # named by the checks of queues, or expired meanwhile
        return None
    has_long_names = any(len(topic.encode("utf-8", "replace")) > LONGEST_V1_TOPIC for topic in store.queues.topics())
    brokers = [each for each in Broker if not (has_long_names and each is Broker.UP_TO_4_9)]  # it knows no such records
    forecast = LogForecast(log, store.layout.commit_log_directories)

    def cuts(facts: StartFacts) -> tuple[LogOutcome, ...]:
        return tuple(forecast.outcome(facts, broker) for broker in brokers)

    has_crashed = store.state.has_crashed
    outcomes = cuts(StartFacts(has_crashed, store.checkpoint, queues_end))
    bare = cuts(StartFacts(has_crashed, None, queues_end)) if has_crashed else outcomes
    return NextStart(
        outcomes,
        needs_checkpoint=any(one.cut_bytes < other.cut_bytes for one, other in zip(outcomes, bare, strict=True)),
    )


def check_next_start(store: OpenedStore, start: NextStart | None) -> list[Finding]:
    """Report that a start would cut the log, or that not all was read that it reads."""
    findings = Findings("next-start", Known.FORETOLD)
    if start is None:
        return []
    if not start.losing:
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
        f"record, and {gone}; here all these messages are served",
        _remedy(store, segment.file.path),
    )
    return findings.listed()


def safe_advice(store: OpenedStore, start: NextStart | None, findings: Iterable[Finding]) -> list[Finding]:
    """Exchange advice to start a broker, or to rebuild in place, where a start would cut the log.

    Damage of the log that no start meets is passed over by a rescue as well, which makes queues and index anew.
    """
    listed = list(findings)
    if start is None:
        return listed
    if not store.state.is_live and any(_is_of_log(each) for each in listed):
        listed = _with_rescue(store, listed, is_losing=bool(start.losing))
    findings = listed
    if not start.losing:
        return [_with_care(store, start, each) if start.needs_checkpoint else each for each in findings]
    commands = [store.command(name) for name in IN_PLACE]

    def is_unsafe(remedy: str) -> bool:
        return remedy.startswith(NOTHING_TO_DO) or any(command in remedy for command in commands)

    return [
        replace(each, remedy=MADE_WHOLE, severity=Severity.WARNING if each.severity is Severity.INFO else each.severity)
        if is_unsafe(each.remedy)
        else each
        for each in findings
    ]


def _is_of_log(finding: Finding) -> bool:
    """Whether a finding is damage of the log, of which nothing brings back what is lost."""
    return finding.check in ("segments", "log-end") and finding.remedy.startswith(NO_COMMAND)


def _with_rescue(store: OpenedStore, findings: Iterable[Finding], *, is_losing: bool) -> list[Finding]:
    """Advise a rescue for damage of the log, and nothing else for what that makes anew.

    `is_losing`: a start would lose more; then the first finding says it.
    """
    line, parts = rescue_line(store), [store.command(name) for name in IN_PLACE if not is_losing]

    def advised(each: Finding) -> Finding:
        if _is_of_log(each):
            look = each.remedy.removeprefix(NO_COMMAND)
            return replace(each, meaning=each.meaning + look, remedy=line)
        return replace(each, remedy=MADE_ANEW) if each.remedy in parts else each

    return [advised(each) for each in findings]


def _with_care(store: OpenedStore, start: NextStart, finding: Finding) -> Finding:
    """Exchange advice to start whatever broker, where only the checkpoint keeps its recovery from the damage."""
    if not finding.remedy.startswith(NOTHING_TO_DO):
        return finding
    meaning = f"{finding.meaning}; one with messageIndexSafe=true reads more, meets damage, and cuts the log there"
    return replace(finding, meaning=meaning, remedy=rescue_line(store), severity=Severity.WARNING)


def _warning(store: OpenedStore, start: NextStart) -> str:
    """What not to do, and what it would cost."""
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


def _sparing(start: NextStart) -> list[str]:
    """The brokers that lose nothing."""
    return [each.broker for each in start.outcomes if not each.cut_bytes]


def _amount(outcome: LogOutcome) -> str:
    return f"{count_text(outcome.cut_bytes)} bytes, about {counted(outcome.cut_messages, 'message')}"


def _remedy(store: OpenedStore, path: Path) -> str:
    if store.state.is_live:
        return f"let it run; before it is stopped, copy {path} from a slave, and put that copy in its place once it is"
    return rescue_line(store)


def one_advice(store: OpenedStore, findings: Iterable[Finding]) -> list[Finding]:
    """Let one rebuild do what two would do one after the other: that of queues and index reads the log once."""
    listed, parts = list(findings), {store.command(name) for name in ("rebuild index", "rebuild queues")}
    if not parts <= {each.remedy for each in listed}:
        return listed
    whole = store.command("rebuild all")
    return [replace(each, remedy=whole) if each.remedy in parts else each for each in listed]
