"""Small stores of other kinds: DLedger's, tiered files, queues in RocksDB, and two that differ in a secret alone."""

import gzip
import hashlib
import os
import shutil
import zlib
from collections import defaultdict

from oracles import packed, read_record, tags_code
from queue_stores import unit_bytes
from store_writer import StoreWriter

SEGMENT = 8192
HALF_TOPIC, COMMIT = "RMQ_SYS_TRANS_HALF_TOPIC", 0x8
TIMER_UNIT = 52


class Ledger:
    """A store of DLedger's with what a conversion has to move: transactions, timers, entries without a record."""

    def __init__(self, root, **options) -> None:
        self.root = root
        self.writer = StoreWriter(root, **{"is_ledger": True, "segment_size": SEGMENT, **options})
        self.halves = []
        self.commits = []
        self.timers = []

    def fill(self, count: int) -> None:
        for number in range(count):
            if number % 7 == 0 and self.writer.log.is_ledger:
                self.writer.log.write_empty_entry()
            self.writer.append("Topic", b"x" * (number * 37 % 400), keys=f"k{number}", unique_key=f"U{number}")

    def transaction(self, number: int, between: int) -> None:
        """A half message, and as many messages later its commit, with a checksum of the whole record."""
        self.halves.append(self.writer.append(HALF_TOPIC, b"half", unique_key=f"T{number}"))
        self.fill(between)
        self.commits.append(
            self.writer.append(
                "Transactions", b"done", unique_key=f"T{number}", sys_flag=COMMIT, property_crc=number % 2 == 0,
                prepared_transaction_offset=self.halves[-1].physical_offset,
            )
        )  # fmt: skip

    def timer(self, number: int) -> None:
        self.timers.append(self.writer.append("rmq_sys_wheel_timer", b"later", unique_key=f"W{number}"))

    def write_timer_log(self, *, lost: int = 0) -> None:
        """Units of the timers, of `lost` that the log has not, then nothing; in a file of a broker's layout."""
        offsets = [(each.physical_offset, each.size) for each in self.timers] + [(self.writer.log.end + 7, 99)] * lost
        units = b"".join(
            packed(TIMER_UNIT, 4) + packed(-1, 8) + packed(1, 4) + packed(1_700_000_000_000, 8) + packed(5, 4)
            + packed(offset, 8) + packed(size, 4) + packed(77, 4) + packed(0, 8)
            for offset, size in offsets
        )  # fmt: skip
        (self.root / "timerlog").mkdir()
        (self.root / "timerlog" / ("0" * 20)).write_bytes(units.ljust(TIMER_UNIT * 40, b"\0"))
        with (self.root / "timerwheel").open("wb") as wheel:
            wheel.write(os.urandom(4096))
            wheel.truncate(7 * 24 * 3600 * 2 * 32)  # two slots of 32 bytes for each second of a week


PHYSICAL_OFFSET = slice(28, 36)
CLUSTER, BROKER = "DefaultCluster", "broker-a"


def tier_name(offset: int) -> str:
    """What a broker calls the file that begins at a byte offset."""
    return hashlib.md5(str(offset).encode(), usedforsecurity=False).hexdigest()[:8] + f"{offset:020d}"


def write_tier(tier, written, *, segment_bytes=4096, queue_bytes=400):
    """Write (or write anew) the files of all these messages, which begin at any queue offset; the broker's directory.

    Messages of a queue come in its order. A file takes records or units as long as it stays within its bytes.
    """
    broker = tier / f"{hashlib.md5(CLUSTER.encode(), usedforsecurity=False).hexdigest()[:8]}_{CLUSTER}" / BROKER
    queues = defaultdict(list)
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


def _write(directory, pieces, start, most) -> None:
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


def with_rocksdb_queues(root):
    """Leave of the queues what a broker with `storeType=defaultRocksDB` has: a database, and no file of a queue."""
    for tree in ("consumequeue", "batchconsumequeue", "consumequeue_ext"):
        shutil.rmtree(root / tree, ignore_errors=True)
    (root / "consumequeue").mkdir()
    (root / "consumequeue" / "CURRENT").write_text("MANIFEST-000005\n")
    return root


SECRETS = ("13812345678", "15987654321")
"""Of the first store and of the second one: as many characters each."""

RULES = {
    "a pattern": ("/1[3-9][0-9]{9}/",),
    "fields": ("body", "keys", "tags", "unique_key", "properties.to"),
    "all properties": ("body", "properties"),
    "paths and a property": ("$..phone", "keys", "tags", "unique_key", "properties.to"),
}
"""Rules of which each hides the secret wherever it stands."""


def hidden_stores(root):
    """The two stores: messages whose body, keys, tag, unique key and properties have the secret, of any make."""
    return [_store(root / secret[:3], secret) for secret in SECRETS]


def _store(root, secret):
    with StoreWriter(root) as writer:
        writer.append("T", b'{"n":0}', tags="A", keys="order-0", unique_key="U0", properties={"region": "hz"})
        text = f'{{"phone":"{secret}","n":1}}'
        for body, flags in (
            (text.encode(), 0),
            (gzip.compress(text.encode(), mtime=0)[:-9], 0),
            (zlib.compress(text.encode(), 0), 1),
            # Not what the flag says, but read all the same: stored as it is, twice, without the flag.
            (text.encode(), 0x301),
            (zlib.compress(zlib.compress(text.encode(), 0), 0), 1),
            (zlib.compress(text.encode(), 0), 0),
            (f"\xff {secret}".encode("latin-1"), 0),
        ):
            writer.append(
                "T", body, sys_flag=flags, tags=f"T{secret}", keys=f"order-1 {secret}", unique_key=f"U-{secret}",
                properties={"to": secret, "region": "hz", "DLQ_ORIGIN_MESSAGE_ID": f"U-{secret}"},
            )  # fmt: skip
        batch = [(text.encode(), {"KEYS": secret, "TAGS": secret, "UNIQ_KEY": f"U-{secret}", "to": secret})]
        writer.append_inner_batch("B", batch)
    return writer
