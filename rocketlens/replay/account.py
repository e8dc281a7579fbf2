"""The account of a run: one SQLite file with the state of each message, from which a run that was stopped goes on.

The view `message` has a row for each message that was chosen, joined of what was `planned`, what was `sent` or has
another `outcome`, and what was `verified`: what is written once is written in order, and nothing in it grows. Messages
of one queue of the source that lie near each other have numbers that follow one another, so that those of one request
are one range in `sent`. Numbers stand in `leaving` on disk before their messages leave, so that one of which the answer
is not known can be asked for later; what a process that was killed had not noted is asked for in the same way.
"""

import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, Self, TypeAlias

from protocol.errors import ConfigError, RocketLensError

FORM: Final = 4
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


PlannedTuple: TypeAlias = tuple[int, str, int, int, int, int, int, int, str | None]
"""A message as it was when the plan was made: no named one, as there is one for each message that is sent.

Way, unique key, physical and queue offset in the source, CRC of the body, born and store time (ms), bytes of the body,
and the name of its place, None where that is made of the others.
"""


class AccountRow(NamedTuple):
    """One message of a run; sizes in bytes, times in ms. `source_key` is its unique key in the source."""

    way: int
    unique_key: str
    physical_offset: int
    queue_offset: int
    body_crc: int
    born_at: int
    stored_at: int
    size: int
    place: str
    source_key: str
    origin: str
    is_copy: bool
    can_batch: bool
    state: SendState
    reason: str

    @property
    def planned(self) -> PlannedTuple:
        """What it is told from others by."""
        return self[:9]


class ReplayWay(NamedTuple):
    """What messages have in common that go one way: the topic that they go to, broker and queue that they are from."""

    topic: str
    host: str
    queue_id: int


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
CREATE TABLE queue_end (
    topic TEXT, broker TEXT, queue_id INTEGER, queue_offset INTEGER NOT NULL,
    PRIMARY KEY (topic, broker, queue_id)) WITHOUT ROWID;
CREATE TABLE way (
    way INTEGER PRIMARY KEY, topic TEXT NOT NULL, host TEXT NOT NULL, queue_id INTEGER NOT NULL, host_id TEXT NOT NULL);
CREATE TABLE planned (
    number INTEGER PRIMARY KEY, way INTEGER NOT NULL, unique_key TEXT NOT NULL, physical_offset INTEGER NOT NULL,
    queue_offset INTEGER NOT NULL, body_crc INTEGER NOT NULL, born_at INTEGER NOT NULL, stored_at INTEGER NOT NULL,
    size INTEGER NOT NULL, place TEXT, source_key TEXT, origin TEXT, is_copy INTEGER NOT NULL DEFAULT 0,
    can_batch INTEGER NOT NULL DEFAULT 1, state INTEGER NOT NULL DEFAULT 0, reason TEXT NOT NULL DEFAULT '',
    sent_id TEXT NOT NULL DEFAULT '');
