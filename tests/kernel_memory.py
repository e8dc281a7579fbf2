"""Bytes at an address, as kernels want them."""

from typing import Any

import numpy as np

from store_files import pack_record, property_bytes


class Bytes:
    """Keeps a copy of some bytes in place; `address` is where they are. Room behind them catches careless reads."""

    def __init__(self, data: bytes) -> None:
        self.array = np.frombuffer(data + bytes(64), dtype=np.uint8).copy()
        self.address = int(self.array.ctypes.data)
        self.length = len(data)

    def __bytes__(self) -> bytes:
        return self.array[: self.length].tobytes()


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
