"""What a store's `config/*.json` say: topics, subscription groups, consumer offsets, delay offsets and registered
filters.

A broker writes them with Java's fastjson (integer keys without quotes), moving the old file to `NAME.json.bak` first;
a copy of a live store may have caught only that one, which a broker itself reads where the file is missing, empty or
damaged. Topics, groups and offsets may be in RocksDB instead (:mod:`storage.layout.rocksdb_config`): of a database and
a file the one written last counts. Nothing here is fatal: a file that cannot be read, and an entry that is none, are
named in `StoreConfig.problems`, and the store is served without it. But only where a file and its old one are missing
does it hold nothing. Anything else that could not be read is unknown: callers that need it call `refuse_unknown` first.
Source: store-format §9.
"""

import contextlib
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Generic, NamedTuple, Self, TypeVar

import msgspec

from protocol.errors import ProtocolError, RocketLensError, StoreError
from protocol.fastjson import parse_fastjson
from protocol.offset_keys import is_broadcast_key, offset_key, split_offset_key
from storage.extras import install_line
from storage.files.hollow_files import is_undated
from storage.files.mapped_file import FileIdentity, read_small_file
from storage.layout.rocksdb_config import (
    EXTRA,
    NoReader,
    Table,
    can_read_databases,
    database_of,
    is_undated_beside,
    read_groups,
    read_offsets,
    read_topics,
    state_of,
)
from storage.layout.unread_parts import (
    CLEANUP_POLICY,
    COMPACTED,
    ORDER_INFO,
    REQUEST_MODE,
    TOPIC_MAPPING,
    UnreadPart,
    unread_parts,
)

DIRECTORY: Final = "config"
TOPICS: Final = "topics.json"
GROUPS: Final = "subscriptionGroup.json"
DELAY_OFFSETS: Final = "delayOffset.json"
OFFSETS: Final = "consumerOffset.json"
LIGHT_OFFSETS: Final = "lmqConsumerOffset.json"
"""What a broker with light queues (`enableLmq`) writes instead; where both are, the newer one counts."""
FILTERS: Final = "consumerFilter.json"
READ, WRITE, INHERIT = 4, 2, 1
"""Bits of a topic's permission."""
QUEUE_TYPE: Final = "queue.type"
MESSAGE_TYPE: Final = "message.type"
TYPE_OF_BATCHES: Final = "BatchCQ"
LONGEST_FILE: Final = 256 * 1024 * 1024
"""Bytes of the longest configuration file that is read: the offsets of millions of queues."""
YOUNG_NS: Final = 1_000_000_000
"""Nanoseconds after a change in which another one may leave a file with the same times."""
MOST_ENDS: Final = 8
"""Places at which an object may end in front of what is no JSON."""
MOST_SAID: Final = 3
"""Consumer offsets that are named of such an object."""
_MOST_PROBLEMS: Final = 10  # that are reported about one file
_LIGHT_QUEUE_ID: Final = 0

Decoded = TypeVar("Decoded")
Int = Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)]
Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
QueueOffsets = dict[Int, Long]


class DataVersion(msgspec.Struct, frozen=True, rename="camel"):
    """How often a table was changed, and when last (ms)."""

    counter: Long = 0
    state_version: Long = 0
    timestamp: Long = 0


class TopicConfig(msgspec.Struct, frozen=True, rename="camel"):
    """One topic; `perm` is 4 to read and 2 to write and 1 to inherit, `attributes` hold `queue.type` and the like."""

    topic_name: str
    read_queue_nums: Int = 16
    write_queue_nums: Int = 16
    perm: Int = READ | WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int = 0
    order: bool = False
    attributes: dict[str, str] = {}

    @property
    def has_batches(self) -> bool:
        """Whether the topic's queues hold batches (BatchCQ), not single messages."""
        return self.attributes.get(QUEUE_TYPE) == TYPE_OF_BATCHES

    @property
    def message_type(self) -> str:
        """The type of messages that the topic takes, in upper case; NORMAL unless its attributes say another."""
        return self.attributes.get(MESSAGE_TYPE, "NORMAL").upper()

    @property
    def is_compacted(self) -> bool:
        """Whether a broker keeps the newest message of each key (`cleanup.policy=COMPACTION`)."""
        return self.attributes.get(CLEANUP_POLICY) == COMPACTED


