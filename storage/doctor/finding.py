"""One form for everything that an examination finds: what, where, how bad, how it is known, and what fixes it.

The kinds are a closed list. A check that looks at a store within seconds says of each finding what follows from it;
where everything is read, that follows from check and kind.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

NOWHERE: Final = -1
"""The byte position or physical offset of a finding that has none."""

MOST_OF_ONE_KIND: Final = 20
"""Findings of one kind that a quick look lists one by one; the rest is counted in one more."""

LIMIT: Final = 10_000
"""As `MOST_OF_ONE_KIND`, of each index file and each queue, where everything is read."""

CLEARED_BY_A_START: Final = "nothing to do: the broker's start clears this"
"""The remedy where a broker that starts needs no help; the official broker shows it in tests/interop."""


class Severity(StrEnum):
    """How bad a finding is; only stores without findings above `INFO` are clean."""

    INFO = "info"
    """Good to know; nothing is wrong."""
    WARNING = "warning"
    """Nothing is lost, but something is slower, unsafe at a broker's next start, or not what it should be."""
    ERROR = "error"
    """Messages are lost or damaged, or cannot be found as they should."""


class Known(StrEnum):
    """How a finding is known."""

    LOOKED_AT = "looked-at"
    """The place itself was looked at, and not all others like it."""
    SAMPLED = "sampled"
    """Some of many were looked at; there may be more."""
    FORETOLD = "foretold"
    """It follows from what a broker does when it starts."""
    READ = "read"
    """Every record, unit and entry was read."""


class Kind(StrEnum):
    """What a finding is; there are no others."""

    NEXT_START = "next-start"
    """A broker that starts loses messages, or does not start."""
    BROKER = "broker"
    """A broker runs, or has not stopped cleanly."""
    FILE = "file"
    """A file that is not what lies at such a place: missing, unreadable, foreign, or of the wrong length."""
    HOLE = "hole"
    """Physical offsets that no segment holds."""
    RECORD = "record"
    """Bytes of the log that hold no intact record."""
    TORN_END = "torn-end"
    """What lies behind the last record of the log."""
    UNCOMMITTED = "uncommitted"
    """Messages that a DLedger group may drop."""
    CLOCK = "clock"
    """Store times that step back, or lie ahead."""
    QUEUE_OFFSET = "queue-offset"
    """A record's queue offset does not follow those of the records before it in its queue."""
    UNIT = "unit"
    """A queue unit whose bytes are not those of the message in its place."""
    MISSING_UNIT = "missing-unit"
    """A message without a unit in its queue."""
    STRAY_UNIT = "stray-unit"
    """A queue unit that points to no message of its queue."""
    SHIFTED_UNIT = "shifted-unit"
    """From this unit on, units do not stand at the queue offsets of their messages."""
    EXT_UNIT = "ext-unit"
    """A ConsumeQueueExt unit that is not valid, or not that of its message."""
    HEADER = "header"
    """A field of an index file's header that is wrong."""
    SLOT = "slot"
    """A slot of an index file that does not lead to its newest entry."""
    ENTRY = "entry"
    """An entry of an index file that is not that of a key of its message."""
    MISSING_ENTRY = "missing-entry"
    """Keys of the log that no index file has, or not the one that holds the entries around them."""
    REPEATED_ENTRY = "repeated-entry"
    """An entry of an index file that is there twice."""
    CHAIN = "chain"
    """A slot with so many entries that look-ups take long."""
    LAG = "lag"
    """The last messages of the log, which queues or index do not have yet."""
    CHECKPOINT = "checkpoint"
    """A field of the checkpoint that the log does not bear out."""
    CONFIG = "config"
    """A file of `config/` that cannot be read."""
    CONSUMER_OFFSET = "consumer-offset"
    """A group has consumed more than its queue has."""
    NOT_COMPARED = "not-compared"
    """A part of the store that was not looked at."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that `check`, the name of the module that looked, has found.

    `place` names it inside the file or directory at `path`, `position` is its byte there, `physical_offset` that of
    the record in question; `NOWHERE` or empty where that makes no sense. `expected` is what should be there, if that
    can be said, `found` what is; one finding may stand for `count` neighbouring things. `meaning` is what follows from
    it, `remedy` a command, or in words what to do where no command helps. `more` is 0, or how many others like it,
    which are not listed, a finding stands for.
    """

    kind: Kind
    severity: Severity
    known: Known
    check: str
    path: str
    found: str
    meaning: str
    remedy: str
    expected: str = ""
    place: str = ""
    position: int = NOWHERE
    physical_offset: int = NOWHERE
    count: int = 1
    more: int = 0

    @property
    def where(self) -> str:
        """Where it is, for a person."""
        parts = [self.path] if self.path else []
        if self.place:
            parts.append(self.place)
        if self.position >= 0:
            parts.append(f"byte {self.position}")
        if self.physical_offset >= 0:
            parts.append(f"physical offset {self.physical_offset}")
        return ", ".join(parts)

    @property
    def what(self) -> str:
        """Describe the actual state in one clause."""
        return f"expected {self.expected}, found {self.found}" if self.expected else self.found

    @property
    def identity(self) -> tuple[str | int, ...]:
        """What two findings of one thing have in common, however each is known."""
        kind = Kind.RECORD if self.kind is Kind.TORN_END else self.kind
        if kind is Kind.FILE:
            return kind, self.path, self.expected
        where = max(self.position, self.physical_offset) if self.position < 0 else self.position
        return kind, self.path, self.place, self.found if where < 0 else where


