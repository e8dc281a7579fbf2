"""The account of a run: one SQLite file with the state of each message, from which a run that was stopped goes on.

The view `message` has a row for each message that was chosen, joined of what was `planned`, its `outcome`, and what was
`verified`: what is written once is written in order, and nothing in it grows. Numbers stand in `leaving` on disk before
their messages leave, so that one of which the answer is not known can be asked for later; what a process that was
killed had not noted is asked for in the same way.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeAlias

from protocol.errors import ConfigError, RocketLensError

FORM: Final = 3
"""The version of the tables."""


AT_ONCE: Final = 1000
"""Messages that are read at once."""

CACHE_KIB: Final = 64 * 1024
"""Memory for the file's pages: places of messages are looked up in any order."""


class SendState(IntEnum):
    """The state of a message."""

    PLANNED = 0
    """It is to be sent."""
    SENDING = 1
    """It may have been sent: the answer is awaited, or was never read."""
    SENT = 2
    """The target acknowledged it."""
    REFUSED = 3
    """It is not sent, or the target did not take it: `reason` says why."""
    UNKNOWN = 4
    """The answer was lost, and the target could not be asked."""


class Verification(IntEnum):
    """What the target said when it was asked for a message that was sent."""

    VERIFIED = 1
    DOUBLE = 2
    """It is there more than once."""
    DIFFERENT = 3
    """Another one is in its place."""
    MISSING = 4


WRONG: Final = (Verification.DOUBLE, Verification.DIFFERENT, Verification.MISSING)


class AccountRow(NamedTuple):
    """One message of a run; sizes in bytes, times in ms. `source_key` is its unique key in the source."""

    place: str
    source_key: str
    unique_key: str
    topic: str
    origin: str
    stored_at: int
    size: int
    body_crc: int
    is_copy: bool
    can_batch: bool
    state: SendState
    reason: str


PlannedTuple: TypeAlias = tuple[str, int, int, str, str, int]
"""A message as it was when the plan was made, and what is known of it now.

Place, number, state, topic, unique key, CRC of the body: no named one, as there is one for each message that is sent.
"""


class SentName(NamedTuple):
    """By what a message that was sent is found at the target, and told from others with its key."""

    unique_key: str
    origin: str


class SentMessage(NamedTuple):
    """A message that was sent, or may have been: where it should be."""

    number: int
    unique_key: str
    topic: str
    origin: str
    size: int
    body_crc: int
    sent_id: str

    @property
    def name(self) -> SentName:
        """By what it is found."""
        return SentName(self.unique_key, self.origin)


class TopicSum(NamedTuple):
    """Sums of the messages for one topic: their number, bytes of bodies, first and last store time in the source."""

    topic: str
    messages: int
    size: int
    first: int
    last: int
    batched: int


_TABLES: Final = """
CREATE TABLE run (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE missing (text TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE closed (topic TEXT PRIMARY KEY, reason TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE planned (
    number INTEGER PRIMARY KEY, place TEXT NOT NULL, source_key TEXT, unique_key TEXT NOT NULL,
    topic TEXT NOT NULL, origin TEXT NOT NULL, stored_at INTEGER NOT NULL, size INTEGER NOT NULL,
    body_crc INTEGER NOT NULL, is_copy INTEGER NOT NULL, can_batch INTEGER NOT NULL, state INTEGER NOT NULL,
    reason TEXT NOT NULL, sent_id TEXT NOT NULL DEFAULT '');
CREATE TABLE outcome (
    number INTEGER PRIMARY KEY, state INTEGER NOT NULL, sent_id TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE leaving (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);
CREATE TABLE verified (number INTEGER PRIMARY KEY, outcome INTEGER NOT NULL, copies TEXT NOT NULL);
CREATE VIEW message AS SELECT
    number, place, IFNULL(source_key, unique_key) AS source_key, unique_key, topic, origin, stored_at, size, body_crc,
    is_copy, can_batch, CASE
        WHEN outcome.state NOTNULL THEN outcome.state
        WHEN planned.state = 0 AND IFNULL(
            (SELECT last FROM leaving WHERE first <= number ORDER BY first DESC LIMIT 1), 0) >= number THEN 1
        ELSE planned.state END AS state,
    IFNULL(outcome.reason, planned.reason) AS reason, IFNULL(outcome.sent_id, planned.sent_id) AS sent_id,
    verified.outcome AS outcome, IFNULL(verified.copies, '') AS copies
    FROM planned LEFT JOIN outcome USING (number) LEFT JOIN verified USING (number);
"""

