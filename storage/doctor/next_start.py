"""Foretell what a broker that starts on the store does to its log, and say first of all where messages would be lost.

A broker's recovery ends the log at damage and deletes what lies behind, though all of it can be read
(:mod:`storage.recovery.log_outcome`). So no other finding may advise a start, or a rebuild in place, which ends where
the recovery ends.
"""

import os
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from protocol.errors import RocketLensError, StoreError
from storage.amounts import count_text, counted
from storage.doctor.finding import Finding, Findings, FoundAt, Kind, Known, Severity
from storage.doctor.opened_store import OpenedStore
from storage.files.own_directories import HeldDirectory
from storage.layout.backup_names import BACKUP
from storage.layout.store_layout import (
    ABORT,
    BATCH_CONSUME_QUEUE,
    CHECKPOINT,
    CONSUME_QUEUE,
    CONSUME_QUEUE_EXT,
    INDEX,
)
from storage.recovery.log_outcome import LogForecast, LogOutcome
from storage.recovery.queue_ends import recovered_queues_end
from storage.recovery.start_place import SPARED, Broker, StartFacts

LONGEST_V1_TOPIC: Final = 127
"""Bytes of the longest topic name that a record of the first version holds."""

REBUILT: Final = (CONSUME_QUEUE_EXT, CONSUME_QUEUE, BATCH_CONSUME_QUEUE, INDEX, CHECKPOINT)
"""What `rebuild all` makes anew, or leaves out since it is of no use beside what it makes."""

IN_PLACE: Final = ("rebuild index", "rebuild queues", "compact index --from-log")
DO_NOT_START: Final = "do not start a broker on this store: its recovery will cut"
DO_NOT_RESTART: Final = "do not restart the broker on this store: its recovery will cut"
NOTHING_TO_DO: Final = "nothing to do"
MADE_ANEW: Final = "what the first finding says: it makes queues and index anew from the whole log"


@dataclass(frozen=True, slots=True)
class NextStart:
    """What starts of several kinds of brokers make of the log as it lies.

    `can_be_rebuilt`: none of them cuts it any more once queues and index are made anew from the whole log and `abort`
    is gone. `needs_checkpoint`: without the checkpoint that is there it would be cut, or more of it.
    """

    outcomes: tuple[LogOutcome, ...]
    can_be_rebuilt: bool
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
    forecast = LogForecast(log, store.layout.commit_log_directories, has_v2=has_long_names)

    def cuts(facts: StartFacts) -> tuple[LogOutcome, ...]:
        return tuple(forecast.outcome(facts, broker) for broker in Broker)

    has_crashed = store.state.has_crashed
    is_even = len({segment.file.size for segment in forecast.segments}) == 1
    # What all brokers read comes first, before the walk has read as much as it may.
    rebuilt = cuts(StartFacts(False, None, log.end)) if is_even and not store.state.is_live else ()
    outcomes = cuts(StartFacts(has_crashed, store.checkpoint, queues_end))
    bare = cuts(StartFacts(has_crashed, None, queues_end)) if has_crashed else outcomes
    return NextStart(
        outcomes,
        can_be_rebuilt=bool(rebuilt) and not any(each.cut_bytes for each in rebuilt),
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
        _remedy(store, start, segment.file.path),
    )
    return findings.listed()


def safe_advice(store: OpenedStore, start: NextStart | None, findings: Iterable[Finding]) -> list[Finding]:
    """Exchange advice to start a broker, or to rebuild in place, where a start would cut the log."""
    if start is None or not start.losing:
        return [_with_care(store, start, each) if start and start.needs_checkpoint else each for each in findings]
    advice = MADE_ANEW if start.can_be_rebuilt else f"first what the first finding says, then {store.command('doctor')}"
    is_refused = any(each.broker in SPARED for each in start.losing)
    commands = [store.command(name) for name in IN_PLACE if is_refused]

    def is_unsafe(remedy: str) -> bool:
        return remedy.startswith(NOTHING_TO_DO) or any(command in remedy for command in commands)

    return [
        replace(each, remedy=advice, severity=Severity.WARNING if each.severity is Severity.INFO else each.severity)
        if is_unsafe(each.remedy)
        else each
        for each in findings
    ]


def _with_care(store: OpenedStore, start: NextStart, finding: Finding) -> Finding:
    """Exchange advice to start whatever broker, where only the checkpoint keeps its recovery from the damage."""
    if not finding.remedy.startswith(NOTHING_TO_DO):
        return finding
    meaning = f"{finding.meaning}; one with messageIndexSafe=true reads more, meets damage, and cuts the log there"
    remedy = _move_in(store) if start.can_be_rebuilt else "start none with messageIndexSafe=true"
    return replace(finding, meaning=meaning, remedy=remedy, severity=Severity.WARNING)


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


def _remedy(store: OpenedStore, start: NextStart, path: Path) -> str:
    if store.state.is_live:
        return f"let it run; before it is stopped, copy {path} from a slave, and put that copy in its place once it is"
    if start.can_be_rebuilt:
        return _move_in(store)
    copy = f"copy {path} from a slave, or wait with the start"
    sparing = _sparing(start)
    return f"start none but a broker {' or '.join(sparing)}, else {copy}" if sparing else copy


def _move_in(store: OpenedStore) -> str:
    """One line for a shell: make queues and index of the whole log beside the store, exchange them, take `abort` away.

    A rebuild that met damage ends with another code than 0, so what it made is looked for instead. Where the owner of
    the store could put something else in its place between two steps, and is another user, the line runs as the owner.
    """
    root = store.layout.root.absolute()
    status = root.stat()
    is_other, as_owner = status.st_uid != os.geteuid(), not _is_safe(root)
    new, old = shlex.quote(str(_free_name(root))), shlex.quote(str(root))
    steps = [f"test -d {new}/{INDEX}", "T=$(date -u +%Y%m%d%H%M%S)"]
    if is_other and not as_owner:
        steps.append(f"chown -Rh --reference={old} {new}")
    steps += [f"mv -T {old}/{name} {old}/{name}.{BACKUP}-$T" for name in REBUILT if (root / name).exists()]
    steps.append(f"mv {new}/* {old}/")
    if store.state.abort:
        steps.append(f"mv -T {old}/{ABORT} {old}/{ABORT}.{BACKUP}")
    line = f"{store.command('rebuild all')} --out {new}; {' && '.join(steps)}"
    if not is_other or not as_owner:
        return line
    return f"setpriv --reuid={status.st_uid} --regid={status.st_gid} --clear-groups sh -c {shlex.quote(line)}"


def _is_safe(root: Path) -> bool:
    """Whether nobody else can put another directory in the place of one."""
    try:
        with HeldDirectory.open(root) as held:
            return held.exposure is None
    except (OSError, RocketLensError):
        return False


def _free_name(root: Path) -> Path:
    """A directory beside the store that is not there yet."""
    number = 1
    while True:
        path = root.with_name(f"{root.name}-rebuilt" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(path):
            return path
        number += 1