class UsedQueues(NamedTuple):
    """Queues of one topic that groups have consumed from: ids, and whether they hold batches."""

    has_batches: bool
    queue_ids: set[int]


class GroupRetryPolicy(msgspec.Struct, frozen=True, rename="camel"):
    """How long a message that failed waits; the details of the other policies are not kept."""

    type: str = "CUSTOMIZED"


class SubscriptionGroup(msgspec.Struct, frozen=True, rename="camel"):
    """One consumer group, with a broker's defaults for missing fields."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    consume_message_orderly: bool = False
    retry_queue_nums: Int = 1
    retry_max_times: Int = 16
    group_retry_policy: GroupRetryPolicy = GroupRetryPolicy()
    broker_id: Long = 0
    which_broker_when_consume_slowly: Long = 1
    notify_consumer_ids_changed_enable: bool = True
    group_sys_flag: Int = 0
    consume_timeout_minute: Int = 15
    attributes: dict[str, str] = {}


GROUP_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]{1,120}")
"""The names under which a broker makes a group of which it has not heard (`TopicValidator.validateGroup`)."""


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file of `config/`, None for a file that cannot be read or that no broker takes."""
    try:
        return object_in(read_small_file(path, LONGEST_FILE))
    except (OSError, StoreError):
        return None


def object_in(text: bytes | None) -> dict[str, Any] | None:
    """The JSON object in a text; None where there is none."""
    try:
        value = None if text is None else parse_fastjson(text)
    except ProtocolError:
        return None
    return value if isinstance(value, dict) else None


def new_group(name: str) -> SubscriptionGroup | None:
    """The group that a broker makes when it is asked for one that it does not have; None for a name that it refuses."""
    return SubscriptionGroup(name) if GROUP_NAME.fullmatch(name) else None


class BloomFilterData(msgspec.Struct, frozen=True, rename="camel"):
    """Which bits of a message's bitmap stand for a filter, and how many bits such a bitmap has."""

    bit_num: Int
    bit_pos: list[Int]


class ConsumerFilter(msgspec.Struct, frozen=True, rename="camel"):
    """One registered SQL filter of a group on a topic; times in ms, `dead_time` 0 while the group was online."""

    consumer_group: str
    topic: str
    expression: str | None = None
    expression_type: str | None = None
    born_time: Long = 0
    dead_time: Long = 0
    client_version: Long = 0
    bloom_filter_data: BloomFilterData | None = None


class Release(NamedTuple):
    """A release of RocketMQ as tools print it, and its number in `MQVersion`."""

    name: str
    number: int


LAST_WITHOUT_ATTRIBUTES: Final = Release("V4_9_8", 409)
LAST_WITH_PULL_OFFSETS: Final = Release("V5_5_0", 513)
NEWEST: Final = Release("V5_5_1", 515)
"""The newest release that our answers were compared with."""


class TopicTable(msgspec.Struct, frozen=True):
    """What `topics.json` holds; `lacks_attributes`: it has topics, and of none the attributes, as from 5.0 on."""

    topics: dict[str, TopicConfig]
    version: DataVersion
    lacks_attributes: bool = False


class GroupTable(msgspec.Struct, frozen=True):
    """What `subscriptionGroup.json` holds."""

    groups: dict[str, SubscriptionGroup]
    version: DataVersion
    forbidden: dict[str, dict[str, int]]


class OffsetTables(msgspec.Struct, frozen=True):
    """What `consumerOffset.json` holds, or the file that a broker with light queues keeps: by `topic@group`.

    `has_pull`: it has a table of the offsets of pulls, as up to 5.5.0.
    """

    consumer: dict[str, dict[int, int]]
    pull: dict[str, dict[int, int]]
    version: DataVersion
    has_pull: bool = False


Content = TypeVar("Content")


class ConfigSource(msgspec.Struct, Generic[Content], frozen=True):
    """The content of one file, or of its backup, in a certain state.

    `state` is None where they are to be read again in any case: they were being written, or the system refused them.
    `unknown` says why the content is not known, None where it is; `left_out` names the entries that are not valid.
    `is_of_backup`: the backup's content counts.
    """

    path: Path
    state: tuple[FileIdentity | None, ...] | None
    content: Content
    problems: list[str]
    unknown: str | None = None
    left_out: frozenset[str] = frozenset()
    is_of_backup: bool = False