_ADDED: Final = """
CREATE TABLE IF NOT EXISTS queue_end (
    topic TEXT, broker TEXT, queue_id INTEGER, queue_offset INTEGER NOT NULL,
    PRIMARY KEY (topic, broker, queue_id)) WITHOUT ROWID
"""
"""What an account of an earlier version lacks: where each queue of the target ended before it was sent to."""

_PLANNED: Final = (
    "place, source_key, unique_key, topic, origin, stored_at, size, body_crc, is_copy, can_batch, state, reason"
)
_ROWS: Final = "SELECT place, number, state, topic, unique_key, body_crc FROM message"
_SENT: Final = "number, unique_key, topic, origin, size, body_crc, sent_id"

_SEE: Final = f"""
INSERT INTO verified
    SELECT number, CASE WHEN size = ?4 AND body_crc = ?5 THEN {Verification.VERIFIED:d}
        ELSE {Verification.DIFFERENT:d} END, ?6
    FROM planned JOIN outcome USING (number)
    WHERE unique_key = ?2 AND origin = ?3 AND topic = ?1 AND outcome.state = {SendState.SENT:d}
ON CONFLICT DO UPDATE SET copies = copies || ' ' || excluded.copies,
    outcome = CASE WHEN {Verification.DIFFERENT:d} IN (outcome, excluded.outcome) THEN {Verification.DIFFERENT:d}
        ELSE {Verification.DOUBLE:d} END
"""


