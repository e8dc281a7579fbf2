"""Good stores for trials with damage, each with the truth about its messages, and copies of them. Uses none of ours."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from oracles import V2_MAGIC
from store_writer import START_TIMESTAMP, StoreWriter, Written

PAGE = 4096
LIGHT = ("%LMQ%alpha", "%LMQ%beta")
TAGS = ("red", "green", "blue")
Queue = tuple[str, int]


@dataclass(frozen=True)
class Message:
    """What is true of one record of the log. `places` has its first offset, and the one behind it, of each queue."""

    physical_offset: int
    record: bytes
    topic: str
    body: bytes
    store_timestamp: int
    keys: tuple[str, ...] = ()
    unique_key: str = ""
    tag: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    places: Mapping[Queue, tuple[int, int]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        return self.physical_offset + len(self.record)


@dataclass(frozen=True)
class GoodStore:
    """A store without a fault. `stale` are records that lie behind the end of a log that was cut and written on."""

    shape: str
    root: Path
    messages: tuple[Message, ...]
    segment_size: int
    end: int
    index_slots: int
    queue_file_size: int
    stale: tuple[Written, ...] = ()
    offsets: Mapping[str, Mapping[int, int]] = field(default_factory=dict)

    def of_queue(self, queue: Queue) -> list[Message]:
        found = [message for message in self.messages if queue in message.places]
        return sorted(found, key=lambda message: message.places[queue])

    @property
    def queues(self) -> list[Queue]:
        return sorted({queue for message in self.messages for queue in message.places})


@dataclass
class Allowance:
    """What a server may leave out, or cannot know, after damage to a store.

    `unqueued` are messages, by queue and physical offset, whose units are gone where nothing in the queue shows that
    there were some: they need not come from it if the doctor names the place. `unknown` are queues that cannot be
    listed or read: the answer may remain that nobody knows them. Without `has_true_times` a store time was changed,
    without `has_tags` a queue does not know the tags of its messages. With `repeats` a message may come once more right
    before its own place: a rebuild puts units of neighbours in the place of those of lost messages (docs/rebuild.md).
    """

    unqueued: set[tuple[Queue, int]] = field(default_factory=set)
    unknown: set[Queue] = field(default_factory=set)
    has_true_times: bool = True
    has_tags: bool = True
    repeats: bool = False


class Author:
    def __init__(self, root: Path, *, is_old: bool = False, **options: object) -> None:
        """`is_old`: what a broker of 4.x writes, all records of the first version."""
        self.is_old = is_old
        sizes = {
            "segment_size": 8192, "index_slots": 31, "index_entries": 150, "queue_file_size": 20 * 16,
            "batch_queue_file_size": 46 * 4, "ext_file_size": 512,
        }  # fmt: skip
        self.options = sizes | options
        self.writer = StoreWriter(root, **self.options)  # type: ignore[arg-type]
        self.messages: list[Message] = []
        self.light = dict.fromkeys(LIGHT, 0)
        self.writer.consumer_offsets = {"Orders@readers": {0: 7, 1: 3}, "Päyments@readers": {0: 5}}
        for name in LIGHT:
            self.writer.set_topic(name)

    def _note(self, written, count, body, also, **named) -> None:
        places = {(written.topic, written.queue_id): (written.queue_offset, written.queue_offset + count)} | also
        where = (written.physical_offset, written.record, written.topic, body, written.store_timestamp)
        self.messages.append(Message(*where, places=places, **named))

    def write(self, number: int, topic: str, queue_id: int, *, later_ms: int = 0, light: bool = False) -> None:
        """One message, with keys, a tag and properties that follow from its number."""
        properties = {"n": str(number), "color": TAGS[number % 7 % 3]}
        more: dict[Queue, tuple[int, int]] = {}
        if light:
            properties["INNER_MULTI_DISPATCH"] = ",".join(LIGHT)
            properties["INNER_MULTI_QUEUE_OFFSET"] = ",".join(str(self.light[name]) for name in LIGHT)
            for name in LIGHT:
                more[name, 0] = (self.light[name], self.light[name] + 1)
                self.light[name] += 1
        keys, unique_key, tag = (f"k{number}", f"group{number % 9}"), f"U{number:05}", TAGS[number % 3]
        hosts = {"born_host": ("2001:db8::1", 7), "store_host": ("2001:db8::2", 10911)} if number % 17 == 5 else {}
        body = b"body of %d " % number * (number % 5)
        written = self.writer.append(
            topic, body, queue_id=queue_id, keys=" ".join(keys), unique_key=unique_key, tags=tag,
            properties=properties, store_timestamp=START_TIMESTAMP + later_ms + 100 * number,
            property_crc=number % 11 == 3, magic=V2_MAGIC if number % 13 == 4 and not self.is_old else None, **hosts,
        )  # fmt: skip
        self._note(written, 1, body, more, keys=keys, unique_key=unique_key, tag=tag, properties=properties)

    def write_batch(self, number: int) -> None:
        """One record of several messages, in a topic of such."""
        inner = [(b"inner %d" % number, {"a": "b"}), (b"second", {}), (b"third", {})][: 2 + number % 2]
        written = self.writer.append_inner_batch(
            "Batches", inner, unique_key=f"B{number:05}", store_timestamp=START_TIMESTAMP + 100 * number + 50
        )
        self._note(written, len(inner), b"", {}, unique_key=f"B{number:05}")

    def write_mixture(self, numbers, *, later_ms=0, batches=True) -> None:
        """Messages of all topics; every other one in the queue 0 of Orders."""
        for number in numbers:
            if number % 2 == 0:
                self.write(number, "Orders", 0, later_ms=later_ms, light=number % 6 == 0)
            elif number % 4 == 1:
                self.write(number, "Orders", 1, later_ms=later_ms)
            else:
                self.write(number, "Päyments", number % 3, later_ms=later_ms)
            if batches and number % 9 == 7:
                self.write_batch(number)

    def finish(self, shape, stale=()):
        self.writer.close()
        return GoodStore(
            shape, self.writer.root, tuple(self.messages), self.writer.log.segment_size, self.writer.log.end,
            self.writer.index.slot_count, self.writer.queue_file_size, tuple(stale), self.writer.consumer_offsets,
        )  # fmt: skip


def plain(shape: str, root: Path, numbers: range = range(300), *, batches: bool = True, **options: object) -> GoodStore:
    author = Author(root, **options)
    author.write_mixture(numbers, batches=batches)
    return author.finish(shape)


def old(root: Path) -> GoodStore:
    """What a broker of 4.x writes: no batches, no light queues, no tags in the index."""
    author = Author(root, is_old=True, profile="5.3")
    for number in range(260):
        author.write(number, "Orders" if number % 3 else "Payments", number % 2)
    return author.finish("old")


def expired(root: Path) -> GoodStore:
    """The usual messages, later: the first segments are deleted, and files of queues that hold nothing else."""
    author = Author(root)
    author.write_mixture(range(300))
    author.writer.close()
    minimum = 3 * author.writer.log.segment_size
    for base in [base for base in author.writer.log.segments if base < minimum]:
        author.writer.log.segments[base].unlink()
    for files in author.writer.queues.values():
        for start in sorted(files.files)[:-1]:
            last = int.from_bytes(files.files[start][-20:-12], "big", signed=True)
            if last < minimum:
                (files.directory / f"{start:020d}").unlink()
                del files.files[start]
    author.messages = [message for message in author.messages if message.physical_offset >= minimum]
    good = author.finish("expired")
    for path in sorted((root / "index").iterdir()):
        if int.from_bytes(path.read_bytes()[24:32], "big") < minimum:
            path.unlink()
    return good


def recut(root: Path) -> GoodStore:
    """A log that a broker cut and wrote on, later: in its last segment and in the queues old bytes lie behind the new.

    Of the old messages a third is replaced by fewer, other ones.
    """
    before = Author(root.with_name(root.name + "-before"))
    before.write_mixture(range(300), batches=False)
    before.writer.close()
    base = before.writer.log.end // before.writer.log.segment_size * before.writer.log.segment_size
    count = sum(message.physical_offset < base + 1500 for message in before.messages)
    author = Author(root)
    author.write_mixture(range(count), batches=False)
    author.write_mixture(range(1000, 1006), later_ms=600_000, batches=False)
    good = author.finish("recut")
    for old in sorted(before.writer.root.glob("c*/**/" + "[0-9]" * 20)):
        path = root / old.relative_to(before.writer.root)
        if old.parent.name == "commitlog":
            start = good.end - int(path.name)
        else:
            start = len(path.read_bytes().rstrip(b"\0")) + 19 if path.exists() else 0
            start -= start % 20
        if start >= 0:
            put(path, start, old.read_bytes()[start:])
    stale = [each for each in before.writer.written if each.physical_offset >= good.end]
    return replace(good, stale=tuple(stale))


def paged(root: Path, units: int = 5200, queue_file_size: int = 20 * 8192) -> GoodStore:
    """A queue of more than 4,096 units, in one file, beside short ones."""
    author = Author(root, segment_size=1 << 18, index_slots=997, index_entries=6000, queue_file_size=queue_file_size)
    for number in range(units):
        author.write(number, "Orders" if number % 50 else "Other", 0)
    return author.finish("paged")


SHAPES = {
    # Queues of many small files, several segments and index files, batches and light queues.
    "small": partial(plain, "small"),
    "paged": paged,
    "files": lambda root: paged(root, 4000, 20 * 1000),
    "ext": lambda root: plain("ext", root, range(200), batches=False, ext_bit_map=b"\x11\x22"),  # batches have none
    "classic": lambda root: plain("classic", root, range(10, 210), profile="5.3"),  # the index holds no tags
    "recut": recut,
    "expired": expired,
}


def put(path: Path, position: int, data: bytes) -> None:
    """Other bytes at a place of a file, which grows if it must."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.pwrite(descriptor, data, position)
    finally:
        os.close(descriptor)


def write_sparse(path: Path, content: bytes) -> None:
    """A file whose empty pages are holes."""
    with path.open("wb") as file:
        file.truncate(len(content))
        for start in range(0, len(content), PAGE):
            page = content[start : start + PAGE]
            if any(page):
                os.pwrite(file.fileno(), page, start)


def copy_store(good: GoodStore, root: Path, *, sparse: bool) -> None:
    """A copy, of which empty pages take no room, as a broker writes it, or of plain bytes, as many tools copy it."""
    if not sparse:
        shutil.copytree(good.root, root)
        return
    shutil.copytree(good.root, root, copy_function=lambda old, new: write_sparse(Path(new), Path(old).read_bytes()))
