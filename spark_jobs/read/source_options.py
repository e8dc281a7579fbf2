"""The options of the data source, read and checked once; what they say goes to the workers as it is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo
from typing import Final, NamedTuple

from protocol.errors import ConfigError
from protocol.mask import rules_of, rules_of_file
from spark_jobs.places.file_systems import check_storage
from storage.columns.names import KINDS, check_names
from storage.columns.wanted import HIGHEST, LOWEST, Wanted
from storage.filter.hidden import refuse_hidden
from storage.filter.sql92 import parse
from storage.filter.tag import parse_tag_expression
from storage.patterns.mask import mask_of
from storage.times import parse_time, parse_zone

PERMISSIVE: Final = "permissive"
FAILFAST: Final = "failfast"
MESSAGES: Final = "messages"
DAMAGE: Final = "damage"


class SourceOption(NamedTuple):
    """An option of the data source: what holds without it, and what it says."""

    default: str
    meaning: str


OPTIONS: Final = {
    "topic": SourceOption("all", "one or several, separated by commas; one that is not in the log gives no rows"),
    "tag": SourceOption("all", "a tag subscription, `TagA || TagB`"),
    "queue_id": SourceOption("all", "numbers, separated by commas"),
    "queue_offset": SourceOption("all", "`FIRST-LAST`, both included; `FIRST-`, `-LAST`, or one number"),
    "physical_offset": SourceOption("all", "likewise"),
    "from": SourceOption("all", "the first store time, in any of the forms of a time (docs/find.md)"),
    "to": SourceOption("all", "the last store time; an error if `from` is after it"),
    "timezone": SourceOption("the driver's", "of `from` and `to` where they name none: `Asia/Shanghai`, `+08:00`"),
    "where": SourceOption("all", "a SQL92 expression over the properties, evaluated as by a broker"),
    "mask": SourceOption("nothing is hidden", "rules of what is hidden, one on each line (docs/security.md)"),
    "maskFile": SourceOption("nothing is hidden", "a file of such rules, which the driver reads"),
    "columns": SourceOption("all", "names, separated by commas"),
    "mode": SourceOption(PERMISSIVE, "`failfast`: damage is an error"),
    "table": SourceOption(MESSAGES, "`damage`: the parts of the log that are not messages"),
    "commit_log": SourceOption("", "directories or URLs of the log, if it is not in the store, separated by commas"),
    "storage_options": SourceOption("", 'options of the file system, as JSON: `{"endpoint_url": "http://…"}`'),
    "startingOffset": SourceOption("earliest", "of a stream: `latest`, or the physical offset of a record"),
    "maxSegmentsPerTrigger": SourceOption("all", "of a stream: segments that a micro-batch may hold (pyspark ≥ 4.2)"),
    "maxBytesPerTrigger": SourceOption("all", "of a stream: bytes of log that it may hold; the least limit counts"),
    "maxRecordsPerTrigger": SourceOption("all", "of a stream: messages that it may hold"),
}
"""All options but `path`, as Markdown: docs/spark.md in the site."""

NAMES: Final = frozenset({"path", *map(str.lower, OPTIONS)})


@dataclass(frozen=True)
class DataSourceOptions:
    """What to read, and how; `masked` are the rules of a mask (:mod:`protocol.mask`)."""

    path: str
    wanted: Wanted
    columns: tuple[str, ...] = tuple(KINDS)
    mode: str = PERMISSIVE
    table: str = MESSAGES
    commit_log: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    storage: str = ""
    starting_offset: str = "earliest"
    most_segments: int | None = None
    most_bytes: int | None = None
    most_records: int | None = None

    @property
    def fails_fast(self) -> bool:
        """Whether damage is an error."""
        return self.mode == FAILFAST


def read_options(options: Mapping[str, str]) -> DataSourceOptions:
    """The options of a data source; raises ConfigError, and FilterSyntaxError for a wrong `tag` or `where`."""
    given = {name.lower(): value for name, value in options.items()}
    unknown = sorted(name for name in given if name not in NAMES)
    if unknown:
        raise ConfigError(f"no option {unknown[0]!r}: expected some of {', '.join(sorted(NAMES))}")
    if not given.get("path"):
        raise ConfigError("name the store: .load('/path/to/store'), or a URL")
    if where := given.get("where"):
        parse(where)
    masked = _masked(given)
    refuse_hidden(mask_of(masked), given.get("tag"), where or None)
    return DataSourceOptions(
        path=given["path"],
        wanted=Wanted(
            topics=_topics(given.get("topic")),
            queue_ids=_queue_ids(given.get("queue_id")),
            tags=_tags(given.get("tag")),
            times=_times(given),
            queue_offsets=_range(given, "queue_offset"),
            physical_offsets=_range(given, "physical_offset"),
            where=where or None,
        ),
        columns=check_names(_pieces(given.get("columns")) or tuple(KINDS)),
        mode=_one_of(given, "mode", (PERMISSIVE, FAILFAST)),
        table=_one_of(given, "table", (MESSAGES, DAMAGE)),
        commit_log=_pieces(given.get("commit_log")),
        masked=masked,
        storage=check_storage(given.get("storage_options", "")),
        starting_offset=_starting_offset(given.get("startingoffset", "earliest")),
        most_segments=_count(given, "maxSegmentsPerTrigger"),
        most_bytes=_count(given, "maxBytesPerTrigger"),
        most_records=_count(given, "maxRecordsPerTrigger"),
    )


def _pieces(text: str | None) -> tuple[str, ...]:
    return tuple(piece for each in (text or "").split(",") if (piece := each.strip()))


def _masked(given: Mapping[str, str]) -> tuple[str, ...]:
    rules = rules_of(given.get("mask", ""))
    if "mask" in given and not rules:
        raise ConfigError("mask: expected rules, one on each line")
    return (*rules, *(rules_of_file(given["maskfile"]) if "maskfile" in given else ()))


def _topics(text: str | None) -> frozenset[bytes] | None:
    topics = frozenset(topic.encode() for topic in _pieces(text))
    if text is not None and not topics:
        raise ConfigError(f"topic: {text!r}, expected names separated by commas")
    return topics or None


def _queue_ids(text: str | None) -> frozenset[int] | None:
    try:
        numbers = frozenset(map(int, _pieces(text)))
        if text is not None and not numbers:
            raise ValueError
    except ValueError as error:
        raise ConfigError(f"queue_id: {text!r}, expected numbers separated by commas") from error
    return numbers or None


def _tags(text: str | None) -> frozenset[bytes] | None:
    expression = parse_tag_expression(text)
    return None if expression.matches_everything else frozenset(tag.encode() for tag in expression.tags)


def _times(given: Mapping[str, str]) -> tuple[int, int]:
    zone = parse_zone(given["timezone"]) if "timezone" in given else None
    begin, end = _time(given, "from", LOWEST, zone), _time(given, "to", HIGHEST, zone)
    if begin > end:
        raise ConfigError(f"from {given['from']} is after to {given['to']}: no message can be between them")
    return begin, end


def _time(given: Mapping[str, str], name: str, default: int, zone: tzinfo | None) -> int:
    text = given.get(name)
    try:
        return default if text is None else parse_time(text, zone)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error


def _range(given: Mapping[str, str], name: str) -> tuple[int, int]:
    """`FIRST-LAST`, both included, of which either may be left out, or one number."""
    text = given.get(name, "-").strip()
    found = re.fullmatch(r"(?P<only>[0-9]{1,19})|(?P<first>[0-9]{1,19})?-(?P<last>[0-9]{1,19})?", text)
    if found is None:
        raise ConfigError(f"{name}: {text!r}, expected FIRST-LAST, FIRST-, -LAST or a number")
    first, last = found["first"] or found["only"] or LOWEST, found["last"] or found["only"] or HIGHEST
    range_ = min(int(first), HIGHEST), min(int(last), HIGHEST)
    if range_[0] > range_[1]:
        raise ConfigError(f"{name}: {text!r}, the first is greater than the last")
    return range_


def _one_of(given: Mapping[str, str], name: str, choices: tuple[str, str]) -> str:
    value = given.get(name, choices[0]).lower()
    if value not in choices:
        raise ConfigError(f"{name}: {value!r}, expected {' or '.join(choices)}")
    return value


def _starting_offset(text: str) -> str:
    if text.lower() not in ("earliest", "latest") and not re.fullmatch(r"[0-9]{1,19}", text):
        raise ConfigError(f"startingOffset: {text!r}, expected earliest, latest or a physical offset")
    return text.lower()


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not re.fullmatch(r"[1-9][0-9]{0,17}", text):
        raise ConfigError(f"{name}: {text!r}, expected a number from 1 on")
    return int(text)
