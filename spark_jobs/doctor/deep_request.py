"""The options of a deep check, and its result."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from spark_jobs.run.engine import EngineOptions
from spark_jobs.run.report import Details
from storage.doctor.finding import LIMIT, Finding, Kind
from storage.layout.delay_levels import DEFAULT_DELAY_LEVELS


class DeepRequest(EngineOptions, frozen=True, kw_only=True):
    """Options of a deep check. `limit`: findings of one kind that are listed of one file; more are counted.

    `store` is a directory or a URL, `storage` the options of its file system as JSON. `since_last`: only
    what came since the last reading that found nothing wrong. `work` is where a directory for
    what is half done is made, None for the machine's temporary directory.
    """

    store: str
    delay_levels: str = DEFAULT_DELAY_LEVELS
    commit_log_directories: tuple[str, ...] = ()
    storage: str = ""
    limit: int = LIMIT
    since_last: bool = False
    fresh: bool = False
    work: str | None = None


class LogNumbers(msgspec.Struct, kw_only=True, rename="camel"):
    """The log that all else was compared with: physical offsets [minimum, end), of which some bytes are lost.

    `lag` are bytes behind `end` that a live broker was writing when they were read.
    """

    segments: int
    minimum: int
    end: int
    lost_bytes: int
    lag: int
    live: bool
    crashed: bool


class QueueNumbers(msgspec.Struct, kw_only=True, rename="camel"):
    """Units of all queues together, by what became of them; `lag` and `deleted_topics` are messages without units.

    The kinds from `expired` to `beyond` are units without a message that are no damage: those of messages that have
    expired; fillers before the first unit; units that point to where the log is lost; those that a rebuild put in the
    place of lost ones; and, at the end of a queue, those that point beyond the log.
    """

    queues: int
    lag: int
    deleted_topics: int
    matched: int
    expired: int
    fillers: int
    lost: int
    stand_ins: int
    beyond: int
    restarts: int
    earlier_life: int
    ext_units: int


class IndexNumbers(msgspec.Struct, kw_only=True, rename="camel"):
    """Entries of all index files together, by what became of them; `lag` and `dropped` are keys without entries."""

    files: int
    entries: int
    lag: int
    matched: int
    expired: int
    lost: int
    newer: int
    repeats: int
    dropped: int


Numbers = TypeVar("Numbers", QueueNumbers, IndexNumbers)


def summed(kind: type[Numbers], sums: Mapping[str, int]) -> Numbers:
    """The numbers of a kind among some sums."""
    return kind(**{name: sums[name] for name in kind.__struct_fields__})


class DeepDetails(Details, kw_only=True):
    """The result of a deep check: its findings, and how many there are of each kind in all."""

    clean: bool
    log: LogNumbers
    queues: QueueNumbers
    index: IndexNumbers
    counts: dict[Kind, int]
    findings: list[Finding]

    @property
    def exit_code(self) -> int:
        """4 where anything is wrong."""
        return 0 if self.clean else 4