class StoreConfig(msgspec.Struct, frozen=True):
    """All of it. Offsets are the next to consume, by (group, topic) and queue id; `delay_offsets` by delay level.

    `sources` are what the files held, by their names; `unread` are parts of the store that are not read.
    `lacks_reader`: tables are in RocksDB, and nothing is there that reads it.
    """

    topics: dict[str, TopicConfig]
    topics_version: DataVersion
    subscription_groups: dict[str, SubscriptionGroup]
    subscription_groups_version: DataVersion
    forbidden: dict[str, dict[str, int]]
    consumer_offsets: dict[tuple[str, str], dict[int, int]]
    pull_offsets: dict[tuple[str, str], dict[int, int]]
    consumer_offsets_version: DataVersion
    delay_offsets: dict[int, int]
    filters: dict[str, dict[str, ConsumerFilter]]
    problems: list[str]
    sources: dict[str, ConfigSource[Any]] = {}
    unread: tuple[UnreadPart, ...] = ()
    lacks_reader: bool = False

    @property
    def used_queues(self) -> dict[str, UsedQueues]:
        """The queues that groups have consumed from, by topic; without ids for topics of batches that none has."""
        used = {topic: UsedQueues(True, set()) for topic, config in self.topics.items() if config.has_batches}
        for (_, topic), offsets in self.consumer_offsets.items():
            if topic in self.topics and (ids := {queue_id for queue_id, offset in offsets.items() if offset > 0}):
                used.setdefault(topic, UsedQueues(self.topics[topic].has_batches, set())).queue_ids.update(ids)
        return used

    def notes_of_topics(self, topics: Iterable[str] | None = None) -> list[str]:
        """Sentences about unread parts of topics, by default of all; they name no other ones."""
        return self._unread_of(topics, about_groups=False)

    @property
    def notes_of_groups(self) -> list[str]:
        """Sentences about what is not known of groups: files that an older one stands for, and what is not read."""
        files = (source for name in (GROUPS, OFFSETS, LIGHT_OFFSETS) if (source := self.sources.get(name)) is not None)
        return [*(problem for source in files for problem in source.problems), *self.unread_of_groups()]

    def unread_of_groups(self, topics: Iterable[str] | None = None) -> list[str]:
        """Sentences about unread parts of groups, in some topics or in all."""
        return self._unread_of(topics, about_groups=True)

    def _unread_of(self, topics: Iterable[str] | None, *, about_groups: bool) -> list[str]:
        parts = [each for each in self.unread if each.about_groups or each.topics]
        wanted = set(topics) if topics is not None and parts else None
        return [
            each.sentence(concerned)
            for each in parts
            if each.about_groups is about_groups
            and ((concerned := each.topics if wanted is None else each.topics & wanted) or not each.topics)
        ]

    def is_unknown(self, name: str) -> bool:
        """Whether the content of a file is not known."""
        return name in self.sources and self.sources[name].unknown is not None

    def refuse_unknown(self, name: str, entry: str | None = None) -> None:
        """Raise StoreError where the content of a file is not known, or that of one of its entries."""
        source = self.sources.get(name)
        if source is None:
            return
        if source.unknown is not None:
            raise StoreError(source.path, what=f"what it says is not known ({source.unknown})")
        if entry is not None and entry in source.left_out:
            raise StoreError(source.path, what=f"its entry {entry} is damaged")

    def refuse_unknown_offsets(self, group: str | None = None, topic: str | None = None) -> None:
        """Raise StoreError where it is not known how far groups have come, or one group in one topic."""
        entry = None if group is None or topic is None else offset_key(topic, group)
        for name in (OFFSETS, LIGHT_OFFSETS):
            self.refuse_unknown(name, entry)

    @property
    def has_unknown_offsets(self) -> bool:
        """Whether it is not known how far any group has come in some topic."""
        sources = (self.sources.get(OFFSETS), self.sources.get(LIGHT_OFFSETS))
        return any(source is not None and (source.unknown is not None or source.left_out) for source in sources)

    @property
    def release(self) -> Release:
        """The newest release that leaves such files: none is named in a store."""
        topics, offsets = self.sources.get(TOPICS), (self.sources.get(OFFSETS), self.sources.get(LIGHT_OFFSETS))
        if topics is not None and topics.content.lacks_attributes:
            return LAST_WITHOUT_ATTRIBUTES
        has_pull = any(source is not None and source.content.has_pull for source in offsets)
        return LAST_WITH_PULL_OFFSETS if has_pull else NEWEST

    @property
    def broadcast_offsets(self) -> dict[str, dict[int, int]]:
        """The least offsets of clients that broadcast, by the keys that the broker gave them; they are no group's."""
        source = self.sources.get(OFFSETS)
        consumer = {} if source is None else source.content.consumer
        return {key: offsets for key, offsets in consumer.items() if is_broadcast_key(key)}

    @classmethod
    def load(cls, root: Path, previous: Self | None = None) -> Self:
        """Read `config/` under a store's root; never fails. Waits for the disk.

        Files that are as they were when `previous` was loaded are not read again; where all are, it is returned itself.
        """
        directory = root / DIRECTORY
        reader = _Reader(directory, previous.sources if previous is not None else {})
        topics = reader.read(TOPICS, _topics)
        groups = reader.read(GROUPS, _groups)
        offsets = reader.read(OFFSETS, _offsets)
        light_offsets = reader.read(LIGHT_OFFSETS, _offsets_with_light)
        delay_offsets = reader.read(DELAY_OFFSETS, _delay_offsets)
        filters = reader.read(FILTERS, _ConfigFile.filters)
        mapped = reader.read(TOPIC_MAPPING, lambda file: file.names("topicQueueMappingInfoMap"))
        ordered = reader.read(ORDER_INFO, lambda file: file.names("table"))
        modes = reader.read(REQUEST_MODE, lambda file: file.names("messageRequestModeMap"))
        tables = topics, groups, offsets, light_offsets, delay_offsets, filters
        read: tuple[ConfigSource[Any], ...] = (*tables, mapped, ordered, modes)
        sources = {source.path.name: source for source in read}
        lacks_reader = _lacks_reader(directory)
        general = _problems_of(directory, lacks_reader=lacks_reader)
        problems = [*general, *(problem for source in sources.values() for problem in source.problems)]
        unread = unread_parts(
            root,
            [name for name, topic in topics.content.topics.items() if topic.is_compacted],
            mapped.content,
            sorted({names[1] for key in ordered.content if (names := split_offset_key(key)) is not None}),
            modes.content,
        )
        parts, last = tuple(unread), previous
        if last is not None and (sources, problems, parts) == (last.sources, last.problems, last.unread):
            return last
        if previous is not None and _are_those(previous, light_offsets, offsets):
            consumer_offsets, pull_offsets = previous.consumer_offsets, previous.pull_offsets
        else:
            older, newer = light_offsets.content, offsets.content
            if _modified_ns(directory / LIGHT_OFFSETS) > _modified_ns(directory / OFFSETS):
                older, newer = newer, older
            consumer_offsets = _by_group(older.consumer | newer.consumer)
            pull_offsets = _by_group(older.pull | newer.pull)
        return cls(
            topics=topics.content.topics,
            topics_version=topics.content.version,
            subscription_groups=groups.content.groups,
            subscription_groups_version=groups.content.version,
            forbidden=groups.content.forbidden,
            consumer_offsets=consumer_offsets,
            pull_offsets=pull_offsets,
            consumer_offsets_version=offsets.content.version,
            delay_offsets=delay_offsets.content,
            filters=filters.content,
            problems=problems,
            sources=sources,
            unread=parts,
            lacks_reader=lacks_reader,
        )