class FoundAt(NamedTuple):
    """The fields of a finding that say where it is."""

    path: str | Path
    place: str = ""
    position: int = NOWHERE
    physical_offset: int = NOWHERE


NO_COMMAND: Final = "no command fixes this: copy the file from a slave or a backup"
"""What to do about bytes that are nowhere else in the store."""

LOST: Final = "the messages there are lost; all others are served"

QUEUES: Final = "rebuild queues"
INDEX: Final = "rebuild index"
INDEX_ANEW: Final = "rebuild index --from-offset 0"
ALL: Final = "rebuild all"
ALL_ANEW: Final = "rebuild all --from-offset 0"
"""Those from 0 make also what passes for intact by the entries at which a rebuild looks before it keeps a file."""

IN_PLACE: Final = (INDEX, INDEX_ANEW, QUEUES, ALL, ALL_ANEW, "compact index --from-log")
"""Commands that change a store whose log stays as it is."""


class Advice(NamedTuple):
    """How bad what was found is, what follows from it, and what fixes it: a command without its store, or words."""

    severity: Severity
    meaning: str
    remedy: str


_TRUSTED: Final = "a broker trusts it: it may not find all messages of a key; here each is compared with its record"
ADVICE: Final[dict[str, dict[Kind, Advice]]] = {
    "log-end": {
        Kind.RECORD: Advice(Severity.ERROR, LOST, NO_COMMAND),
        Kind.HOLE: Advice(Severity.ERROR, "the messages there are missing", NO_COMMAND),
        Kind.FILE: Advice(Severity.ERROR, "its messages are not served", NO_COMMAND),
    },
    "queues": {
        Kind.QUEUE_OFFSET: Advice(
            Severity.ERROR,
            "the message bears the place of another one in its queue, or a place that its queue does not have",
            "no command fixes this: it is a record of the log",
        ),
        Kind.FILE: Advice(Severity.ERROR, "not all of its units can be read where they should be", QUEUES),
        Kind.UNIT: Advice(Severity.ERROR, "a broker delivers another message there, or none", QUEUES),
        Kind.MISSING_UNIT: Advice(Severity.ERROR, "nobody can consume these messages from a broker", QUEUES),
        Kind.STRAY_UNIT: Advice(
            Severity.WARNING,
            "left over from a log that was cut, or damaged; it is ignored here, a broker may take it for valid",
            QUEUES,
        ),
        Kind.SHIFTED_UNIT: Advice(Severity.WARNING, "consumers get messages at other offsets than they bear", QUEUES),
        Kind.EXT_UNIT: Advice(Severity.WARNING, "a broker filters the message by something else than it has", QUEUES),
    },
    "index-files": {
        Kind.FILE: Advice(Severity.ERROR, "keys in its range are looked for in the log; a broker misses them", INDEX),
        Kind.HEADER: Advice(Severity.WARNING, "a broker uses it to look for keys and to continue the file", INDEX_ANEW),
        Kind.SLOT: Advice(Severity.ERROR, "a broker does not find the entries that it should lead to", INDEX_ANEW),
        Kind.ENTRY: Advice(Severity.ERROR, _TRUSTED, INDEX_ANEW),
        Kind.MISSING_ENTRY: Advice(Severity.ERROR, "a broker does not find these messages by their keys", INDEX_ANEW),
        Kind.REPEATED_ENTRY: Advice(Severity.WARNING, "it takes room; a broker may give a message twice", INDEX_ANEW),
    },
}
"""What is said of a finding where everything is read, by check and kind."""


