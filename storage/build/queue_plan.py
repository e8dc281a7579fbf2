"""What a rebuild of queues makes, and what it carries over: decided by a store's topics and queue directories alone.

Nothing here opens a segment. File sizes are a matter of a broker's configuration and recorded nowhere but in the files'
own lengths; which topics hold batches is in topics.json; whether a broker keeps light queues and extensions shows
by the directories that it made. Source: store-format §1.2, §2.9, §2.10, §5.7, §5.8.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from protocol.errors import ConfigError
from protocol.system_topics import LIGHT_PREFIX, SYSTEM_TOPIC_PREFIX, TOPICS_OF_EVERY_BROKER
from storage.build._queue_guesses import guess_ext, guess_light, size_in_backup
from storage.build.queue_ext_builder import END_ROOM
from storage.files.mapped_file import list_segment_files
from storage.layout.store_config import StoreConfig
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT, find_rocksdb_queues
from storage.queue.batch_consume_queue import UNIT as BATCH_UNIT
from storage.queue.consume_queue import UNIT
from storage.queue.consume_queue_ext import HEAD
from storage.queue.queue_store import LARGEST_QUEUE_ID, queue_directories

DEFAULT_FILE_SIZES: Final = {
    CONSUME_QUEUE: 300_000 * UNIT.size,
    BATCH_CONSUME_QUEUE: 300_000 * BATCH_UNIT.size,
    CONSUME_QUEUE_EXT: 48 * 1024 * 1024,
}
_UNIT_SIZES: Final = {CONSUME_QUEUE: UNIT.size, BATCH_CONSUME_QUEUE: BATCH_UNIT.size, CONSUME_QUEUE_EXT: 1}
_SMALLEST: Final = {**_UNIT_SIZES, CONSUME_QUEUE_EXT: HEAD.size + END_ROOM}
LARGEST_FILE: Final = (1 << 31) - 1
_LONGEST_NAME: Final = 255


@dataclass(frozen=True, slots=True, order=True)
class QueueKey:
    """Where a queue lies: `tree` is the directory under the store's root."""

    tree: str
    topic: str
    queue_id: int

    @property
    def path(self) -> Path:
        """The queue's directory, relative to the store's root."""
        return Path(self.tree, self.topic, str(self.queue_id))


