"""Bytes in a region and at an address, as kernels want them."""

import ctypes
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from storage.kernels import catalog as table
from storage.kernels.memory import PROBE_ADDRESS, PROBE_SHIFT
from storage.kernels.region import Region
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
        self.region = Region(memoryview(self._pages)[self._start : room])

    def __bytes__(self) -> bytes:
        return self._pages[self._start : self._start + self.length]


def record_at(physical_offset: int, **changes: Any) -> bytes:
    """One record with `keys`, `unique_key`, `tags` or any field of `pack_record` changed."""
    names = {"keys": "KEYS", "unique_key": "UNIQ_KEY", "tags": "TAGS"}
    properties = {names[name]: changes.pop(name) for name in list(changes) if name in names}
    flags = changes.get("sys_flag", 0)
    fields: dict[str, Any] = {
        "topic_bytes": b"TopicTest",
        "body": b"hello",
        "properties_bytes": property_bytes({name: value for name, value in properties.items() if value is not None}),
        "queue_id": 1,
        "flag": 0,
        "queue_offset": 7,
        "physical_offset": physical_offset,
        "sys_flag": 0,
        "born_timestamp": 1,
        "born_host": ("2001:db8::1", 5) if flags & 0x10 else ("127.0.0.1", 5),
        "store_timestamp": 1_700_000_000_123,
        "store_host": ("2001:db8::2", 10911) if flags & 0x20 else ("127.0.0.1", 10911),
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
    }
    return pack_record(**{**fields, **changes})


def segment_at(base_offset: int, *messages: Mapping[str, Any]) -> tuple[bytes, list[int]]:
    """Records one after the other as a segment that starts at an offset, and their positions in it."""
    data, positions = b"", []
    for message in messages:
        positions.append(len(data))
        data += record_at(base_offset + len(data), **message)
    return data, positions


@dataclass
class IndexBytes:
    """An index file for a :class:`KernelStore`, with what a snapshot knows of it."""

    data: bytes
    slots: int
    entries: int
    maximum: int
    flags: int = table.ASCENDING | table.HAS_TAGS


def _trust(file: IndexBytes) -> tuple[int, int]:
    return file.maximum, file.flags


class KernelStore:
    """Segments (base offset, bytes), index files and scanned entries (hash, physical offset) as kernels see them.

    Entries are dealt out to so many `runs`. `descriptor` is what page probes ask, for all files alike; −1 says that
    everything is in memory.
    """

    def __init__(
        self,
        segments: Sequence[tuple[int, bytes]],
        index_files: Sequence[IndexBytes] = (),
        scanned: Sequence[tuple[int, int]] = (),
        *,
        runs: int = 1,
        descriptor: int = -1,
    ) -> None:
        self.segments = [Bytes(data) for _, data in segments]
        self.index_files = [Bytes(file.data) for file in index_files]
        self._heat: list[np.ndarray] = []
        rows = [
            (base, held.address, held.length, self._heat_of(held), descriptor, held.length)
            for (base, _), held in zip(segments, self.segments, strict=True)
        ]
        index_rows = [
            (held.address, held.length, file.slots, file.entries, self._heat_of(held), descriptor, *_trust(file))
            for file, held in zip(index_files, self.index_files, strict=True)
        ]
        self._runs = [self._run(scanned[number::runs]) for number in range(runs)]
        table_of_runs = np.array([row for row, _, _ in self._runs], dtype=np.int64)
        self._table_of_runs = Bytes(table_of_runs.tobytes())
        head = np.zeros(table.HEADER, dtype=np.int64)
        head[table.PROBE] = PROBE_ADDRESS
        head[table.SEGMENT_COUNT], head[table.INDEX_COUNT] = len(rows), len(index_rows)
        head[table.TAIL_COUNT], head[table.TAIL_RUNS] = runs, self._table_of_runs.address
        ordered_rows = sorted(index_rows, key=lambda row: row[table.INDEX_MAXIMUM], reverse=True)
        flat = [value for row in [*rows, *ordered_rows] for value in row]
        self.catalog = np.concatenate([head, np.array(flat, dtype=np.int64)])

    @staticmethod
    def _run(scanned: Sequence[tuple[int, int]]) -> tuple[tuple[int, int, int], Bytes, Bytes]:
        ordered = sorted(scanned)
        hashes = Bytes(np.array([hashed for hashed, _ in ordered], dtype=np.int32).tobytes())
        offsets = Bytes(np.array([offset for _, offset in ordered], dtype=np.int64).tobytes())
        return (len(ordered), hashes.address, offsets.address), hashes, offsets

    def heat_address(self, number: int) -> int:
        """Where the heat of a file lies: segments first, then index files as they were given."""
        return int(self._heat[number].ctypes.data)

    def _heat_of(self, held: Bytes) -> int:
        self._heat.append(np.zeros((held.length >> PROBE_SHIFT) + 1, dtype=np.int32))
        return int(self._heat[-1].ctypes.data)
