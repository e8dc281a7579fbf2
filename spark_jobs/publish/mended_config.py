"""Configuration on which a broker starts: files of a new store's `config/` that are no JSON are exchanged.

A broker that finds one damaged takes its `.bak`, and does not start where that is damaged too (store-format §9). Here a
damaged file becomes its `.bak`, or else what of it is complete in front; what is damaged beyond that is left out.
A broker from 5.0 on does not start on queues of batches either whose topic is not said to hold any (store-format §6.2).
"""

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from protocol.errors import StoreError
from protocol.fastjson import leading_part
from protocol.system_topics import system_topic
from spark_jobs.run.work_directory import write_whole
from storage.files.mapped_file import read_small_file
from storage.files.own_directories import remove_path
from storage.layout.store_config import (
    LONGEST_FILE,
    QUEUE_TYPE,
    READ,
    TOPICS,
    TYPE_OF_BATCHES,
    WRITE,
    object_in,
    read_object,
)
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from storage.queue.queue_store import queue_directories

_TABLE: Final = "topicConfigTable"
_JSON: Final = ".json"
_BACKUP: Final = ".bak"


def mend_config(directory: Path) -> list[str]:
    """Exchange what is damaged in a `config/` that is our own; a sentence for each that was not as it should be."""
    if not directory.is_dir():
        if not directory.exists():
            return []
        remove_path(directory)
        return [f"{directory.name} was no directory: a broker starts without what it should hold"]
    names = sorted({name.removesuffix(_BACKUP) for name in os.listdir(directory)})
    return [note for name in names if name.endswith(_JSON) and (note := _mend(directory / name))]


def say_topics(config: Path, root: Path, notes: Sequence[str]) -> list[str]:
    """Have topics.json say what the queues of a store of our own show; a sentence for each kind of what it did not.

    These are topics with queues of batches that it does not say to hold any, and, where by `notes` it was exchanged for
    less or is missing, all topics with queues that are no broker's own. They get as many queues as there are, and else
    what a broker gives a new topic.
    """
    path = config / TOPICS
    whole: dict[str, Any] = read_object(path) or {}
    table = whole.get(_TABLE)
    topics: dict[str, Any] = dict(table) if isinstance(table, dict) else {}
    batches, plain = list[str](), list[str]()
    for topic, queues in _queue_counts(root / BATCH_CONSUME_QUEUE):
        entry = topics.get(topic)
        entry = entry if isinstance(entry, dict) else {}
        if _attributes(entry).get(QUEUE_TYPE) != TYPE_OF_BATCHES:
            attributes = _attributes(entry) | {QUEUE_TYPE: TYPE_OF_BATCHES}
            topics[topic] = _new_entry(topic, queues) | entry | {"attributes": attributes}
            batches.append(topic)
    if config.is_dir() and (not path.exists() or any(note.startswith(f"config/{TOPICS} ") for note in notes)):
        for topic, queues in _queue_counts(root / CONSUME_QUEUE):
            if topic not in topics and system_topic(topic) is None and not topic.startswith("%"):
                topics[topic] = _new_entry(topic, queues)
                plain.append(topic)
    if not batches and not plain:
        return []
    config.mkdir(exist_ok=True)
    write_whole(path, _as_json(whole | {_TABLE: topics}))
    sentences = (
        ("did not say that the queues of these topics hold batches, and does now", batches),
        ("gets the topics of which there are queues, with as many and a new topic's permissions", plain),
    )
    return [f"config/{TOPICS} {what}: {', '.join(named)}" for what, named in sentences if named]


def _queue_counts(tree: Path) -> Iterator[tuple[str, int]]:
    """The topics that have queues in a tree, and how many queues they need for these."""
    counts: dict[str, int] = {}
    for directory in queue_directories(tree) if tree.is_dir() else ():
        topic = directory.parent.name
        counts[topic] = max(counts.get(topic, 0), int(directory.name) + 1)
    yield from sorted(counts.items())


def _new_entry(topic: str, queues: int) -> dict[str, Any]:
    """What a broker writes of a new topic."""
    entry = {"topicName": topic, "readQueueNums": queues, "writeQueueNums": queues, "perm": READ | WRITE}
    return entry | {"order": False, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "attributes": {}}


def _attributes(entry: dict[str, Any]) -> dict[str, Any]:
    attributes = entry.get("attributes")
    return attributes if isinstance(attributes, dict) else {}


def _as_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent="\t").encode("utf-8", "replace")


def _mend(path: Path) -> str:
    old = path.with_name(path.name + _BACKUP)
    text, old_text = _read(path), _read(old)
    is_sound, is_old_sound = object_in(text) is not None, object_in(old_text) is not None
    if not is_old_sound:
        remove_path(old)
    if is_sound:
        return ""
    what = f"config/{path.name} {'was no whole JSON' if path.exists() else 'is missing'}"
    if path.is_dir():
        remove_path(path)
    if is_old_sound and old_text is not None:
        write_whole(path, old_text)
        return f"{what}: {old.name} took its place; what was written since is not in it"
    for candidate in (text, old_text):
        part = None if candidate is None else leading_part(candidate)
        if isinstance(part, dict) and part:
            write_whole(path, _as_json(part))
            return f"{what}: what of it is complete in front was kept; what followed is lost"
    path.unlink(missing_ok=True)
    return f"{what}, and nothing of it or of {old.name} can be read: a broker starts without it"


def _read(path: Path) -> bytes | None:
    """Read a file; None if it is missing, or longer than any broker writes."""
    try:
        return read_small_file(path, LONGEST_FILE)
    except (FileNotFoundError, StoreError):
        return None
