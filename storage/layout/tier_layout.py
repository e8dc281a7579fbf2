"""Where a broker's tiered files lie (`TieredMessageStore` with `PosixFileSegment`), and which files its metadata names.

    TIER/HASH_CLUSTER/BROKER/TOPIC/QUEUE/COMMIT_LOG/     records, one after the other, of one queue
    TIER/HASH_CLUSTER/BROKER/TOPIC/QUEUE/CONSUME_QUEUE/  units of 20 bytes that point into that log
    TIER/HASH_CLUSTER/BROKER/rmq_sys_INDEX/0/INDEX/      not read: keys are found in the records

TIER is the broker's `tieredStoreFilePath`, HASH the first eight digits of the cluster's MD5. Directory names are looked
at, no file is opened but the metadata: `config/tieredStoreMetadata.json` in the broker's own store, which a copy of the
tier mostly lacks. The files say all that is needed; the metadata says which files there ought to be.

Source: other-formats §4.
"""

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from protocol.errors import NotAStore, ProtocolError, StoreError
from protocol.fastjson import parse_fastjson
from storage.files.mapped_file import is_directory, list_directory, read_small_file, tier_file_name

TIER_LOG: Final = "COMMIT_LOG"
TIER_QUEUE: Final = "CONSUME_QUEUE"
TIER_INDEX_TOPIC: Final = "rmq_sys_INDEX"
TIER_METADATA: Final = "tieredStoreMetadata.json"
TIER_EXPECTED: Final = f"tiered files of one broker: {TIER_QUEUE}/ and {TIER_LOG}/ in HASH_CLUSTER/BROKER/TOPIC/QUEUE/"

_LARGEST_METADATA: Final = 256 * 1024 * 1024
_DELETED: Final = 2
"""The status of a file that the broker has removed, or is about to."""
_TABLES: Final = (("commitLogFileSegmentTable", TIER_LOG), ("consumeQueueFileSegmentTable", TIER_QUEUE))
_MOST_NAMED: Final = 5
_LEVELS: Final = 2
"""Directories that may lie between the one that is given and the broker's own."""


@dataclass(frozen=True, slots=True)
class TierLayout:
    """The directory of one broker's tiered files, by topics; ``root`` is the directory that was given.

    ``metadata`` is where the broker's metadata would lie, None where that is not known. ``cluster`` is empty where the
    directory of the broker itself was given.
    """

    root: Path
    broker: Path
    cluster: str = ""
    metadata: Path | None = None

    @property
    def broker_name(self) -> str:
        """The name of the broker."""
        return self.broker.name

    def topics(self) -> frozenset[str]:
        """The topics that have a directory. Raises StoreError where they cannot be listed, or are gone."""
        if not self.broker.is_dir():
            raise StoreError(self.broker, what="is gone: the disk with the tier was taken away")
        return frozenset(name for name in _directories(self.broker) if name != TIER_INDEX_TOPIC)

    def queue_ids(self, topic: str) -> frozenset[int]:
        """The ids of the queues that a topic has directories of. Raises StoreError where they cannot be listed."""
        names = (entry.name for entry in list_directory(self.broker / topic))
        return frozenset(int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 11)

    def queue_directory(self, topic: str, queue_id: int) -> Path:
        """The directory of one queue, whether it is there or not."""
        return self.broker / topic / str(queue_id)


def recognise_tier(root: Path, metadata: Path | None = None) -> TierLayout:
    """Find the one broker whose tiered files lie in a directory: a broker's `tieredStoreFilePath` or a part of it.

    Raises NotAStore where there is none, or where there are several.
    """
    found = list(_brokers(root, _LEVELS))
    if not found:
        names = sorted(os.listdir(root))[:_MOST_NAMED] if root.is_dir() else []
        says = f"no such files among {', '.join(names)}" if names else "nothing there"
        raise NotAStore(root, expected=TIER_EXPECTED, found=says)
    if len(found) > 1:
        listed = ", ".join(str(path.relative_to(root)) for path in found[:_MOST_NAMED])
        several = f"those of {len(found)} brokers: {listed}; give one of them"
        raise NotAStore(root, expected=TIER_EXPECTED, found=several)
    broker = found[0]
    parent, _, cluster = (broker.parent.name if broker != root else root.absolute().parent.name).partition("_")
    own = broker / TIER_METADATA if metadata is None else metadata
    return TierLayout(root, broker, cluster if parent == _hash(cluster) else "", own)