def _topics(file: "_ConfigFile") -> TopicTable:
    topics = file.entries("topicConfigTable", TopicConfig, "topicName")
    return TopicTable(topics, file.version(), bool(topics) and not file.has_member("topicConfigTable", "attributes"))


def _groups(file: "_ConfigFile") -> GroupTable:
    groups = file.entries("subscriptionGroupTable", SubscriptionGroup, "groupName")
    version = file.version()
    return GroupTable(groups, version, file.values("forbiddenTable", dict[str, Int]))


def _offsets(file: "_ConfigFile") -> OffsetTables:
    consumer, pull = file.values("offsetTable", QueueOffsets), file.values("pullOffsetTable", QueueOffsets)
    return OffsetTables(consumer, pull, file.version(), file.has("pullOffsetTable"))


def _offsets_with_light(file: "_ConfigFile") -> OffsetTables:
    """The offsets that a broker with light queues keeps: of all its groups, not only those of light queues."""
    consumer, pull = file.values("offsetTable", QueueOffsets), file.values("pullOffsetTable", QueueOffsets)
    return OffsetTables(consumer | file.light_offsets(), pull, DataVersion(), file.has("pullOffsetTable"))


def _delay_offsets(file: "_ConfigFile") -> dict[int, int]:
    return file.numbers("offsetTable")


