"""Whether a broker starts on a store at all: from names and sizes of files, and from what `config/` holds.

A broker reads `config/` first, then loads the files of the log, of all queues, of the timers and of the index. It ends
at the first that it does not take, before any recovery: a file of another size than the others of its stream, a name
that is no number, a queue of batches whose topic is not said to hold any, a JSON file that does not parse whose `.bak`
does not either. An empty file is deleted where it is the last one of its directory, which brokers before 5.1.4 refuse.

Brokers take sizes from their configuration, which is not in the store: those that most files have are believed.
Sources: MappedFileQueue.doLoad, ConsumeQueueStore.load, IndexService.load, StoreCheckpoint, TimerWheel,
ConfigManager.load and BrokerController.initialize of 5.5.0; MappedFileQueue and IndexService of 4.9.8. Proven with the
store classes of both, and with the broker 5.5.0.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from protocol.errors import RocketLensError
from storage.files.mapped_file import LARGEST_OFFSET
from storage.layout.store_config import read_object
from storage.layout.store_layout import StoreLayout
from storage.layout.timer_log import TIMER_LOG, TIMER_WHEEL, WHEEL_BYTES
from storage.log.segment_list import segment_size
from storage.queue.queue_store import queue_directories
from storage.recovery.start_place import Broker

BACKUP: Final = ".bak"

LOADED_CONFIG: Final = (
    "topics.json",
    "topicQueueMapping.json",
    "consumerOffset.json",
    "subscriptionGroup.json",
    "consumerFilter.json",
    "consumerOrderInfo.json",
    "delayOffset.json",
    "timermetrics",
)
"""The files of `config/` without which a broker from 5.0 on does not start if neither they nor their backups parse."""

OLD_CONFIG: Final = tuple(set(LOADED_CONFIG) - {"topicQueueMapping.json", "consumerOrderInfo.json", "timermetrics"})
"""Those of 4.x."""

FROM_5: Final = (Broker.FROM_5_5, Broker.FROM_5_3_1, Broker.FROM_5_0)
OLD: Final = (Broker.UP_TO_4_9,)
EVERY: Final = (*FROM_5, *OLD)


class Refusal(NamedTuple):
    """What a broker does not take, and which brokers."""

    path: Path
    found: str
    brokers: tuple[Broker, ...]


class _ListedFile(NamedTuple):
    """An entry of a directory as Java sees it: size 0 if the size cannot be read."""

    path: Path
    size: int
    is_directory: bool


def foretell_refusals(
    layout: StoreLayout, has_batches: Callable[[str], bool] | None, *, is_dispatching: bool = False
) -> list[Refusal]:
    """What makes brokers end while they start, in the order in which they meet it; none where all start.

    `has_batches` says whether topics.json says of a topic that its queues hold batches; None where it is not known.
    `is_dispatching`: the recovery puts messages into queues and index again.
    """
    return [
        *_of_config(layout.config),
        *_of_wheel(layout.root / TIMER_WHEEL),
        *_of_stream(_files(layout.commit_log_directories), _segment_size, EVERY),
        *_of_queues(layout.consume_queue, EVERY),
        *_of_types(layout.consume_queue, has_batches, is_of_batches=False),
        *_of_queues(layout.batch_consume_queue, FROM_5),
        *_of_types(layout.batch_consume_queue, has_batches, is_of_batches=True),
        *_of_checkpoint(layout.checkpoint),
        *_of_index(layout.index, is_dispatching=is_dispatching),
        *_of_stream(_files([layout.root / TIMER_LOG]), _usual_size, FROM_5),
    ]


def _of_config(directory: Path) -> Iterator[Refusal]:
    for name in LOADED_CONFIG:
        path = directory / name
        backup = path.with_name(name + BACKUP)
        if _size(backup) and read_object(path) is None and read_object(backup) is None:
            brokers = EVERY if name in OLD_CONFIG else FROM_5
            yield Refusal(path, f"neither it nor {backup.name} is JSON", brokers)


def _of_wheel(path: Path) -> Iterator[Refusal]:
    size = _size(path)
    if size not in (0, WHEEL_BYTES):
        yield Refusal(path, f"has {size} bytes instead of {WHEEL_BYTES}", FROM_5)


def _of_checkpoint(path: Path) -> Iterator[Refusal]:
    if path.is_dir():
        yield Refusal(path, "is a directory", EVERY)


def _of_index(directory: Path, *, is_dispatching: bool) -> Iterator[Refusal]:
    """A directory that is named as an index file; brokers before 5.1 load no file behind it, and start.

    Where a file lies in the place of the index, the first message that is put into it ends the start.
    """
    if is_dispatching and directory.is_file():
        yield Refusal(directory, "is a file, in which no index file can be made", EVERY)
    for file in _files([directory]):
        if file.is_directory and _is_number(file.path.name):
            yield Refusal(file.path, "is a directory", FROM_5)


def _of_queues(tree: Path, brokers: Sequence[Broker]) -> Iterator[Refusal]:
    """Yield the refusals of files of queues, which have one size."""
    queues = [_files([path]) for path in _queues(tree)]
    usual = _usual_size([file for files in queues for file in files])
    for files in queues:
        yield from _of_stream(files, lambda _: usual, brokers)


def _of_types(tree: Path, has_batches: Callable[[str], bool] | None, *, is_of_batches: bool) -> Iterator[Refusal]:
    """Queues in another tree than their topic's: of a topic that topics.json does not name, they are plain."""
    if has_batches is None:
        return
    for topic in sorted({path.parent.name for path in _queues(tree)}):
        if has_batches(topic) != is_of_batches:
            held = "batches" if is_of_batches else "no batches"
            yield Refusal(tree / topic, f"its queues hold {held}, which topics.json does not say of it", FROM_5)


