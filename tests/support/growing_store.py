"""Stores that grow in small steps, as under a running broker, and what must be answered of them at every step."""

import contextlib
import os
import shutil
from pathlib import Path

import oracles
from protocol.question import KeyKind, Question
from storage.query.get_message import get_message
from storage.store import _log_follower
from storage.store import _refresh as follow
from storage.store.message_store import MessageStore
from store_writer import StoreWriter

KINDS = {KeyKind.ANY: "ANY", KeyKind.KEY: "K", KeyKind.UNIQUE: "U", KeyKind.TAG: "T"}


class GrowingStore:
    def __init__(self, root, **options) -> None:
        sizes = {"segment_size": 2048, "index_slots": 7, "index_entries": 20, "queue_file_size": 100}
        self.writer = StoreWriter(root, **{**sizes, **options})
        self.root = root
        self.log, self.flush = self.writer.log, self.writer.flush
        self._torn: list[tuple[int, bytes]] = []

    def add(self, topic="T", **message):
        number = len(self.writer.written)
        fields = {"keys": f"k{number} all", "unique_key": f"u{number}", "tags": f"t{number % 3}", **message}
        return self.writer.append(topic, fields.pop("body", b"body"), **fields)

    def add_torn(self, share=0.5, **message):
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
        for physical_offset, rest in self._torn:
            self.writer.overwrite(physical_offset, rest)
        self._torn.clear()

    def make_segment_in_advance(self) -> None:
        end = self.log.end
        if end % self.log.segment_size:
            self.log.add_empty_segment()

    def expire(self, segments: int = 1) -> None:
        """Delete the first segments, and after them the files of queues that hold nothing else, as a broker does."""
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

    def exchange_index(self, slots: int = 5, entries: int = 30, *, records: list[oracles.Record] | None = None) -> None:
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
        tree, new, old = (self.root / name for name in ("consumequeue", "queues.new", "queues.old"))
        shutil.copytree(tree, new)
        os.rename(tree, old)
        os.rename(new, tree)
        shutil.rmtree(old)


def everything(store, records):
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


def of_queue(store, topic, queue_id):
    queue = store.queues.queue(topic, queue_id)
    yield "queue", topic, queue_id, queue.min_offset, queue.max_offset
    offset = max(queue.min_offset, 0)
    while offset < queue.max_offset:
        result = get_message(store.queues, topic, queue_id, offset, 32, 1 << 20)
        yield "pull", topic, queue_id, offset, result.status, [bytes(record) for record in result.records]
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset


def true_answers(records: list[oracles.Record], topic: str, key: str, kind: str) -> tuple[int, ...]:
    return tuple(oracles.query(records, topic, key, kind=kind, maximum=500))


class Followed:
    def __init__(self, root, **options) -> None:
        self.growing = GrowingStore(root, **options)
        self.growing.add()
        self.growing.flush()
        self.open()

    def open(self) -> None:
        self.store = MessageStore.open(self.growing.root)
        self.follower = self.store.follower()

    def poll(self, times=3):
        """As often as the last record takes: seen, found unchanged, dispatched."""
        return [arrivals for arrivals in (self.follower.poll() for _ in range(times)) if arrivals is not None]

    def settle(self) -> None:
        self.poll()
        self.follower.watch()
        while self.poll():
            pass

    def check_queues(self) -> None:
        for topic in self.store.queues.topics():
            for queue in self.store.queues.queues_of(topic):
                assert list(of_queue(self.store, topic, queue.queue_id))

    def found(self, key: str, kind: KeyKind = KeyKind.KEY, topic: str = "T") -> list[int]:
        return list(self.store.query(Question(topic, key, kind, maximum=500)).physical_offsets)

    def check(self) -> None:
        self.follower.watch()
        records = self.growing.writer.records
        fresh = MessageStore.open(self.growing.root)
        for ours, theirs in zip(everything(self.store, records), everything(fresh, records), strict=True):
            assert ours == theirs
        for topic, key, kind in {(r.topic, r.properties.get("UNIQ_KEY", ""), "U") for r in records}:
            assert tuple(self.found(key, KeyKind.UNIQUE, topic)) == true_answers(records, topic, key, kind)


def hurry(monkeypatch) -> None:
    """Have bytes count as settled, or damaged for good, after two equal looks, so that no test waits."""
    monkeypatch.setattr(_log_follower, "SETTLING_SECONDS", 0.0)
    monkeypatch.setattr(_log_follower, "DAMAGED_SECONDS", 0.0)
    monkeypatch.setattr(follow, "UNQUEUED_SECONDS", 0.0)


def held(root: Path) -> tuple[list[str], list[str]]:
    """Files under a directory that this process maps, and those it has open, deleted ones as the kernel names them."""
    lines = [line.split(maxsplit=5) for line in Path("/proc/self/maps").read_text().splitlines()]
    maps = [fields[5] for fields in lines if len(fields) == 6 and fields[5].startswith(str(root))]
    opened = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            opened.append(os.readlink(f"/proc/self/fd/{name}"))
    return maps, [path for path in opened if path.startswith(str(root))]
