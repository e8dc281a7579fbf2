"""Bytes in a region and at an address, as kernels want them."""

import ctypes
import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from storage.kernels.records import MAGIC_V1, PHYSICAL_OFFSET
from storage.kernels.region import Region
from storage.kernels.store_view import PROBE_SHIFT, FileView, IndexFilesView, LogView, RunsView, Shortcuts, StoreView
from store_files import pack_record, property_bytes

_libc = ctypes.CDLL(None, use_errno=True)


class Bytes:
    """Keeps a copy of some bytes in `region`, at `address`, right before a page nobody may touch.

    Reading on kills the run. Files are mapped like that whenever their size is a multiple of a page, and a server must
    not die of it.
    """

    def __init__(self, data: bytes) -> None:
        self.length = len(data)
        room = -(-self.length // mmap.PAGESIZE) * mmap.PAGESIZE
        self._pages = mmap.mmap(-1, room + mmap.PAGESIZE)
        start = int(np.frombuffer(self._pages, dtype=np.uint8).ctypes.data)
        self._start = room - self.length
        self._pages[self._start : room] = data
        self.address = start + self._start
        if _libc.mprotect(ctypes.c_void_p(start + room), ctypes.c_size_t(mmap.PAGESIZE), 0) != 0:
            raise OSError(ctypes.get_errno(), "a page could not be protected")
        self.view = memoryview(self._pages)[self._start : room]
        self.region = Region(self.view)

    def __bytes__(self) -> bytes:
        return self._pages[self._start : self._start + self.length]


def record_at(physical_offset, **changes):
    names = {"keys": "KEYS", "unique_key": "UNIQ_KEY", "tags": "TAGS"}
    properties = {names[name]: changes.pop(name) for name in list(changes) if name in names}
    flags = changes.get("sys_flag", 0)
    fields = {
        "topic_bytes": b"TopicTest", "body": b"hello", "queue_id": 1, "flag": 0, "queue_offset": 7,
        "properties_bytes": property_bytes({name: value for name, value in properties.items() if value is not None}),
        "physical_offset": physical_offset, "sys_flag": 0, "born_timestamp": 1,
        "born_host": ("2001:db8::1", 5) if flags & 0x10 else ("127.0.0.1", 5), "store_timestamp": 1_700_000_000_123,
        "store_host": ("2001:db8::2", 10911) if flags & 0x20 else ("127.0.0.1", 10911), "reconsume_times": 0,
        "prepared_transaction_offset": 0,
    }  # fmt: skip
    return pack_record(**{**fields, **changes})


def segment_at(base_offset, *messages):
    """Records one after the other as a segment that starts at an offset, and their positions in it."""
    data, positions = b"", []
    for message in messages:
        positions.append(len(data))
        data += record_at(base_offset + len(data), **message)
    return data, positions


def headers_in_one_another(base_offset: int, step: int, count: int, magic: int = MAGIC_V1) -> bytearray:
    """A segment with a header every `step` bytes, each of a record that goes to the end, but for its checksum."""
    topic = b"\x01T" if magic == MAGIC_V1 else b"\0\x01T"
    size = step * count + 200
    log = bytearray(size)
    log[size - len(topic) - 2 : size - 2] = topic
    for position in range(0, step * count, step):
        struct.pack_into(">ii", log, position, size - position, magic)
        struct.pack_into(">q", log, position + PHYSICAL_OFFSET, base_offset + position)
        struct.pack_into(">i", log, position + 84, size - len(topic) - 2 - position - 88)
    return log


class HeldFile(FileView):
    """Some bytes as a kernel sees a file, and as :class:`storage.files.mapped_file.MappedFile` shows one.

    `descriptor` is what page probes ask; −1 says that everything is in memory.
    """

    def __init__(self, data: bytes, descriptor: int = -1, path: Path = Path("segment")) -> None:
        self.held = Bytes(data)
        self.path, self.size = path, self.held.length
        super().__init__(self.held.view, np.zeros((self.size >> PROBE_SHIFT) + 1, np.int32), descriptor)

    def __bytes__(self) -> bytes:
        return bytes(self.held)


@dataclass
class IndexBytes:
    data: bytes
    slots: int
    entries: int
    maximum: int
    ascending: bool = True
    has_tags: bool = True
    shortcuts: Shortcuts = field(default_factory=Shortcuts)


class KernelStore:
    """Segments (base offset, bytes), index files and scanned entries (hash, physical offset) as kernels see them.

    Entries are dealt out to so many `runs`. `descriptor` is what page probes ask, for all files alike; −1 says that
    everything is in memory. `valid` are as many bytes of each segment as may hold records.
    """

    def __init__(self, segments, index_files=(), scanned=(), *, runs=1, descriptor=-1, damage=(), valid=None) -> None:
        self.segments = [HeldFile(data, descriptor) for _, data in segments]
        self.index_files = [HeldFile(file.data, descriptor) for file in index_files]
        lengths = valid or [held.size for held in self.segments]
        bases = [base for base, _ in segments]
        self.log = LogView(zip(bases, self.segments, lengths, strict=True))
        index = IndexFilesView(
            (held, file.slots, file.entries, file.maximum, file.ascending, file.has_tags, file.shortcuts)
            for file, held in zip(index_files, self.index_files, strict=True)
        )
        tail = RunsView(self._run(scanned[number::runs]) for number in range(runs))
        self.view = StoreView(self.log, index, tail, np.array(damage, np.int64))

    @staticmethod
    def _run(scanned):
        ordered = sorted(scanned)
        hashes = Bytes(np.array([hashed for hashed, _ in ordered], dtype=np.int32).tobytes())
        offsets = Bytes(np.array([offset for _, offset in ordered], dtype=np.int64).tobytes())
        return np.frombuffer(hashes.view, np.int32), np.frombuffer(offsets.view, np.int64)

    @property
    def files(self) -> list[HeldFile]:
        return [*self.segments, *self.index_files]


class Guarded(Bytes):
    def __init__(self, size: int) -> None:
        super().__init__(bytes(-(-size // mmap.PAGESIZE) * mmap.PAGESIZE))

    def put(self, data: bytes) -> memoryview:
        self.view[self.length - len(data) :] = data
        return self.view[self.length - len(data) :]