def _of_stream(
    files: Sequence[_ListedFile], size_of: Callable[[Sequence[_ListedFile]], int], brokers: Sequence[Broker]
) -> Iterator[Refusal]:
    """Yield the refusals of the files that make up one stream, in the order of names."""
    usual = size_of(files)
    old: list[Broker] = [each for each in brokers if each in OLD]
    for number, file in enumerate(files):
        refusing = list(brokers)
        if file.is_directory:
            refusing, found = old, "is a directory"
        elif not file.size:
            is_last = number == len(files) - 1
            refusing, found = (old if is_last else refusing), "is empty"
        elif file.size != usual:
            found = f"has {file.size} bytes, and the others {usual}"
        elif not _is_number(file.path.name):
            found = "has a name that is no number"
        else:
            continue
        if refusing:
            yield Refusal(file.path, found, tuple(refusing))


def _files(paths: Iterable[Path]) -> list[_ListedFile]:
    """Everything in some directories, by name order."""
    found: list[_ListedFile] = []
    for path in paths:
        try:
            with os.scandir(path) as entries:
                found += [_ListedFile(Path(each.path), _size(Path(each.path)), each.is_dir()) for each in entries]
        except OSError:  # missing, a file, or not for us: the checks name it
            continue
    return sorted(found, key=lambda file: file.path.name)


def _queues(tree: Path) -> Iterator[Path]:
    try:
        yield from queue_directories(tree)
    except RocketLensError:  # named by the checks of queues
        return


def _usual_size(files: Sequence[_ListedFile]) -> int:
    sizes = Counter(file.size for file in files if file.size and not file.is_directory)
    return max(sizes, key=lambda size: (sizes[size], size), default=0)


def _segment_size(files: Sequence[_ListedFile]) -> int:
    named = [(int(file.path.name), file.size) for file in files if not file.is_directory and _is_number(file.path.name)]
    return segment_size(sorted(named))


def _is_number(name: str) -> bool:
    """Whether Java reads a name as a number of 64 bits."""
    digits = name[1:] if name[:1] in ("+", "-") else name
    return digits.isdecimal() and int(digits) <= LARGEST_OFFSET + (name[:1] == "-")


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