class ReplayAccount:
    """The account of one run; a context manager, for one process at a time."""

    def __init__(self, path: Path | None) -> None:
        """Open the account in a file, or make it; None is one that goes when it is closed.

        Raises ConfigError for a file that is none of ours, and one that another process holds.
        """
        self.path = path
        place = "" if path is None else str(path)
        try:
            self._base = sqlite3.connect(place, isolation_level=None, timeout=0.2, check_same_thread=False)
            self._base.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._base.execute("PRAGMA journal_mode = WAL")
            self._base.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            self._base.execute(f"PRAGMA synchronous = {'OFF' if path is None else 'FULL'}")
            self._base.execute("BEGIN IMMEDIATE")
            names = {name for (name,) in self._base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not names:
                for statement in filter(str.strip, _TABLES.split(";\n")):
                    self._base.execute(statement)
                self._base.execute("INSERT INTO run VALUES ('form', ?)", (str(FORM),))
            elif "run" not in names or self.said("form") != str(FORM):
                raise ConfigError(f"{path} is no account of a replay, or one of another version")
            self._base.execute(_ADDED)
            self._base.execute("COMMIT")
        except sqlite3.OperationalError as error:
            locked = "another replay uses it" if "locked" in str(error) else str(error)
            raise ConfigError(f"the account {path} cannot be opened: {locked}") from error
        except sqlite3.DatabaseError as error:
            raise ConfigError(f"{path} is no account of a replay: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """One change, on disk as a whole or not at all."""
        try:
            self._base.execute("BEGIN")
            yield self._base
            self._base.execute("COMMIT")
        except sqlite3.OperationalError as error:
            with suppress(sqlite3.Error):
                self._base.execute("ROLLBACK")
            raise AccountError(f"the account {self.path} cannot be written: {error}") from error
        except BaseException:
            self._base.execute("ROLLBACK")
            raise

    # -- what is said of the run ------------------------------------------------------------------------------------

    def said(self, name: str) -> str | None:
        """Read a note on the run by its name."""
        row = self._base.execute("SELECT value FROM run WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def say(self, **values: str) -> None:
        """Note things of the run."""
        with self._changing() as base:
            base.executemany("INSERT OR REPLACE INTO run VALUES (?, ?)", values.items())

    # -- planning ---------------------------------------------------------------------------------------------------

    def forget(self, *, keeps_run: bool = False) -> None:
        """Forget all messages, and what is said of the run unless it `keeps_run`, as where a plan was not finished."""
        with self._changing() as base:
            for table in ("planned", "outcome", "leaving", "verified", "missing", "closed", "queue_end"):
                base.execute(f"DELETE FROM {table}")
            for index in ("planned_place", "planned_name"):
                base.execute(f"DROP INDEX IF EXISTS {index}")
            if not keeps_run:
                base.execute("DELETE FROM run WHERE name != 'form'")

    def plan(self, rows: Iterable[AccountRow]) -> None:
        """Note messages that were chosen."""
        with self._changing() as base:
            base.executemany(f"INSERT OR IGNORE INTO planned ({_PLANNED}) VALUES ({', '.join('?' * 12)})", rows)

    def plan_plain(self, rows: Iterable[tuple[str, str, str, str, int, int, int]]) -> None:
        """Note messages that are only copied: place, unique key, topic, origin, store time, bytes and CRC of bodies."""
        with self._changing() as base:
            base.executemany(
                f"INSERT OR IGNORE INTO planned ({_PLANNED}) VALUES (?1, NULL, ?2, ?3, ?4, ?5, ?6, ?7, 0, 1, 0, '')",
                rows,
            )

    def find_by_place(self, *, is_unique: bool = False) -> None:
        """Have messages found by their place; with `is_unique` one whose place is noted already is not noted again."""
        with self._changing() as base:
            kind = "UNIQUE INDEX" if is_unique else "INDEX"
            base.execute(f"CREATE {kind} IF NOT EXISTS planned_place ON planned (place)")

    def name_nothing(self, texts: Iterable[str]) -> None:
        """Note texts that name no message."""
        with self._changing() as base:
            base.executemany("INSERT OR IGNORE INTO missing VALUES (?)", ((text,) for text in texts))

    def refuse_second_copies(self) -> None:
        """Send each message once: its copies are refused where it is chosen itself, else all but the newest of them."""
        with self._changing() as base:
            if not base.execute("SELECT 1 FROM planned WHERE is_copy LIMIT 1").fetchone():
                return
            base.execute("UPDATE planned SET source_key = unique_key WHERE source_key ISNULL")
            base.execute("CREATE INDEX IF NOT EXISTS planned_key ON planned (source_key, topic)")
            base.execute(
                "UPDATE planned SET state = ?, reason = 'the same message is chosen in another state of it' "
                "WHERE is_copy AND state = ? AND EXISTS (SELECT 1 FROM planned AS other WHERE "
                "other.source_key = planned.source_key AND other.topic = planned.topic AND other.state = ? "
                "AND (NOT other.is_copy OR other.number > planned.number))",
                (SendState.REFUSED, SendState.PLANNED, SendState.PLANNED),
            )

    def refuse_sent(self, reason: str, sent: Iterable[tuple[int, str]]) -> None:
        """Refuse messages that the target has already: numbers, each with the id there."""
        with self._changing() as base:
            base.executemany(
                "UPDATE planned SET state = ?, reason = ?, sent_id = ? WHERE number = ?",
                ((SendState.REFUSED, reason, known, number) for number, known in sent),
            )

    def refuse_topic(self, topic: str, reason: str, larger_than: int = -1) -> None:
        """Refuse the messages for a topic, or those with larger bodies."""
        with self._changing() as base:
            base.execute(
                "UPDATE planned SET state = ?, reason = ? WHERE state = ? AND topic = ? AND size > ?",
                (SendState.REFUSED, reason, SendState.PLANNED, topic, larger_than),
            )

    def close_topic(self, topic: str, reason: str) -> None:
        """Refuse all messages for a topic that the target lacks, or does not let write, until it is opened."""
        with self._changing() as base:
            base.execute("INSERT OR REPLACE INTO closed VALUES (?, ?)", (topic, reason))
        self.refuse_topic(topic, reason)

    def closed_topics(self) -> list[str]:
        """The topics that are closed."""
        return [topic for (topic,) in self._base.execute("SELECT topic FROM closed ORDER BY topic")]

    def plan_closed(self, topic: str) -> None:
        """Plan the messages for a topic again that were refused when it was closed; it stays closed until it is opened.

        Of a topic that was closed nothing was sent, so that its queues keep their order.
        """
        with self._changing() as base:
            base.execute(
                "UPDATE planned SET state = ?1, reason = '' WHERE topic = ?2 AND state = ?3 "
                "AND reason = (SELECT reason FROM closed WHERE topic = ?2)",
                (SendState.PLANNED, topic, SendState.REFUSED),
            )

    def open_topic(self, topic: str) -> None:
        """Note that the messages for a topic that was closed are judged."""
        with self._changing() as base:
            base.execute("DELETE FROM closed WHERE topic = ?", (topic,))

    # -- sending ----------------------------------------------------------------------------------------------------

    def in_order(self, behind: int, most: int) -> list[PlannedTuple]:
        """Read the messages behind a number, as they were planned."""
        return self._base.execute(f"{_ROWS} WHERE number > ? ORDER BY number LIMIT ?", (behind, most)).fetchall()

    def of_places(self, places: Sequence[str]) -> list[PlannedTuple]:
        """The messages at some places, as they were planned."""
        self.find_by_place()
        marks = ",".join("?" * len(places))
        return self._base.execute(f"{_ROWS} WHERE place IN ({marks})", places).fetchall()

    def end_of_queues(self, topic: str) -> dict[tuple[str, int], int]:
        """Where the queues of a topic ended before they were sent to, by broker and queue; empty where it is unknown.

        A queue that is not among those of a topic was empty, or not there.
        """
        found = self._base.execute("SELECT broker, queue_id, queue_offset FROM queue_end WHERE topic = ?", (topic,))
        return {(broker, queue_id): queue_offset for broker, queue_id, queue_offset in found}

    def end_queues(self, topic: str, ends: Mapping[tuple[str, int], int]) -> None:
        """Note where the queues of a topic end; what is noted of one already stays, unless it lost its last messages.

        As where its broker crashed: what is sent from then on is before the end that was noted.
        """
        known = self.end_of_queues(topic)
        with self._changing() as base:
            base.executemany(
                "INSERT OR REPLACE INTO queue_end VALUES (?, ?, ?, ?)",
                ((topic, *queue, end) for queue, end in ends.items() if not known or end < known.get(queue, 0)),
            )

    def begin(self, numbers: Iterable[int]) -> None:
        """Note that the planned messages with these numbers are about to leave; each is noted once.

        Numbers that follow one another are one range, so that no range holds a message that is not among them.
        """
        ranges: list[list[int]] = []
        for number in sorted(numbers):
            if ranges and number == ranges[-1][1] + 1:
                ranges[-1][1] = number
            else:
                ranges.append([number, number])
        with self._changing() as base:
            base.executemany("INSERT OR REPLACE INTO leaving VALUES (?, ?)", ranges)
            base.executemany(
                f"DELETE FROM outcome WHERE number BETWEEN ? AND ? AND state = {SendState.PLANNED:d}", ranges
            )

    def end_all(self) -> None:
        """Note that nothing is under way any more: what has no outcome has not left."""
        with self._changing() as base:
            base.execute("DELETE FROM leaving")

    def note(self, outcomes: Iterable[tuple[int, SendState, str, str]]) -> None:
        """Note what became of messages: number, state, the id at the target, and what is to be said of it."""
        with self._changing() as base:
            base.executemany("INSERT OR REPLACE INTO outcome VALUES (?, ?, ?, ?)", outcomes)

    def give_up_planned(self, reason: str) -> None:
        """Refuse what is still to be sent."""
        with self._changing() as base:
            base.execute(
                "INSERT OR REPLACE INTO outcome SELECT number, ?, '', ? FROM message WHERE state = ?",
                (SendState.REFUSED, reason, SendState.PLANNED),
            )

    # -- verifying --------------------------------------------------------------------------------------------------

    def forget_verified(self) -> None:
        """Forget what the target said: it is asked anew."""
        with self._changing() as base:
            base.execute("DELETE FROM verified")

    def verify(self, outcomes: Iterable[tuple[int, Verification, str]]) -> None:
        """Note what the target says of messages: number, outcome, and the ids of all copies of it."""
        with self._changing() as base:
            base.executemany("INSERT OR REPLACE INTO verified VALUES (?, ?, ?)", outcomes)

    def find_by_name(self) -> None:
        """Have messages found by their unique key at the target."""
        with self._changing() as base:
            base.execute("CREATE INDEX IF NOT EXISTS planned_name ON planned (unique_key)")

    def see(self, topic: str, seen: Iterable[tuple[str, str, int, int, str]]) -> int:
        """Note messages of a topic that the target has: unique key, origin, bytes and CRC of the body, id there.

        Each is seen once; one with the name of another is its double. How many of them were sent by this run.
        """
        with self._changing() as base:
            before = base.total_changes
            base.executemany(_SEE, ((topic, *each) for each in seen))
            return base.total_changes - before

    # -- reading ----------------------------------------------------------------------------------------------------

    def sent(
        self, *states: SendState, behind: int = 0, most: int = AT_ONCE, is_unverified: bool = False
    ) -> list[SentMessage]:
        """The messages in some states, by number behind one; with `is_unverified` those of which the target said
        nothing."""
        marks = ",".join("?" * len(states))
        condition = " AND outcome ISNULL" if is_unverified else ""
        found = self._base.execute(
            f"SELECT {_SENT} FROM message WHERE number > ? AND state IN ({marks}){condition} ORDER BY number LIMIT ?",
            (behind, *states, most),
        )
        return [SentMessage(*row) for row in found]

    def each_sent(
        self, *states: SendState, most: int = AT_ONCE, is_unverified: bool = False
    ) -> Iterator[list[SentMessage]]:
        """All messages in some states, in pieces of so many; `is_unverified` as `sent`."""
        behind = 0
        while piece := self.sent(*states, behind=behind, most=most, is_unverified=is_unverified):
            yield piece
            behind = piece[-1].number

    def by_topic(self, *states: SendState) -> list[TopicSum]:
        """Count the messages in some states by the topic that they go to."""
        marks = ",".join("?" * len(states))
        found = self._base.execute(
            "SELECT topic, COUNT(*), SUM(size), MIN(stored_at), MAX(stored_at), SUM(can_batch) FROM message "
            f"WHERE state IN ({marks}) GROUP BY topic ORDER BY topic",
            states,
        )
        return [TopicSum(*row) for row in found]

    @property
    def has_sent_nothing(self) -> bool:
        """Whether no message was sent, or may have been."""
        found = self._base.execute(
            "SELECT EXISTS (SELECT 1 FROM leaving) OR EXISTS (SELECT 1 FROM outcome WHERE state IN (?, ?))",
            (SendState.SENT, SendState.UNKNOWN),
        )
        return not found.fetchone()[0]

    @property
    def has_planned(self) -> bool:
        """Whether something is to be sent."""
        return self._base.execute("SELECT 1 FROM message WHERE state = 0 LIMIT 1").fetchone() is not None

    def states(self) -> dict[SendState, int]:
        """How many messages are in each state."""
        if self._base.execute("SELECT 1 FROM leaving LIMIT 1").fetchone():
            found = dict(self._base.execute("SELECT state, COUNT(*) FROM message GROUP BY state"))
            return {state: found.get(state, 0) for state in SendState}
        # Not by the join, nor sorted: every run counts all.
        sums = ", ".join(f"IFNULL(SUM(state = {state:d}), 0)" for state in SendState)
        planned = self._base.execute(f"SELECT {sums} FROM planned").fetchone()
        noted = self._base.execute(f"SELECT {sums} FROM outcome").fetchone()
        counts = {state: planned[state] + noted[state] for state in SendState}
        counts[SendState.PLANNED] -= sum(noted)
        return counts

    def outcomes(self) -> dict[Verification, int]:
        """How many messages have each outcome."""
        found = dict(self._base.execute("SELECT outcome, COUNT(*) FROM verified GROUP BY outcome"))
        return {outcome: found.get(outcome, 0) for outcome in Verification}

    def reasons(self, *states: SendState) -> list[tuple[str, int, str]]:
        """Why messages are in some states: each reason, how many have it, and the place of the first of them."""
        marks = ",".join("?" * len(states))
        found = self._base.execute(
            "SELECT reason, COUNT(*), place, MIN(number) FROM message "
            f"WHERE state IN ({marks}) AND reason != '' GROUP BY reason ORDER BY MIN(number)",
            states,
        )
        return [(reason, count, place) for reason, count, place, _ in found]

    def named(self, *outcomes: Verification, most: int = 20) -> list[tuple[str, str, Verification]]:
        """Some messages with these outcomes: unique key, ids at the target, outcome."""
        marks = ",".join("?" * len(outcomes))
        found = self._base.execute(
            f"SELECT unique_key, copies, outcome FROM message WHERE outcome IN ({marks}) ORDER BY number LIMIT ?",
            (*outcomes, most),
        )
        return [(key, copies, Verification(outcome)) for key, copies, outcome in found]

    def named_nothing(self) -> list[str]:
        """The texts that name no message."""
        return [text for (text,) in self._base.execute("SELECT text FROM missing ORDER BY text")]


class AccountError(RocketLensError):
    """The account cannot be written: nothing more is sent."""


def now_text() -> str:
    """The time, as the account notes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