def is_tier(root: Path) -> bool:
    """Whether a directory holds tiered files of a broker, or of several; False too where it cannot be listed."""
    try:
        return next(_brokers(root, _LEVELS), None) is not None
    except StoreError:
        return False


@dataclass(frozen=True, slots=True)
class LackingFile:
    """A file of a tier that has fewer bytes than the metadata says (``size``), or that is missing.

    ``base`` is the offset at which it begins in its log or queue, ``there`` its own size in bytes, None if missing.
    """

    path: Path
    metadata: Path
    base: int
    size: int
    there: int | None

    @property
    def is_log(self) -> bool:
        """Whether records were in it, not units."""
        return self.path.parent.name == TIER_LOG

    def sentence(self) -> str:
        """For an operator, without what becomes of the rest."""
        if self.there is None:
            return f"{self.path} is missing, of which {self.metadata} says that it has {self.size} bytes"
        return f"{self.path} has {self.there} bytes, of which {self.metadata} says that it has {self.size}"


def metadata_problems(tier: TierLayout) -> list[str]:
    """Sentences about the files that the metadata names and the tier lacks, and about metadata that cannot be read.

    None where there is no metadata: the files alone are served then. Reads names and sizes.
    """
    try:
        problems = [f"{each.sentence()}; the rest is served" for each in lacking_files(tier)]
    except StoreError as error:
        return [f"{error}; the tier is served by its files alone, and files that it lacks are not noticed"]
    more = len(problems) - _MOST_NAMED
    return problems if more <= 0 else [*problems[:_MOST_NAMED], f"{more} more of the tier's files are missing or cut"]


def lacking_files(tier: TierLayout) -> list[LackingFile]:
    """The files that the metadata names and of which the tier lacks bytes; none where there is no metadata.

    Reads names and sizes. Raises StoreError for metadata that cannot be read.
    """
    path = tier.metadata
    if path is None:
        return []
    try:
        content = _parsed(path)
    except FileNotFoundError:
        return []
    found: list[LackingFile] = []
    for table, kind in _TABLES:
        queues = content.get(table)
        for place, segments in sorted(queues.items()) if isinstance(queues, Mapping) else ():
            if isinstance(segments, Mapping):
                found += _lacking(tier, path, f"{place}/{kind}", segments)
    return found


def _lacking(tier: TierLayout, metadata: Path, place: str, segments: Mapping[object, object]) -> Iterator[LackingFile]:
    """The files of the units or of the log of one queue that are missing, or shorter than the metadata says."""
    broker, _, queue = place.partition("/")
    if broker != tier.broker_name or not queue or ".." in queue.split("/") or queue.startswith("/"):
        return
    for segment in segments.values():
        if not isinstance(segment, Mapping) or segment.get("status") == _DELETED:
            continue
        base, size = segment.get("baseOffset"), segment.get("size")
        if not isinstance(base, int) or not isinstance(size, int) or base < 0 or size <= 0 or base > 2**63 - 1:
            continue
        path = tier.broker / queue / tier_file_name(base)
        try:
            there = os.stat(path).st_size
        except (OSError, ValueError):  # a name that no file can have, too
            there = None
        if there is None or there < size:
            yield LackingFile(path, metadata, base, size, there)


def _parsed(path: Path) -> Mapping[object, object]:
    """The metadata as it is in its file; raises StoreError if it is not valid."""
    text = read_small_file(path, _LARGEST_METADATA)
    try:
        content = parse_fastjson(text)
    except ProtocolError as error:
        raise StoreError(path, what=f"is damaged: {error}") from error
    if not isinstance(content, Mapping):
        raise StoreError(path, what="is no JSON object")
    return content


def _brokers(directory: Path, levels: int) -> Iterator[Path]:
    """The directories of brokers in one, which may be such itself, down to so many levels below it."""
    names = sorted(_directories(directory))
    if any(_has_queues(directory / name) for name in names):
        yield directory
    elif levels:
        for name in names:
            yield from _brokers(directory / name, levels - 1)


def _has_queues(topic: Path) -> bool:
    """Whether a directory has that of a queue with tiered files."""
    return any(
        name.isdigit() and ((topic / name / TIER_QUEUE).is_dir() or (topic / name / TIER_LOG).is_dir())
        for name in _directories(topic)
    )


def _directories(path: Path) -> list[str]:
    """The names of the directories in a directory; none where it is missing or a file."""
    if not path.is_dir():
        return []
    return [entry.name for entry in list_directory(path) if is_directory(entry)]


def _hash(cluster: str) -> str:
    return hashlib.md5(cluster.encode(), usedforsecurity=False).hexdigest()[:8]
