"""Stores that grow in small steps, as under a running broker, and what must be answered of them at every step."""

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import oracles
from protocol.question import KeyKind, Question
from storage.query.get_message import get_message
from storage.store.message_store import MessageStore
from store_writer import StoreWriter, Written

KINDS = {KeyKind.ANY: "ANY", KeyKind.KEY: "K", KeyKind.UNIQUE: "U", KeyKind.TAG: "T"}


class GrowingStore:
    """A writer whose files reach the disk piece by piece."""

    def __init__(self, root: Path, **options: Any) -> None:
        sizes = {"segment_size": 2048, "index_slots": 7, "index_entries": 20, "queue_file_size": 100}
        self.writer = StoreWriter(root, **{**sizes, **options})
        self.root = root
        self._torn: list[tuple[int, bytes]] = []

    @property
    def log(self) -> Any:
        return self.writer.log

    def add(self, topic: str = "T", **message: Any) -> Written:
        """A message in the log and, from the next `flush` on, in its queue and the index."""
        number = len(self.writer.written)
        fields = {"keys": f"k{number} all", "unique_key": f"u{number}", "tags": f"t{number % 3}", **message}
        return self.writer.append(topic, fields.pop("body", b"body"), **fields)

    def add_torn(self, share: float = 0.5, **message: Any) -> Written:
        """A message of which a part is there, from its beginning; `mend` writes the rest."""
        written = self.add(**message)
        kept = int(written.size * share)
        self._torn.append((written.physical_offset + kept, written.record[kept:]))
        self.writer.overwrite(written.physical_offset + kept, bytes(written.size - kept))
        return written

    @property
    def is_torn(self) -> bool:
        return bool(self._torn)

    def mend(self) -> None:
        """Write what is missing of torn messages."""
        for physical_offset, rest in self._torn:
            self.writer.overwrite(physical_offset, rest)
        self._torn.clear()

    def flush(self) -> None:
        self.writer.flush()

    def make_segment_in_advance(self) -> None:
        """The zero-filled segment behind the one that is written."""
        end = self.log.end
        if end % self.log.segment_size:
            self.log.add_empty_segment()

    def expire(self, segments: int = 1) -> None:
        """Delete the first segments, and after them the files of queues that hold nothing else, as a broker does.

        It keeps the segment that it writes, even with one made in advance behind it.
        """
        full = [base for base in sorted(self.log.segments)[:-1] if base + self.log.segment_size <= self.log.end]
        for base in full[:segments]:
            self.log.segments.pop(base).unlink()
        minimum = min(self.log.segments)
        self.writer.written = [written for written in self.writer.written if written.physical_offset >= minimum]
        for files in self.writer.queues.values():
            for start in sorted(files.files)[:-1]:
                if oracles.signed(files.files[start], len(files.files[start]) - 20, 8) < minimum:
                    del files.files[start]
                    (files.directory / f"{start:020d}").unlink(missing_ok=True)

    def exchange_index(
        self, slots: int = 5, entries: int = 30, *, records: Iterable[oracles.Record] | None = None
    ) -> None:
        """Put another index in the place of the one that is there, in one step for each of two renames."""
        images = oracles.build_index(self.writer.records if records is None else records, slots, entries)
        new, old = self.root / "index.new", self.root / "index.old"
        new.mkdir()
        for number, image in enumerate(images):
            (new / str(self.writer.first_index_name + number)).write_bytes(image)
        if (self.root / "index").exists():
            os.rename(self.root / "index", old)
        os.rename(new, self.root / "index")
        shutil.rmtree(old, ignore_errors=True)

    def exchange_queues(self) -> None:
        """Put copies of all queues in the place of those that are there."""
        tree, new, old = (self.root / name for name in ("consumequeue", "queues.new", "queues.old"))
        shutil.copytree(tree, new)
        os.rename(tree, old)
        os.rename(new, tree)
        shutil.rmtree(old)


def everything(store: MessageStore, records: Iterable[oracles.Record]) -> Iterator[tuple[Any, ...]]:
    """All answers of a store about the messages it should hold, and about all its queues."""
    log = store.commit_log
    yield "log", log.minimum, log.end, log.problems
    topics, keys = set(), set()
    for record in records:
        found = store.record_at(record.physical_offset)
        yield "record", record.physical_offset, None if found is None else bytes(found)
        topics.add(record.topic)
        properties = record.properties
        for name, kinds in (("KEYS", "K"), ("UNIQ_KEY", "U"), ("TAGS", "T")):
            for key in oracles.split_keys(properties.get(name, "")) if name == "KEYS" else [properties.get(name, "")]:
                keys.add((record.topic, key, kinds))
    for topic, key, kind in sorted(keys):
        for asked, name in KINDS.items():
            if name in (kind, "ANY"):
                answer = store.query(Question(topic, key, asked, maximum=500))
                # Whether files keep tags is found from a sample of their entries, and another sample may differ.
                yield "key", topic, key, name, answer.physical_offsets, name == "T" or answer.incomplete
    for topic in sorted(topics | set(store.queues.topics())):
        yield "topic", topic, store.queues.queue_ids(topic)
        for queue_id in store.queues.queue_ids(topic):
            yield from of_queue(store, topic, queue_id)
    yield "config", sorted(store.config.topics), store.config.consumer_offsets


def of_queue(store: MessageStore, topic: str, queue_id: int) -> Iterator[tuple[Any, ...]]:
    """Bounds and all messages of one queue, pulled from its beginning to its end."""
    queue = store.queues.queue(topic, queue_id)
    assert queue is not None
    yield "queue", topic, queue_id, queue.min_offset, queue.max_offset
    offset = max(queue.min_offset, 0)
    while offset < queue.max_offset:
        result = get_message(store.queues, topic, queue_id, offset, 32, 1 << 20)
        yield "pull", topic, queue_id, offset, result.status, [bytes(record) for record in result.records]
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset


def true_answers(records: list[oracles.Record], topic: str, key: str, kind: str) -> tuple[int, ...]:
    """What a key query must find, by reading everything."""
    return tuple(oracles.query(records, topic, key, kind=kind, maximum=500))