class Verdict(Enum):
    """What becomes of a queue that the log has records of."""

    BUILD = "built"
    OTHER_TOPIC = "left alone: not one of the topics asked for"
    UNKNOWN = "dropped: topics.json does not know the topic"
    UNUSABLE = "dropped: no directory can have that name"


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Options of a rebuild of queues. Sizes are in bytes; empty `topics` means all.

    With `guess` what the queue directories no longer show is inferred from what else is left: light queues from names
    of topics and from offsets, extensions from units that point into one, sizes from backups.
    """

    topics: frozenset[str] = frozenset()
    drop_unknown_topics: bool = False
    lmq: bool = False
    ext: bool = False
    consume_queue_file_size: int | None = None
    batch_file_size: int | None = None
    ext_file_size: int | None = None
    guess: bool = False


@dataclass(frozen=True, slots=True)
class QueuePlan:
    """How a store's queues will be after a rebuild.

    `batch_topics`: their queues hold batches. `known_topics`: None where there is no topics.json. `existing`: the
    queue directories that the store has now. `misplaced`: those of them in the tree of the other kind, with which a
    broker does not start. `guesses` are sentences about what was inferred.
    """

    root: Path
    options: QueueOptions
    file_sizes: dict[str, int]
    batch_topics: frozenset[str]
    known_topics: frozenset[str] | None
    lmq: bool
    ext: bool
    existing: frozenset[QueueKey]
    misplaced: frozenset[QueueKey]
    problems: tuple[str, ...]
    guesses: tuple[str, ...] = ()

    @classmethod
    def of(cls, root: Path, options: QueueOptions = QueueOptions()) -> "QueuePlan":
        """Look at a store; raises ConfigError for options that cannot be met, StoreError for unreadable directories."""
        config = StoreConfig.load(root)
        problems = list(config.problems)
        in_rocksdb = find_rocksdb_queues(root) is not None  # and light queues in it, if there are any
        existing = frozenset(key for tree in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE) for key in _queues(root, tree))
        known = frozenset(config.topics) or None
        if known is None and options.drop_unknown_topics:
            raise ConfigError(f"{root} has no config/topics.json that can be read, so every topic would be unknown")
        batch = _batch_topics(config, existing)
        misplaced = frozenset(key for key in existing if (key.tree == BATCH_CONSUME_QUEUE) != (key.topic in batch))
        problems.extend(
            f"{root / key.path} is no place for a queue of its topic's kind, a broker refuses to start; left out"
            for key in sorted(misplaced)
            if not options.topics or key.topic in options.topics
        )
        lmq = options.lmq or any(key.topic.startswith(LIGHT_PREFIX) for key in existing) or in_rocksdb
        ext = options.ext or (root / CONSUME_QUEUE_EXT).is_dir()
        plain = (key.path for key in existing if key.tree == CONSUME_QUEUE)
        light_guess = guess_light(config) if options.guess and not lmq else ""
        ext_guess = guess_ext(root, plain) if options.guess and not ext else ""
        guesses = [guess for guess in (light_guess, ext_guess) if guess]
        sizes = _file_sizes(root, existing, options, problems)
        if options.guess:
            guesses += _guess_sizes(root, sizes)
        return cls(
            root=root,
            options=options,
            file_sizes={tree: size or DEFAULT_FILE_SIZES[tree] for tree, size in sizes.items()},
            batch_topics=batch,
            known_topics=known,
            lmq=lmq or bool(light_guess),
            ext=ext or bool(ext_guess),
            existing=existing,
            misplaced=misplaced,
            problems=tuple(problems),
            guesses=tuple(guesses),
        )

    def key(self, topic: bytes, queue_id: int) -> QueueKey | None:
        """Where a queue belongs that records name so; None where no directory can be named like that."""
        name = directory_name(topic)
        if name is None or not 0 <= queue_id <= LARGEST_QUEUE_ID:
            return None
        return QueueKey(BATCH_CONSUME_QUEUE if name in self.batch_topics else CONSUME_QUEUE, name, queue_id)

    def verdict(self, topic: bytes, queue_id: int) -> Verdict:
        """What becomes of a queue that the log has records of."""
        key = self.key(topic, queue_id)
        if key is None:
            return Verdict.UNUSABLE
        if self.options.topics and key.topic not in self.options.topics:
            return Verdict.OTHER_TOPIC
        if self.options.drop_unknown_topics and self.is_unknown(key.topic):
            return Verdict.UNKNOWN
        return Verdict.BUILD

    def is_unknown(self, topic: str) -> bool:
        """Whether topics.json would have to know a topic and does not: it was deleted, or lost (rmq#1852)."""
        if topic in TOPICS_OF_EVERY_BROKER or topic.startswith((SYSTEM_TOPIC_PREFIX, LIGHT_PREFIX)):
            return False
        return self.known_topics is not None and topic not in self.known_topics

    def carried(self, built: Collection[QueueKey], *, in_place: bool) -> list["CarriedQueue"]:
        """The existing queues that are not among `built` and must not be lost, in order.

        Those that the log has nothing of any more, with their numbers; in place also those of the topics that were not
        asked for.
        """
        kept = set(self.existing.difference(built))
        asked = self.options.topics
        others = {key for key in kept if asked and key.topic not in asked}
        silent = kept - others - self.misplaced
        if self.options.drop_unknown_topics:
            silent = {key for key in silent if not self.is_unknown(key.topic)}
        found = [CarriedQueue(key, untouched=False) for key in silent]
        if in_place:
            found += [CarriedQueue(key, untouched=True) for key in others]
        return sorted(found, key=lambda queue: queue.key)


@dataclass(frozen=True, slots=True)
class CarriedQueue:
    """A queue that stays. `untouched`: as it is, down to the last byte; else without units that nothing backs."""

    key: QueueKey
    untouched: bool


def _queues(root: Path, tree: str) -> Iterator[QueueKey]:
    for directory in queue_directories(root / tree):
        yield QueueKey(tree, directory.parent.name, int(directory.name))


def _batch_topics(config: StoreConfig, existing: Iterable[QueueKey]) -> frozenset[str]:
    """Topics whose queues hold batches, by topics.json; without it, by the directories."""
    if not config.topics:
        return frozenset(key.topic for key in existing if key.tree == BATCH_CONSUME_QUEUE)
    return frozenset(name for name, topic in config.topics.items() if topic.has_batches)


def directory_name(topic: bytes) -> str | None:
    """A record's topic as its directory is named; None for what is no name, or another topic's after decoding."""
    try:
        name = topic.decode()
    except UnicodeDecodeError:
        return None
    if name in ("", ".", "..") or "/" in name or "\0" in name or len(topic) > _LONGEST_NAME:
        return None
    return name


def _file_sizes(root: Path, existing: Iterable[QueueKey], options: QueueOptions, problems: list[str]) -> dict[str, int]:
    """Bytes of the files of each tree: as asked for, else as most files have; 0 without one."""
    keys = [*existing, *_queues(root, CONSUME_QUEUE_EXT)]
    asked = {
        # As a broker's getter does; batch sizes it takes as they are, and would never fill such a file.
        CONSUME_QUEUE: _rounded_up(options.consume_queue_file_size, UNIT.size),
        BATCH_CONSUME_QUEUE: options.batch_file_size,
        CONSUME_QUEUE_EXT: options.ext_file_size,
    }
    sizes = {}
    for tree, unit in _UNIT_SIZES.items():
        lengths = Counter(length for key in keys if key.tree == tree for length in _lengths(root / key.path))
        sizes[tree] = _checked(tree, unit, asked[tree]) or _usual(root / tree, unit, lengths, problems)
    return sizes


def _guess_sizes(root: Path, sizes: dict[str, int]) -> list[str]:
    """Put sizes of backups in the place of those that no file shows; returns what was guessed."""
    said = []
    for tree in (CONSUME_QUEUE, BATCH_CONSUME_QUEUE):
        size, backup = (0, "") if sizes[tree] else size_in_backup(root, tree)
        if size and size % _UNIT_SIZES[tree] == 0:
            sizes[tree] = size
            said.append(f"files of {tree} get {size:,} bytes, as those of {backup} have (guessed: no other is left)")
    return said


def _lengths(directory: Path) -> Iterator[int]:
    for _, path in list_segment_files(directory)[0]:
        length = os.stat(path).st_size
        if length:
            yield length


def _rounded_up(size: int | None, unit: int) -> int | None:
    return None if size is None else -(-size // unit) * unit


def _checked(tree: str, unit: int, size: int | None) -> int | None:
    """A size that was asked for; ConfigError for one that no file of the tree can have."""
    if size is None or (_SMALLEST[tree] <= size <= LARGEST_FILE and size % unit == 0):
        return size
    expected = f"{_SMALLEST[tree]} to {LARGEST_FILE}" + (f" and a multiple of {unit}" if unit > 1 else "")
    raise ConfigError(f"files of {size} bytes in {tree}/: expected {expected}")


def _usual(directory: Path, unit: int, lengths: Counter[int], problems: list[str]) -> int:
    """The length that most files have, of those that are possible; 0 for none."""
    possible = [(count, length) for length, count in lengths.items() if length % unit == 0 and length <= LARGEST_FILE]
    usual = max(possible, default=(0, 0))[1]
    others = lengths.total() - lengths[usual]
    if others:
        problems.append(
            f"{directory}: {others} of {lengths.total()} files are not {usual or DEFAULT_FILE_SIZES[directory.name]} "
            "bytes long, as the others are or a broker makes them"
        )
    return usual
