"""Configuration for a broker that takes queues in files: JSON files of the tables that a store keeps in RocksDB.

What else lies in `config/` is in files already, and a broker with `storeType=default` goes on with them.
Source: store-format §9.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from protocol.errors import ConfigError, StoreError
from protocol.offset_keys import split_offset_key
from protocol.system_topics import LIGHT_PREFIX
from spark_jobs.publish.publish import Staged
from spark_jobs.run.work_directory import WorkDirectory, write_whole
from storage.layout.store_config import (
    GROUPS,
    LIGHT_OFFSETS,
    OFFSETS,
    TOPICS,
    DatabaseTable,
    DataVersion,
    QueueOffsets,
    read_database_tables,
)
from storage.layout.store_layout import CONFIG, StoreLayout

_LIGHT_QUEUE_ID: Final = 0

Kind = TypeVar("Kind")
Content = dict[str, object]
Entries = dict[str, dict[str, object]]


def check_config(layout: StoreLayout, out: Path) -> None:
    """Raise ConfigError where tables in databases cannot be read, or --out has a configuration already."""
    try:
        files = dict(_files(layout))
    except StoreError as error:
        what = "with --without-config queues are made without the topics, groups and offsets that belong to them"
        raise ConfigError(f"{error}; {what}") from error
    if files and os.path.lexists(out / CONFIG):
        raise ConfigError(f"--out {out}: {CONFIG} exists already; remove it or choose another directory")


def stage_config(layout: StoreLayout, work: WorkDirectory) -> list[Staged]:
    """Write the tables that are in databases as files; what is to be published, nothing where none is.

    Raises StoreError for a database that cannot be read, or holds what no broker writes.
    """
    files = dict(_files(layout))
    if not files:
        return []
    directory = work.staged / CONFIG
    directory.mkdir(exist_ok=True)
    for name, content in files.items():
        write_whole(directory / name, json.dumps(content, ensure_ascii=False, indent="\t").encode("utf-8", "replace"))
    return [Staged(CONFIG, directory, synced=True)]


def _files(layout: StoreLayout) -> Iterator[tuple[str, Content]]:
    """Names and contents of the files. A broker with light queues (`enableLmq`) reads a file of offsets of its own."""
    found = read_database_tables(layout.config)
    if TOPICS in found:
        topics = _converted(found[TOPICS], "topicConfigTable", Entries)
        yield TOPICS, {"dataVersion": _version(found[TOPICS]), "topicConfigTable": topics}
    if GROUPS in found:
        groups = _converted(found[GROUPS], "subscriptionGroupTable", Entries)
        forbidden = _converted(found[GROUPS], "forbiddenTable", Entries)
        version = _version(found[GROUPS])
        yield GROUPS, {"dataVersion": version, "forbiddenTable": forbidden, "subscriptionGroupTable": groups}
    if OFFSETS in found:
        offsets = _converted(found[OFFSETS], "offsetTable", dict[str, QueueOffsets])
        pulled = _converted(found[OFFSETS], "pullOffsetTable", dict[str, QueueOffsets])
        file: Content = {"dataVersion": _version(found[OFFSETS]), "groupTopicMap": _topics_by_group(offsets)}
        yield OFFSETS, file | {"offsetTable": offsets, "pullOffsetTable": pulled}
        light = {name: table[_LIGHT_QUEUE_ID] for name, table in offsets.items() if _is_light(name, table)}
        others = {name: table for name, table in offsets.items() if name not in light}
        yield LIGHT_OFFSETS, file | {"lmqOffsetTable": light, "offsetTable": others, "pullOffsetTable": pulled}


def _topics_by_group(offsets: dict[str, QueueOffsets]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in offsets:
        names = split_offset_key(name)
        if names is not None:
            topic, group = names
            found.setdefault(group, []).append(topic)
    return found


def _is_light(name: str, table: QueueOffsets) -> bool:
    """Whether a broker with light queues keeps an offset as one number: that of a group whose name is a light one's."""
    names = split_offset_key(name)
    return names is not None and names[1].startswith(LIGHT_PREFIX) and set(table) == {_LIGHT_QUEUE_ID}


def _version(found: DatabaseTable) -> Content:
    """The version of a table; one that has none counts as unchanged since its database was written."""
    value = found.table.get("dataVersion") or {"timestamp": found.modified_timestamp}
    plain: Content = msgspec.to_builtins(_checked(found, value, DataVersion))
    return plain


def _converted(found: DatabaseTable, name: str, kind: type[Kind]) -> Kind:
    return _checked(found, found.table.get(name, {}), kind)


def _checked(found: DatabaseTable, value: object, kind: type[Kind]) -> Kind:
    try:
        # Not strict: an integer key is text after parsing.
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError as error:
        raise StoreError(found.database, what=f"holds what no broker writes: {error}") from error
