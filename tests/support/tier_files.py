"""Tiered files for tests, as a broker with `PosixFileSegment` leaves them; written apart from `storage`.

    write_tier(tmp_path / "tier", writer.written)

`tests/golden/record/test_recorded.py` proves the format on what an official broker wrote.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from oracles import read_record, tags_code
from queue_stores import unit_bytes
from store_writer import Written

PHYSICAL_OFFSET = slice(28, 36)
CLUSTER, BROKER = "DefaultCluster", "broker-a"


def tier_name(offset: int) -> str:
    """What a broker calls the file that begins at a byte offset."""
    return hashlib.md5(str(offset).encode(), usedforsecurity=False).hexdigest()[:8] + f"{offset:020d}"


def write_tier(tier: Path, written: Iterable[Written], *, segment_bytes: int = 4096, queue_bytes: int = 400) -> Path:
    """Write (or write anew) the files of all these messages, which begin at any queue offset; the broker's directory.

    Messages of a queue come in its order. A file takes records or units as long as it stays within its bytes.
    """
    broker = tier / f"{hashlib.md5(CLUSTER.encode(), usedforsecurity=False).hexdigest()[:8]}_{CLUSTER}" / BROKER
    queues: dict[tuple[str, int], list[Written]] = defaultdict(list)
    for message in written:
        queues[message.topic, message.queue_id].append(message)
    for (topic, queue_id), messages in queues.items():
        directory = broker / topic / str(queue_id)
        records, units, position = [], [], 0
        for message in messages:
            record = bytearray(message.record)
            record[PHYSICAL_OFFSET] = position.to_bytes(8, "big")
            read = read_record(bytes(record), 0, position)
            assert read is not None
            records.append(bytes(record))
            units.append(unit_bytes(position, len(record), tags_code(read)))
            position += len(record)
        _write(directory / "COMMIT_LOG", records, 0, segment_bytes)
        _write(directory / "CONSUME_QUEUE", units, messages[0].queue_offset * 20, queue_bytes)
    return broker


def _write(directory: Path, pieces: Sequence[bytes], start: int, most: int) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    content = b""
    for piece in pieces:
        if content and len(content) + len(piece) > most:
            (directory / tier_name(start)).write_bytes(content)
            start, content = start + len(content), b""
        content += piece
    # Appended to, as a broker does: a file that grows stays the same file.
    with (directory / tier_name(start)).open("r+b" if (directory / tier_name(start)).exists() else "wb") as file:
        file.write(content)
