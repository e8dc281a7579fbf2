"""Damage made from the layout tables: every field of every layout of a store, and what may stand there instead."""

from dataclasses import dataclass
from pathlib import Path

import protocol.message_layout
import storage.index.index_file
import storage.layout.checkpoint
import storage.queue.batch_consume_queue
import storage.queue.consume_queue
import storage.queue.consume_queue_ext
from layouts import tables_of
from oracles import V2_MAGIC, read_record
from store_writer import StoreWriter

SEGMENT = 4096
SLOTS, ENTRIES = 13, 60
INDEX_HEADER = 40


@dataclass(frozen=True)
class Place:
    layout: str
    field: str
    type: str
    path: Path
    position: int
    size: int
    physical_offset: int = -1

    def values(self, current: bytes) -> dict[str, bytes]:
        """What may stand there instead, by name; what stands there already is left out."""
        bits = 8 * self.size
        now = int.from_bytes(current, "big")
        numbers = {
            "0": 0, "-1": -1, "minimum": 1 << (bits - 1), "maximum": (1 << (bits - 1)) - 1, "1 more": now + 1,
            "1 less": now - 1, "highest bit": now ^ 1 << (bits - 1), "middle bit": now ^ 1 << bits // 2,
            "lowest bit": now ^ 1,
        }  # fmt: skip
        made: dict[str, bytes] = {}
        for name, number in numbers.items():
            data = (number % (1 << bits)).to_bytes(self.size, "big")
            if data != current and data not in made.values():
                made[name] = data
        return made

    def bits(self, current: bytes) -> dict[str, bytes]:
        now = int.from_bytes(current, "big")
        return {f"bit {bit}": (now ^ 1 << bit).to_bytes(self.size, "big") for bit in range(8 * self.size)}

    def read(self) -> bytes:
        return self.path.read_bytes()[self.position : self.position + self.size]

    def __str__(self) -> str:
        at = f" of the record at {self.physical_offset}" if self.physical_offset >= 0 else ""
        return f"{self.layout}.{self.field}{at}, {'/'.join(self.path.parts[-3:])} byte {self.position}, {self.type}"


def write_store(root: Path, *, ext: bool = False) -> StoreWriter:
    """Messages of several topics and queues over four segments, of all kinds that have a layout of their own."""
    writer = StoreWriter(
        root, segment_size=SEGMENT, index_slots=SLOTS, index_entries=ENTRIES, queue_file_size=200, ext_file_size=512,
        batch_queue_file_size=46 * 4, ext_bit_map=b"\x11\x22" if ext else None,
    )  # fmt: skip
    for n in range(70):
        hosts = {"born_host": ("2001:db8::1", 7), "store_host": ("2001:db8::2", 10911)} if n % 17 == 5 else {}
        writer.append(
            ["A", "B", "Topic-é"][n % 3], b"body%d" % n * (n % 4), queue_id=n % 2, keys=f"k{n} common",
            unique_key=f"u{n:03}", tags=f"T{n % 2}", store_timestamp=1_700_000_000_000 + 100 * n,
            property_crc=n % 11 == 3, magic=V2_MAGIC if n % 13 == 4 else None, **hosts,
        )  # fmt: skip
        if n % 12 == 7 and not ext:
            writer.append_inner_batch("Bat", [(b"x%d" % n, {"a": "b"}), (b"yy", {})], unique_key=f"b{n:03}")
    writer.close()
    return writer


def record_places(writer, written):
    (table,) = (each for each in _tables(protocol.message_layout) if each[0] == "V4_V4_FIXED")
    record = read_record(written.record, 0)
    assert record is not None
    path = writer.log.segments[written.physical_offset // SEGMENT * SEGMENT]
    at = written.physical_offset % SEGMENT
    for row in table[1]:
        size = {"born_ip": len(record.born_host[0]), "store_ip": len(record.store_host[0])}.get(row.field, row.size)
        yield Place("record", row.field, row.type, path, at, size, written.physical_offset)
        at += size
    length = 2 if record.magic == V2_MAGIC else 1
    behind = [
        ("body", len(record.body)), ("topic_length", length), ("topic", len(record.topic_bytes)),
        ("properties_length", 2), ("properties", len(record.properties_bytes)),
    ]  # fmt: skip
    for field, size in behind:
        if size:
            yield Place("record", field, "bytes", path, at, size, written.physical_offset)
        at += size


def queue_places(writer, numbers=(0, 4, -1)):
    trees = (
        ("consumequeue", storage.queue.consume_queue, 20),
        ("batchconsumequeue", storage.queue.batch_consume_queue, 46),
    )
    for tree, module, size in trees:
        ((_, rows),) = _tables(module)
        for directory in sorted((writer.root / tree).glob("*/*")):
            files = sorted(directory.iterdir())
            units = [
                (path, position)
                for path in files
                for position in range(0, path.stat().st_size - size + 1, size)
                if any(path.read_bytes()[position : position + size])
            ]
            for number in numbers:
                if -len(units) <= number < len(units):
                    path, position = units[number]
                    yield from _fields(f"{tree} unit {number}", rows, path, position)


def ext_places(writer):
    ((_, rows),) = _tables(storage.queue.consume_queue_ext)
    for path in sorted((writer.root / "consumequeue_ext").glob("*/*/*")):
        for number in (0, 2):
            yield from _fields(f"consumequeue_ext unit {number}", rows, path, 22 * number)


def index_places(writer, entries=(1, 30, ENTRIES - 1)):
    tables = dict(_tables(storage.index.index_file))
    paths = sorted((writer.root / "index").iterdir())
    for path in {paths[0], paths[len(paths) // 2], paths[-1]}:
        yield from _fields("index header", tables["HEADER"], path, 0)
        content = path.read_bytes()
        slots = [content[INDEX_HEADER + 4 * n : INDEX_HEADER + 4 * n + 4] for n in range(SLOTS)]
        for used in (True, False):
            number = next((n for n, slot in enumerate(slots) if any(slot) == used), None)
            if number is not None:
                yield Place(f"index slot {number}", "slot", "i32", path, INDEX_HEADER + 4 * number, 4)
        count = int.from_bytes(content[36:40], "big")  # one more than there are entries
        for number in (number for number in entries if number < count):
            yield from _fields(f"index entry {number}", tables["ENTRY"], path, INDEX_HEADER + 4 * SLOTS + 20 * number)


def checkpoint_places(writer):
    ((_, rows),) = _tables(storage.layout.checkpoint)
    yield from _fields("checkpoint", rows, writer.root / "checkpoint", 0)


def chosen_records(writer):
    """Records of first, middle and last segment, the last one among them; with V2, IPv6 and property CRC."""
    last = [written for written in writer.written if written.physical_offset // SEGMENT == writer.log.end // SEGMENT]
    first = writer.written
    return [first[3], first[4], first[22], first[40], last[0], last[len(last) // 2], last[-1]]


def _tables(module):
    return [(table.name, table.rows) for table in tables_of(module.__doc__ or "")]


def _fields(layout, rows, path, position):
    for row in rows:
        yield Place(layout, row.field, row.type, path, position + row.offset, row.size)
