"""The files of `config/`, and consumer offsets compared with the queues."""

import os
import shlex
from pathlib import Path

from protocol.errors import StoreError
from protocol.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC
from storage.amounts import counted
from storage.doctor._opened_store import OpenedStore
from storage.doctor._rescue_line import rescue_line
from storage.doctor.finding import Finding, Findings, Kind, Severity
from storage.extras import install_line
from storage.files.mapped_file import read_small_file
from storage.layout.rocksdb_config import EXTRA
from storage.layout.store_config import LONGEST_FILE, object_in, read_object, whole_object_in
from storage.layout.unread_parts import ORDER_INFO, REQUEST_MODE, TOPIC_MAPPING

FILES = (
    "topics.json",
    "subscriptionGroup.json",
    "consumerOffset.json",
    "lmqConsumerOffset.json",
    "delayOffset.json",
    "consumerFilter.json",
    TOPIC_MAPPING,
    ORDER_INFO,
    REQUEST_MODE,
)
OLDER_USED = "the older state in its .bak counts, here and for a broker that starts"
SET_BACK = "nothing to do: a broker leads the group back to the queue when it asks for messages"
MOST_OFFSETS = 50_000
"""Consumer offsets that are looked at."""


def check_config(store: OpenedStore) -> list[Finding]:
    """Report files that are missing or cannot be read, topics without an entry, and offsets beyond their queues."""
    findings, directory = Findings("config"), store.layout.config
    for part in store.config.unread:
        remedy = "no fix is needed; what is not read is listed in docs/stores.md"
        findings.add(Kind.NOT_COMPARED, Severity.INFO, store.layout.root / part.name, part.how, part.meaning(), remedy)
    if not directory.is_dir():
        _add_missing(store, findings)
        return findings.listed()
    lacks_reader = store.config.lacks_reader
    for problem in store.config.problems:
        path = _path_in(problem, directory)
        if lacks_reader and not os.path.isfile(path):
            found = problem.removeprefix(path).lstrip(":, ")
            findings.add(
                Kind.NOT_COMPARED,
                Severity.INFO,
                path,
                found,
                "a broker reads it, and nothing is wrong",
                install_line(EXTRA),
            )
            continue
        source = store.config.sources.get(os.path.basename(path))
        is_older = source is not None and source.is_of_backup
        meaning = (
            OLDER_USED if is_older else "its content is not known here, and a broker that starts reads the same file"
        )
        remedy = _remedy(store, Path(path))
        findings.add(Kind.CONFIG, Severity.WARNING, path, problem.removeprefix(path).lstrip(":, "), meaning, remedy)
    unknown = [topic for topic in store.queues.topics() if topic not in store.config.topics]
    if unknown and store.config.topics:
        shown = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        found = f"{counted(len(unknown), 'topic has', 'topics have')} queues but no entry: {shown}"
        meaning = "deleted topics, or light queues; they are served as they are"
        findings.add(Kind.CONFIG, Severity.INFO, directory / "topics.json", found, meaning, "no fix is needed")
    _check_filters(store, findings)
    _check_offsets(store, findings)
    return findings.listed()


def _add_missing(store: OpenedStore, findings: Findings) -> None:
    """Report that there is no configuration: a fault where a broker ran here, or something waits for its time."""
    waiting = [topic for topic in (SCHEDULE_TOPIC, TIMER_TOPIC) if topic in store.queues.topics()]
    is_a_brokers = store.state.is_live or store.state.has_crashed
    meaning = "topics are taken from the queues, and groups start where their clients say"
    remedy = "copy it from a slave or a backup"
    if waiting:
        meaning += f"; which messages in {' and '.join(waiting)} are delivered is not known"
    elif not is_a_brokers:
        remedy = f"no fix is needed to read the store; before a broker starts on it, {remedy}"
    severity = Severity.WARNING if waiting or is_a_brokers else Severity.INFO
    findings.add(Kind.CONFIG, severity, store.layout.config, "is missing", meaning, remedy)


def _check_filters(store: OpenedStore, findings: Findings) -> None:
    """Saved filters that a broker's start throws away: all of them, if one has no bits in bitmaps (filters §4)."""
    saved = [each for groups in store.config.filters.values() for each in groups.values()]
    without = sum(each.bloom_filter_data is None for each in saved)
    if without:
        found = f"{counted(without, 'filter')} of {len(saved)} without bloomFilterData, as a broker 5.5.1 saves them"
        meaning = (
            "a broker that starts throws all saved filters away, and refuses pulls by them until their groups' next "
            "heartbeats; here they are read"
        )
        remedy = (
            "let the groups' consumers run on, whose heartbeats bring their filters back within 30 seconds of a start; "
            "with enableCalcFilterBitMap=true in its broker.conf a broker saves them so that a start keeps them"
        )
        path = store.layout.config / "consumerFilter.json"
        findings.add(Kind.CONFIG, Severity.WARNING, path, found, meaning, remedy)


def _remedy(store: OpenedStore, path: Path) -> str:
    """What makes a damaged file whole: the object that it begins with, which is newer than its `.bak`; else that.

    Without either a rescue, which keeps what of it is complete in front. The file as it was is kept beside it.
    """
    backup = path.with_name(path.name + ".bak")
    if store.state.is_live or not (path.is_file() or backup.is_file()):
        return "copy it from a slave or a backup"
    end = _end_of_object(path)
    if end is not None:
        return _with_copy(path, ["truncate", "-s", str(end), str(path)])
    if path.is_file() and read_object(backup) is not None:
        return _with_copy(path, ["cp", "-p", str(backup), str(path)])
    return rescue_line(store)


def _end_of_object(path: Path) -> int | None:
    """The byte at which a whole object ends that a damaged file begins with, None where it begins with none."""
    try:
        text = read_small_file(path, LONGEST_FILE)
    except (OSError, StoreError):
        return None
    return whole_object_in(text) if object_in(text) is None else None


def _with_copy(path: Path, command: list[str]) -> str:
    """A line for a shell that changes a file by a command, and keeps it first as it was, under a name that is free."""
    kept = f"{path}.damaged"
    number = 2
    while os.path.lexists(kept):
        kept, number = f"{path}.damaged-{number}", number + 1
    return f"{shlex.join(['cp', '-p', str(path), kept])} && {shlex.join(command)}"


def _path_in(problem: str, directory: Path) -> str:
    """The file that a problem's sentence starts with, or the directory."""
    names = sorted({*FILES, *(f"{name}.bak" for name in FILES)}, key=len, reverse=True)
    return next((path for name in names if problem.startswith(path := str(directory / name))), str(directory))


def _check_offsets(store: OpenedStore, findings: Findings) -> None:
    """Groups that have consumed more than a queue ever had."""
    path = store.layout.config / "consumerOffset.json"
    left = MOST_OFFSETS
    for (group, topic), offsets in store.config.consumer_offsets.items():
        for queue_id, offset in offsets.items():
            left -= 1
            if left < 0:
                return
            end = _end_of(store, topic, queue_id)
            if end is not None and offset > end:
                found = f"group {group} is at offset {offset} of {topic} {queue_id}, which ends at {end}"
                meaning = "the queue lost messages, or the file is newer than the queues: the group is set back"
                severity = Severity.INFO if store.state.is_live else Severity.WARNING
                findings.add(Kind.CONSUMER_OFFSET, severity, path, found, meaning, SET_BACK)


def _end_of(store: OpenedStore, topic: str, queue_id: int) -> int | None:
    try:
        queue = store.queues.queue(topic, queue_id)
        return None if queue is None else queue.max_offset
    except StoreError:
        return None