_DATABASES: Final[Mapping[str, tuple[str, Callable[[Path], Table]]]] = {
    TOPICS: ("topics", read_topics),
    GROUPS: ("subscriptionGroups", read_groups),
    OFFSETS: ("consumerOffsets", read_offsets),
}
"""Databases in which a broker keeps tables instead, by its configuration, and what reads them."""


class DatabaseTable(msgspec.Struct, frozen=True):
    """A table that a database holds, in the form of a file; `modified_timestamp` is when that was written last (ms)."""

    database: Path
    table: Table
    modified_timestamp: int


def read_database_tables(directory: Path) -> dict[str, DatabaseTable]:
    """The tables that databases in `config/` hold, by the names of the files that would hold them instead.

    Raises StoreError where one cannot be read, or nothing is there that reads it.
    """
    found = {}
    for name, (table, read_table) in _DATABASES.items():
        database = database_of(directory, table, directory / name)
        if database is not None:
            newest = max((identity.modified_ns for identity in state_of(database) if identity is not None), default=0)
            found[name] = DatabaseTable(database, read_table(database), newest // 1_000_000)
    return found


def _are_those(config: StoreConfig, *sources: ConfigSource[Any]) -> bool:
    """Whether a configuration was made of these sources."""
    known = list(config.sources.values())
    return all(any(source is other for other in known) for source in sources)


def _lacks_reader(directory: Path) -> bool:
    """Whether tables are in databases, and nothing is there that reads them."""
    return not can_read_databases() and any(
        database_of(directory, table, directory / name) is not None for name, (table, _) in _DATABASES.items()
    )


def _problems_of(directory: Path, *, lacks_reader: bool) -> list[str]:
    """Return sentences about the directory as a whole."""
    problems = []
    if os.path.lexists(directory) and not os.access(directory, os.R_OK | os.X_OK, effective_ids=True):
        problems.append(f"{directory} cannot be read; the store is served without it")
    for first, second in _undated(directory):
        problems.append(f"{first} and {second} have the same, and it is not known which of them was written last")
    if lacks_reader:
        said = "topics are those of the log, groups and how far they have come are not known"
        problems.append(f"{directory} is kept in RocksDB, which is read with {install_line(EXTRA)}; without it {said}")
    return problems


def _undated(directory: Path) -> Iterator[tuple[Path, str]]:
    """Pairs of files, or of a file and databases, of which the one written last counts, without a time of each."""
    with contextlib.suppress(OSError):
        undated = [is_undated(directory / name) for name in (OFFSETS, LIGHT_OFFSETS)]  # no error: both are there
        if any(undated):
            yield directory / OFFSETS, LIGHT_OFFSETS
    for name, (table, _) in _DATABASES.items():
        if is_undated_beside(directory, table, directory / name):
            yield directory / name, "RocksDB"


def _by_group(table: Mapping[str, dict[int, int]]) -> dict[tuple[str, str], dict[int, int]]:
    """A table whose keys are `topic@group`, by (group, topic); without those of clients that broadcast."""
    found = {}
    for key, offsets in table.items():
        names = split_offset_key(key)
        if names is not None:
            topic, group = names
            found[group, topic] = offsets
    return found


class _Reader:
    """Reads files of one directory, unless they are as they were."""

    def __init__(self, directory: Path, known: Mapping[str, ConfigSource[Any]]) -> None:
        self._directory = directory
        self._known = known
        self.problems: list[str] = []
        self._unknown: list[str] = []
        self._was_refused = self._is_of_backup = False

    def read(self, name: str, convert: Callable[["_ConfigFile"], Content]) -> ConfigSource[Content]:
        """Read one file, or its `.bak` where it is missing, empty or no JSON object; empty tables where both are."""
        path = self._directory / name
        candidates = (path, path.with_name(f"{name}.bak"))
        table, read_table = _DATABASES.get(name, (None, None))
        database = None if table is None else database_of(self._directory, table, path)
        state = _state_of(candidates) if database is None else _state_of_database(database)
        known = self._known.get(name)
        if known is not None and state is not None and known.state == state:
            return known
        self.problems, self._unknown = [], []
        self._was_refused = self._is_of_backup = False
        if database is not None and read_table is not None:
            file = self._open_database(database, read_table)
        else:
            file = self._open(path, candidates)
        content = convert(file)
        if not file.is_known:
            self._unknown.append(f"{path} is damaged")
        unknown = "; ".join(self._unknown) or None
        if unknown is not None and name in (OFFSETS, LIGHT_OFFSETS):
            self.problems.append(f"{path}: how far consumer groups have come is not known; none is told an offset")
        state = None if self._was_refused else state
        left_out = frozenset(file.left_out)
        return ConfigSource(path, state, content, self.problems, unknown, left_out, self._is_of_backup)

    def _open(self, path: Path, candidates: Iterable[Path]) -> "_ConfigFile":
        for candidate in candidates:
            found = self._parse(candidate)
            if found is not None:
                self._is_of_backup = candidate is not path
                if self._is_of_backup:
                    self.problems.append(f"{path} is missing or unreadable, {candidate.name} is used instead")
                self._unknown = []
                return _ConfigFile(path, found, self.problems)
            if self._was_refused and path.name in (OFFSETS, LIGHT_OFFSETS):
                break  # it is there and may be read again soon: groups would be led back by what an older one lacks
        if path.name == TOPICS and self._directory.is_dir() and not self._unknown:
            self.problems.append(f"{path} is missing")
        return _ConfigFile(path, {}, self.problems)

    def _open_database(self, database: Path, read_table: Callable[[Path], Table]) -> "_ConfigFile":
        """A table of a RocksDB in the form of a file."""
        try:
            return _ConfigFile(database, read_table(database), self.problems)
        except NoReader as error:  # said once of all tables; the names of topics are in the log
            self._unknown += [] if read_table is read_topics else [str(error)]
        except StoreError as error:
            self._note_problem(str(error))
        self._was_refused = True
        return _ConfigFile(database, {}, self.problems)

    def _parse(self, path: Path) -> dict[object, object] | None:
        """A file's content; None where it is missing, or cannot be read, which is noted."""
        try:
            text = read_small_file(path, LONGEST_FILE)
        except FileNotFoundError:
            return None
        except StoreError as error:
            self._was_refused = True
            self._note_problem(str(error))
            return None
        try:
            value = parse_fastjson(text) if text.strip() else None
        except RocketLensError as error:
            self._note_problem(f"{path} is no JSON: {error}{_leading_object(text)}")
            return None
        if not isinstance(value, dict):
            self._note_problem(f"{path} holds no JSON object")
            return None
        return value

    def _note_problem(self, problem: str) -> None:
        self.problems.append(problem)
        self._unknown.append(problem)


class _ConfigFile:
    """One parsed file; its tables convert entry by entry, and an entry that does not is a problem and left out."""

    def __init__(self, path: Path, content: dict[object, object], problems: list[str]) -> None:
        self._path = path
        self._content = content
        self._problems = problems
        self._noted = 0
        self.is_known = True
        """Whether its tables are objects; anything else may have held anything."""
        self.left_out: set[str] = set()
        """The names of entries that are not valid."""

    def version(self) -> DataVersion:
        """The table's version, zeros where there is none."""
        return self._convert(self._content.get("dataVersion", {}), DataVersion, "dataVersion") or DataVersion()

    def has(self, table: str) -> bool:
        """Whether it has a table, if only an empty one."""
        return table in self._content

    def has_member(self, table: str, member: str) -> bool:
        """Whether any entry of a table has a member."""
        return any(isinstance(value, dict) and member in value for value in self._table(table).values())

    def entries(self, table: str, kind: type[Decoded], name_field: str) -> dict[str, Decoded]:
        """A table of objects by name; the key counts as the name where an object does not say its own."""
        named = {
            name: {name_field: name, **value} if isinstance(value, dict) else value
            for name, value in self._table(table).items()
        }
        return self._converted(table, named, kind)

    def values(self, table: str, kind: type[Decoded]) -> dict[str, Decoded]:
        """A table of values by name."""
        return self._converted(table, self._table(table), kind)

    def numbers(self, table: str) -> dict[int, int]:
        """A table of numbers by number."""
        found = self._convert(self._table(table), QueueOffsets, table)
        self.is_known = self.is_known and found is not None
        return found or {}

    def names(self, table: str) -> list[str]:
        """The names in a table that say anything."""
        return [name for name, value in self._table(table).items() if value]

    def light_offsets(self) -> dict[str, dict[int, int]]:
        """The offsets of light queues, which have one queue each."""
        found = self.values("lmqOffsetTable", Long)
        return {name: {_LIGHT_QUEUE_ID: offset} for name, offset in found.items()}

    def filters(self) -> dict[str, dict[str, ConsumerFilter]]:
        """Filters by topic and group."""
        found = {}
        for topic, value in self._table("filterDataByTopic").items():
            groups = value.get("groupFilterData") if isinstance(value, dict) else None
            found[topic] = self._converted(topic, groups if isinstance(groups, dict) else {}, ConsumerFilter)
        return found

    def _table(self, name: str) -> dict[str, object]:
        value = self._content.get(name)
        if isinstance(value, dict):
            return {str(key): entry for key, entry in value.items()}
        if value is not None:
            self._note(f"{name} is no object")
            self.is_known = False
        return {}

    def _converted(self, table: str, values: Mapping[str, object], kind: type[Decoded]) -> dict[str, Decoded]:
        found = {}
        for name, value in values.items():
            converted = self._convert(value, kind, f"{table}, {name!r}")
            if converted is not None:
                found[name] = converted
            else:
                self.left_out.add(name)
        return found

    def _convert(self, value: object, kind: type[Decoded], place: str) -> Decoded | None:
        try:
            # Not strict: an integer key is text after parsing, and foreign writers quote their numbers.
            return msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError as error:
            self._note(f"{place}: {error}")
            return None

    def _note(self, problem: str) -> None:
        self._noted += 1
        if self._noted <= _MOST_PROBLEMS:
            self._problems.append(f"{self._path}, {problem}; left out")
        elif self._noted == _MOST_PROBLEMS + 1:
            self._problems.append(f"{self._path}: there are more such entries")


def whole_object_in(text: bytes) -> int | None:
    """The byte at which a whole JSON object ends that a text begins with, None where it begins with none."""
    for end in (match.end() for match in itertools.islice(re.finditer(rb"^\}", text, re.MULTILINE), MOST_ENDS)):
        if object_in(text[:end]) is not None:
            return end
    return None


def _leading_object(text: bytes) -> str:
    """What a text that is no JSON begins with, as a clause: a whole object, where one ends before that."""
    end = whole_object_in(text)
    if end is None:
        return ""
    said = _first_offsets(object_in(text[:end]) or {})
    return f"; a whole object ends at byte {end}{said}, and what follows may be the end of an older, longer file"


def _first_offsets(content: Mapping[str, Any]) -> str:
    """A clause of how far the first groups of an object have come; "" for one that is not of consumer offsets."""
    table = content.get("offsetTable")
    if not isinstance(table, dict):
        return ""
    places = (
        f"group {names[1]} at {offset} of {names[0]} {queue_id}"
        for key, offsets in table.items()
        if (names := split_offset_key(key)) is not None and isinstance(offsets, dict)
        for queue_id, offset in offsets.items()
    )
    said = list(itertools.islice(places, MOST_SAID + 1))
    return f", with {', '.join([*said[:MOST_SAID], *['…'] * (len(said) > MOST_SAID)])}" if said else ""


def _state_of(paths: Iterable[Path]) -> tuple[FileIdentity | None, ...] | None:
    """The states that files are in, None while one is so young that the next change may leave its times the same."""
    states = tuple(map(_identity_of, paths))
    newest = max((state.modified_ns for state in states if state is not None), default=0)
    return None if abs(time.time_ns() - newest) < YOUNG_NS else states


def _state_of_database(database: Path) -> tuple[FileIdentity | None, ...] | None:
    """The state that a database is in, None as for files, and where it cannot be looked at."""
    try:
        states = state_of(database)
    except StoreError:
        return None
    newest = max((state.modified_ns for state in states if state is not None), default=0)
    return None if abs(time.time_ns() - newest) < YOUNG_NS else states


def _modified_ns(path: Path) -> int:
    """When a file was written, 0 for one that is not there: a broker writes the one it uses every five seconds."""
    found = _identity_of(path)
    return 0 if found is None else found.modified_ns


def _identity_of(path: Path) -> FileIdentity | None:
    try:
        return FileIdentity.of(os.stat(path))
    except OSError:
        return None
