"""What all tables have, whatever their format: data files, the position committed with them, and the record of a run.

A run reads the log from the position that was committed last to the log's end as found now. Tasks write data files
under names of attempts, which no reader of the table sees; one commit makes all of them part of the table, and the new
position with them. So what is in the table is what lies before its position, once, wherever a run was killed.
"""

from collections.abc import Sequence
from datetime import date
from typing import Final, Protocol, TypeVar

import msgspec

from protocol.errors import ConfigError, StoreError
from spark_jobs.places.placed_run import PlacedRun
from spark_jobs.read.log_ranges import Problem
from storage.columns.body_content import BodyContent
from storage.columns.names import check_names
from storage.columns.wanted import Wanted

TABLE_VERSION: Final = 1
"""Version of the commits that this release writes; commits of other versions are refused."""


class KnownLog(msgspec.Struct, frozen=True):
    """The identity of the log of a table: the segment in which a run ended, and digests of its bytes.

    `base_offset` is where that segment starts; `head` is the digest of its first bytes, `tail` of the last bytes
    before the position.
    """

    base_offset: int
    head: str
    tail: str


class Position(msgspec.Struct, frozen=True):
    """Progress of a table: the physical offset behind the last record that was read, and the identity of the log."""

    physical_offset: int
    mark: KnownLog


class TableShape(msgspec.Struct, frozen=True, kw_only=True):
    """The schema and the options of a table's rows, the same in each run; but columns may come later.

    `begin` and `end` bound store times in ms, both included.
    """

    format: str
    columns: tuple[str, ...]
    partition_by: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    begin: int | None = None
    end: int | None = None
    tag: str | None = None
    where: str | None = None
    masked: tuple[str, ...] = ()
    unpack: bool = False
    charset: str | None = None

    def __post_init__(self) -> None:
        """Raise ConfigError for unknown columns."""
        check_names(self.columns)

    @property
    def content(self) -> BodyContent | None:
        """What becomes of bodies; raises ConfigError for an unknown charset."""
        return BodyContent.asked(self.charset, unpack=self.unpack)

    @property
    def wanted(self) -> Wanted:
        """The messages; raises FilterSyntaxError."""
        return Wanted.asked(self.topics, self.begin, self.end, self.tag, self.where)


class DataFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of rows of one partition.

    `name` is where it belongs, in directories named as Hive does; `written` is where the attempt left it, relative to
    the URL of its run. `partition` has the values, None for a date that no timestamp has. `bounds` are the lowest and
    the highest value of columns of numbers, times in ms; the physical offset is always one of them.
    """

    name: str
    written: str
    partition: dict[str, str | None]
    rows: int
    bytes: int
    sha256: str
    bounds: dict[str, tuple[int, int]]


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a run did: bytes [start, stop) of the log by physical offset became `rows` in files of `bytes`.

    `gap` are the bytes [from, to) that had expired when the run came to them; `damage` are the places of the log that
    hold no message that counts, holes too, and `more_damage` counts those that are not listed. `removed_files` are no
    more from then on. Times are in ms. `command` is what was done: `append`, `compact` or `drop`.
    """

    command: str
    start: int
    stop: int
    rows: int = 0
    bytes: int = 0
    removed_files: int = 0
    gap: tuple[int, int] | None = None
    damage: tuple[Problem, ...] = ()
    more_damage: int = 0
    began_timestamp: int = 0
    ended_timestamp: int = 0
    host: str = ""


class TableCommit(msgspec.Struct, frozen=True, kw_only=True):
    """The record that is committed with the data: shape and position of the table from then on, and what the run did.

    As JSON it is what a table keeps, in a file of its own or in the properties of a snapshot.
    """

    version: int = TABLE_VERSION
    run: str
    shape: TableShape
    position: Position
    record: RunRecord


Commit = TypeVar("Commit", bound=TableCommit)


class _Versioned(msgspec.Struct):
    version: int = 0


def read_commit(text: str | bytes, where: str, form: type[Commit]) -> Commit:
    """A commit of a form from its JSON; raises StoreError if it is not valid, or is another release's."""
    try:
        version = msgspec.json.decode(text, type=_Versioned).version
        if version != TABLE_VERSION:
            raise StoreError(
                where, what="was written by another version: version", expected=TABLE_VERSION, found=version
            )
        return msgspec.json.decode(text, type=form)
    except (msgspec.MsgspecError, ConfigError) as error:
        raise StoreError(where, what=f"has no commit of RocketLens: {error}") from error


class FileLayout(msgspec.Struct, frozen=True):
    """The Parquet layout of a table's files: times in microseconds, for formats that know no milliseconds.

    `field_ids` are Iceberg's numbers of the fields, by path (`keys`, `keys.element`).
    """

    microseconds: bool = False
    field_ids: dict[str, int] = {}


class Table(Protocol):
    """A table of one format at one place. Every method raises StoreError where the place cannot be used.

    A run is `last`, `begin`, tasks, `commit`, `close`; between them another run may commit, and then `commit` raises.
    """

    where: str
    is_hidden: bool
    """Whether tasks name objects so that no reader takes them for data, until they are committed."""

    keeps_partitions: bool
    """Whether columns that the table is partitioned by are in its files too."""

    def last(self) -> TableCommit | None:
        """The last commit, None if there is no table yet; what an earlier run left to do is done first.

        Raises StoreError for what somebody else has written there, or a newer release.
        """

    def layout(self, shape: TableShape) -> FileLayout:
        """What the files of a run must be; a table that needs it is made first, or gets the columns that are new."""

    def begin(self) -> PlacedRun:
        """Begin a run on top of what :meth:`last` said: where its tasks write."""

    def commit(self, files: Sequence[DataFile], commit: TableCommit) -> None:
        """Make the files part of the table; raises StoreError, with none of them in it, if another run was first."""

    def drop_before(self, day: date) -> TableCommit | None:
        """Remove the files whose messages were all stored before a day (UTC); None where there is none."""

    def compact(self, target_bytes: int) -> TableCommit | None:
        """Merge small files of a partition into larger ones of at most that size; None where nothing is to be done."""

    def close(self) -> None:
        """End a run: what it wrote is removed, unless it was committed."""