class Findings:
    """Findings of one check as they come; beyond `limit` of a kind, severity and meaning they are counted.

    Where everything is read, that is the limit of each file.
    """

    def __init__(
        self,
        check: str,
        known: Known = Known.LOOKED_AT,
        limit: int = MOST_OF_ONE_KIND,
        named: Callable[[str], str] = str,
    ) -> None:
        """Nothing is found yet; in texts that `named` gives, copies of files bear the names of the files themselves."""
        self.check, self.known, self.limit, self._named = check, known, limit, named
        self._listed: list[Finding] = []
        self._unlisted: dict[tuple[str, ...], Finding] = {}
        self._seen: Counter[tuple[Kind, Severity, str, str]] = Counter()

    def add(
        self,
        kind: Kind,
        severity: Severity,
        at: FoundAt | Path | str,
        found: str,
        meaning: str,
        remedy: str,
        *,
        expected: str = "",
        count: int = 1,
        known: Known | None = None,
    ) -> None:
        """Add one finding; `known` where it is not known as the others are."""
        path, place, position, physical_offset = at if isinstance(at, FoundAt) else FoundAt(at)
        finding = Finding(
            kind=kind,
            severity=severity,
            known=known or self.known,
            check=self.check,
            path=self._named(str(path)),
            found=self._named(found),
            meaning=meaning,
            remedy=remedy,
            expected=self._named(expected),
            place=place,
            position=position,
            physical_offset=physical_offset,
            count=count,
        )
        alike = kind, severity, meaning, finding.path if self.known is Known.READ else ""
        self._seen[alike] += 1
        if self._seen[alike] <= self.limit:
            self._listed.append(finding)
        else:
            _count(self._unlisted, finding, 1)

    def note(self, kind: Kind, at: FoundAt, expected: object, found: object, count: int = 1, remedy: str = "") -> None:
        """Add one finding with the advice of its kind, where everything is read; `remedy` is another one."""
        severity, meaning, usual = ADVICE[self.check][kind]
        self.add(kind, severity, at, str(found), meaning, remedy or usual, expected=str(expected), count=count)

    def more(self, kind: Kind, count: int) -> None:
        """Count some that are as :meth:`note` adds them, and not listed."""
        severity, meaning, remedy = ADVICE[self.check][kind]
        one = Finding(
            kind=kind,
            severity=severity,
            known=self.known,
            check=self.check,
            path="",
            found="",
            meaning=meaning,
            remedy=remedy,
        )
        _count(self._unlisted, one, count)

    @property
    def counts(self) -> Counter[Kind]:
        """How many there are of each kind, listed or not."""
        return counts_of(self.listed())

    def listed(self) -> list[Finding]:
        """All of them, and for each kind, severity and meaning one that says how many more there are."""
        return [*self._listed, *self._unlisted.values()]


def _count(unlisted: dict[tuple[str, ...], Finding], finding: Finding, count: int) -> None:
    """Count findings that are not listed with those before them that are alike."""
    if count > 0:
        alike = finding.check, finding.kind, finding.severity, finding.meaning
        before = unlisted.get(alike)
        unlisted[alike] = _standing_for(finding, count + (before.more if before else 0))


def _standing_for(finding: Finding, more: int) -> Finding:
    """A finding in place of others like one that are not listed."""
    nowhere = {"path": "", "place": "", "position": NOWHERE, "physical_offset": NOWHERE}
    what = {"expected": "", "found": f"{more} more like these", "count": 1, "more": more}
    return msgspec.structs.replace(finding, **nowhere, **what)


def capped(findings: Iterable[Finding], limit: int) -> list[Finding]:
    """At most `limit` findings; those beyond it are counted together with those that were counted before."""
    kept: list[Finding] = []
    left: dict[tuple[str, ...], Finding] = {}
    for each in findings:
        if len(kept) < limit and not each.more:
            kept.append(each)
        else:
            _count(left, each, each.more or 1)
    return [*kept, *left.values()]


def with_command(finding: Finding, command: Callable[[str], str]) -> Finding:
    """A finding whose remedy is the whole line where it names a command of ours."""
    if finding.remedy not in (QUEUES, INDEX, INDEX_ANEW):
        return finding
    return msgspec.structs.replace(finding, remedy=command(finding.remedy))


def counts_of(findings: Iterable[Finding]) -> Counter[Kind]:
    """How many findings there are of each kind, those that are not listed among them."""
    counts: Counter[Kind] = Counter()
    for each in findings:
        counts[each.kind] += each.more or 1
    return counts


@dataclass(frozen=True, slots=True)
class FindingGroup:
    """Findings of one check that one remedy mends, those that are listed; `count` is how many there are in all."""

    findings: tuple[Finding, ...]
    count: int


def grouped(findings: Iterable[Finding]) -> list[FindingGroup]:
    """Put findings that are alike together, each group where its first finding is."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        alike = finding.severity, finding.check, finding.kind, finding.meaning, finding.remedy
        groups.setdefault(alike, []).append(finding)
    return [
        FindingGroup(
            tuple(each for each in group if not each.more) or tuple(group), sum(each.more or 1 for each in group)
        )
        for group in groups.values()
    ]