CREATE INDEX planned_otherwise ON planned (state) WHERE state != 0;
CREATE TABLE sent (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, ids TEXT NOT NULL, reason TEXT NOT NULL);
CREATE TABLE outcome (number INTEGER PRIMARY KEY, state INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE TABLE leaving (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);
CREATE TABLE verified (number INTEGER PRIMARY KEY, outcome INTEGER NOT NULL, copies TEXT NOT NULL);
CREATE VIEW chosen AS SELECT
    number, IFNULL(place, host || ' ' || physical_offset || ' ' || queue_offset || ' ' || unique_key) AS place,
    IFNULL(source_key, unique_key) AS source_key, unique_key, topic,
    IFNULL(origin, printf('%s%016X %d %d %s', host_id, physical_offset, born_at, stored_at,
        (SELECT value FROM run WHERE name = 'cluster'))) AS origin,
    stored_at, size, body_crc, is_copy, can_batch, CASE
        WHEN sent.first NOTNULL THEN 2
        WHEN outcome.state NOTNULL THEN outcome.state
        WHEN planned.state = 0 AND IFNULL(
            (SELECT last FROM leaving WHERE first <= number ORDER BY first DESC LIMIT 1), 0) >= number THEN 1
        ELSE planned.state END AS state,
    COALESCE(sent.reason, outcome.reason, planned.reason) AS reason, CASE
        WHEN sent.first ISNULL THEN planned.sent_id
        WHEN instr(ids, ',') = 0 THEN ids
        ELSE substr(ids, (number - sent.first) * ((length(ids) + 1) / (last - sent.first + 1)) + 1, instr(ids, ',') - 1)
        END AS sent_id
    FROM planned JOIN way USING (way)
    LEFT JOIN sent ON last >= number AND sent.first = (
        SELECT first FROM sent AS earlier WHERE earlier.first <= number ORDER BY earlier.first DESC LIMIT 1)
    LEFT JOIN outcome USING (number);
CREATE VIEW message AS SELECT chosen.*, verified.outcome AS outcome, IFNULL(verified.copies, '') AS copies
    FROM chosen LEFT JOIN verified USING (number);
"""

_OF_MESSAGES: Final = ("planned", "sent", "outcome", "leaving", "verified")
_PLANNED: Final = "way, unique_key, physical_offset, queue_offset, body_crc, born_at, stored_at, size, place"
_OF_A_TOPIC: Final = "way IN (SELECT way FROM way WHERE topic = ?)"
_WHOLE: Final = f"{_PLANNED}, source_key, origin, is_copy, can_batch, state, reason"
_SENT: Final = "number, unique_key, topic, origin, size, body_crc, sent_id"

_SEE: Final = f"""
INSERT INTO verified
    SELECT number, CASE WHEN size = ?4 AND body_crc = ?5 THEN {Verification.VERIFIED:d}
        ELSE {Verification.DIFFERENT:d} END, ?6
    FROM chosen WHERE unique_key = ?2 AND origin = ?3 AND topic = ?1 AND state = {SendState.SENT:d}
ON CONFLICT DO UPDATE SET copies = copies || ' ' || excluded.copies,
    outcome = CASE WHEN {Verification.DIFFERENT:d} IN (outcome, excluded.outcome) THEN {Verification.DIFFERENT:d}
        ELSE {Verification.DOUBLE:d} END
"""


_NOTE_UNSENT: Final = """
INSERT OR REPLACE INTO outcome SELECT ?1, ?2, ?3
WHERE ?1 > IFNULL((SELECT last FROM sent WHERE first <= ?1 ORDER BY first DESC LIMIT 1), 0)
"""

_AT_A_TIME: Final = 32
_INSERT_PLAIN: Final = f"INSERT OR IGNORE INTO planned ({_PLANNED}) VALUES "
_PLAIN_VALUES: Final = "(?, ?, ?, ?, ?, ?, ?, ?, ?)"
"""Rows of one statement: one for each took twice as long (`python -m benchmarks.replay`)."""


class ReplayWays:
    """The ways of an account by their numbers, in the order in which the source brought them."""

    def __init__(self, ways: Iterable[ReplayWay] = ()) -> None:
        self._ways = list(ways)
        self._numbers = {way: number for number, way in enumerate(self._ways)}
        self._brokers = {host: place for place, host in enumerate(dict.fromkeys(way.host for way in self._ways))}
        self.added: list[tuple[int, str, str, int, str]] = []
        """Those that are not in the file yet, with the host's part of an offset message id."""

    def __getitem__(self, number: int) -> ReplayWay:
        return self._ways[number]

    def number(self, way: ReplayWay, host_id: str = "") -> int:
        """The number of a way, which is added where it is none yet."""
        number = self._numbers.get(way)
        if number is None:
            number = self._numbers[way] = len(self._ways)
            self._ways.append(way)
            self._brokers.setdefault(way.host, len(self._brokers))
            self.added.append((number, *way, host_id))
        return number

    def broker(self, number: int) -> int:
        """The place of a way's broker among those of the source: it is the same in each run."""
        return self._brokers[self._ways[number].host]


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
            self._base.execute(f"PRAGMA synchronous = {'OFF' if path is None else 'NORMAL'}")
            self._base.execute("BEGIN IMMEDIATE")
            names = {name for (name,) in self._base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not names:
                for statement in filter(str.strip, _TABLES.split(";\n")):
                    self._base.execute(statement)
                self._base.execute("INSERT INTO run VALUES ('form', ?)", (str(FORM),))
            elif "run" not in names or self.said("form") != str(FORM):
                raise ConfigError(f"{path} is no account of a replay, or one of another version")
            self._base.execute("COMMIT")
            self.ways = self._read_ways()
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

    def _read_ways(self) -> ReplayWays:
        found = self._base.execute("SELECT topic, host, queue_id FROM way ORDER BY way")
        return ReplayWays(ReplayWay(*row) for row in found)

    @contextmanager
    def _changing(self, *, is_durable: bool = False) -> Iterator[sqlite3.Connection]:
        """One change, in the file as a whole or not at all; `is_durable`: on the disk, with all before it."""
        level = "FULL" if is_durable else "NORMAL"
        try:
            if self.path is not None:
                self._base.execute(f"PRAGMA synchronous = {level}")
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
            for table in (*_OF_MESSAGES, "missing", "closed", "queue_end", "way"):
                base.execute(f"DELETE FROM {table}")
            for index in ("planned_place", "planned_at", "planned_key", "planned_name", "planned_way"):
                base.execute(f"DROP INDEX IF EXISTS {index}")
            if not keeps_run:
                base.execute("DELETE FROM run WHERE name != 'form'")
        self.ways = ReplayWays()

    def plan(self, rows: Sequence[AccountRow]) -> None:
        """Note messages that were chosen."""
        with self._changing() as base:
            self._add_ways(base)
            base.executemany(f"INSERT OR IGNORE INTO planned ({_WHOLE}) VALUES ({', '.join('?' * 15)})", rows)

    def plan_plain(self, rows: Sequence[PlannedTuple]) -> None:
        """Note messages that are only copied."""
        values = list(chain.from_iterable(rows))
        one = _PLAIN_VALUES.count("?")
        many = _AT_A_TIME * one
        whole = len(values) // many * many
        with self._changing() as base:
            self._add_ways(base)
            base.executemany(
                _INSERT_PLAIN + ", ".join([_PLAIN_VALUES] * _AT_A_TIME),
                (values[at : at + many] for at in range(0, whole, many)),
            )
            base.executemany(
                _INSERT_PLAIN + _PLAIN_VALUES, (values[at : at + one] for at in range(whole, len(values), one))
            )

    def _add_ways(self, base: sqlite3.Connection) -> None:
        base.executemany("INSERT INTO way VALUES (?, ?, ?, ?, ?)", self.ways.added)
        self.ways.added.clear()

    def keep_distinct(self) -> None:
        """Have a message noted once, even if it is chosen twice."""
        with self._changing() as base:
            columns = "physical_offset, queue_offset, way, unique_key, IFNULL(place, '')"
            base.execute(f"CREATE UNIQUE INDEX IF NOT EXISTS planned_place ON planned ({columns})")

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
            base.execute("CREATE INDEX IF NOT EXISTS planned_key ON planned (source_key)")
            base.execute(
                "UPDATE planned SET state = ?, reason = 'the same message is chosen in another state of it' "
                "WHERE is_copy AND state = ? AND EXISTS (SELECT 1 FROM planned AS other JOIN way USING (way) WHERE "
                "other.source_key = planned.source_key AND other.state = ? "
                "AND topic = (SELECT mine.topic FROM way AS mine WHERE mine.way = planned.way) "
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
                f"UPDATE planned SET state = ?, reason = ? WHERE state = ? AND {_OF_A_TOPIC} AND size > ?",
                (SendState.REFUSED, reason, SendState.PLANNED, topic, larger_than),
            )

    def find_by_way(self) -> None:
        """Have the messages for a topic found, where many topics are judged one after the other."""
        with self._changing() as base:
            base.execute("CREATE INDEX IF NOT EXISTS planned_way ON planned (way)")

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
                f"UPDATE planned SET state = ?, reason = '' WHERE {_OF_A_TOPIC} AND state = ? "
                "AND reason = (SELECT reason FROM closed WHERE topic = ?)",
                (SendState.PLANNED, topic, SendState.REFUSED, topic),
            )

    def open_topic(self, topic: str) -> None:
        """Note that the messages for a topic that was closed are judged."""
        with self._changing() as base:
            base.execute("DELETE FROM closed WHERE topic = ?", (topic,))

    # -- sending ----------------------------------------------------------------------------------------------------

    def planned(self, first: int, count: int) -> list[PlannedTuple]:
        """Read so many messages from a number on, as they were planned."""
        found = self._base.execute(
            f"SELECT {_PLANNED} FROM planned WHERE number BETWEEN ? AND ? ORDER BY number", (first, first + count - 1)
        )
        return found.fetchall()

    def numbers(self, rows: Sequence[PlannedTuple | None]) -> list[int]:
        """The numbers of messages that were planned as these are; 0 for what is not among them."""
        with self._changing() as base:
            # Lines that somebody wrote may have the same offset all, or the same key.
            base.execute("CREATE INDEX IF NOT EXISTS planned_at ON planned (physical_offset, unique_key)")
        known: dict[PlannedTuple, int] = {}
        places = list({(row[2], row[1]) for row in rows if row is not None})
        for at in range(0, len(places), AT_ONCE // 4):
            some = places[at : at + AT_ONCE // 4]
            marks = ", ".join(["(?, ?)"] * len(some))
            found = self._base.execute(
                f"WITH wanted (at, name) AS (VALUES {marks}) SELECT {_PLANNED}, number FROM wanted "
                "CROSS JOIN planned ON physical_offset = at AND unique_key = name",
                [*chain.from_iterable(some)],
            )
            known |= {row[:-1]: row[-1] for row in found}
        return [0 if row is None else known.pop(row, 0) for row in rows]

    def decided(self, first: int, last: int) -> list[tuple[int, int]]:
        """The ranges of messages among some that are not to be sent: they are, may be on their way, or are refused."""
        span = {"first": first, "last": last}
        ranges = (
            f"SELECT first, last FROM {table} WHERE first BETWEEN "
            f"IFNULL((SELECT MAX(first) FROM {table} WHERE first <= :first), 0) AND :last AND last >= :first"
            for table in ("sent", "leaving")
        )
        found = self._base.execute(
            "SELECT number, number FROM planned WHERE number BETWEEN :first AND :last AND state != 0 "
            "UNION ALL SELECT number, number FROM outcome WHERE number BETWEEN :first AND :last AND state != 0 "
            f"UNION ALL {' UNION ALL '.join(ranges)}",
            span,
        )
        return found.fetchall()

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

    def begin(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Note on the disk that planned messages are about to leave, by ranges of their numbers; each is noted once."""
        whole: list[tuple[int, int]] = []
        for first, last in sorted(ranges):
            if whole and first == whole[-1][1] + 1:
                whole[-1] = (whole[-1][0], last)
            else:
                whole.append((first, last))
        with self._changing(is_durable=True) as base:
            base.executemany("INSERT OR REPLACE INTO leaving VALUES (?, ?)", whole)
            base.executemany(
                f"DELETE FROM outcome WHERE number BETWEEN ? AND ? AND state = {SendState.PLANNED:d}", whole
            )

    def end_all(self) -> None:
        """Note that nothing is under way any more: what has no outcome has not left."""
        with self._changing() as base:
            base.execute("DELETE FROM leaving")

    def note(
        self, sent: Sequence[tuple[int, int, str, str]] = (), outcomes: Iterable[tuple[int, SendState, str]] = ()
    ) -> None:
        """Note ranges of messages that were sent, with their ids at the target, separated by commas, and what else
        became of messages; the last is what is to be said of them. What was sent stays so."""
        with self._changing() as base:
            base.executemany("DELETE FROM outcome WHERE number BETWEEN ? AND ?", (each[:2] for each in sent))
            base.executemany("INSERT INTO sent VALUES (?, ?, ?, ?)", sent)
            base.executemany(_NOTE_UNSENT, outcomes)

    def give_up_planned(self, reason: str) -> None:
        """Refuse what is still to be sent."""
        if not self.states()[SendState.PLANNED]:
            return
        with self._changing() as base:
            base.execute(
                "INSERT OR REPLACE INTO outcome SELECT number, ?, ? FROM chosen WHERE state = ?",
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

    def topics(self) -> list[str]:
        """The topics that messages go to."""
        return [topic for (topic,) in self._base.execute("SELECT DISTINCT topic FROM way WHERE topic != '' ORDER BY 1")]

    def by_topic(self, *states: SendState) -> list[TopicSum]:
        """Count the messages in some states by the topic that they go to."""
        marks = ",".join("?" * len(states))
        found = self._base.execute(
            "SELECT topic, COUNT(*), SUM(size), MIN(stored_at), MAX(stored_at), SUM(can_batch) FROM chosen "
            f"WHERE state IN ({marks}) GROUP BY topic ORDER BY topic",
            states,
        )
        return [TopicSum(*row) for row in found]

    @property
    def has_sent_nothing(self) -> bool:
        """Whether no message was sent, or may have been."""
        found = self._base.execute(
            "SELECT EXISTS (SELECT 1 FROM leaving) OR EXISTS (SELECT 1 FROM sent) "
            "OR EXISTS (SELECT 1 FROM outcome WHERE state = ?)",
            (SendState.UNKNOWN,),
        )
        return not found.fetchone()[0]

    def states(self) -> dict[SendState, int]:
        """How many messages are in each state."""
        if self._base.execute("SELECT 1 FROM leaving LIMIT 1").fetchone():
            found = dict(self._base.execute("SELECT state, COUNT(*) FROM chosen GROUP BY state"))
            return {state: found.get(state, 0) for state in SendState}
        # Not by the join: every run counts all. Numbers begin with 1, and none is left out.
        (count,) = self._base.execute("SELECT IFNULL(MAX(number), 0) FROM planned").fetchone()
        (sent,) = self._base.execute("SELECT IFNULL(SUM(last - first + 1), 0) FROM sent").fetchone()
        planned = dict(self._base.execute("SELECT state, COUNT(*) FROM planned WHERE state != 0 GROUP BY state"))
        noted = dict(self._base.execute("SELECT state, COUNT(*) FROM outcome GROUP BY state"))
        counts = {state: planned.get(state, 0) + noted.get(state, 0) for state in SendState}
        counts[SendState.SENT] += sent
        counts[SendState.PLANNED] += count - sent - sum(planned.values()) - sum(noted.values())
        return counts

    def outcomes(self) -> dict[Verification, int]:
        """How many messages have each outcome."""
        found = dict(self._base.execute("SELECT outcome, COUNT(*) FROM verified GROUP BY outcome"))
        return {outcome: found.get(outcome, 0) for outcome in Verification}

    def reasons(self, *states: SendState) -> list[tuple[str, int, str]]:
        """Why messages are in some states: each reason, how many have it, and the place of the first of them."""
        counts = self.states()
        if not any(counts[state] for state in states):
            return []
        marks = ",".join("?" * len(states))
        found = self._base.execute(
            "SELECT reason, COUNT(*), place, MIN(number) FROM chosen "
            f"WHERE state IN ({marks}) AND reason != '' GROUP BY reason ORDER BY MIN(number)",
            states,
        )
        return [(reason, count, place) for reason, count, place, _ in found]

    def named(self, *outcomes: Verification, most: int = 20) -> list[tuple[str, str, Verification]]:
        """Some messages with these outcomes: unique key, ids at the target, outcome."""
        marks = ",".join("?" * len(outcomes))
        found = self._base.execute(
            "SELECT unique_key, copies, outcome FROM verified CROSS JOIN planned USING (number) "
            f"WHERE outcome IN ({marks}) ORDER BY number LIMIT ?",
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
