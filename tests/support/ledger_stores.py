"""Small stores of DLedger's, for what converts them."""

import os
from pathlib import Path
from typing import Any

from oracles import packed
from store_writer import StoreWriter, Written

SEGMENT = 8192
HALF_TOPIC, COMMIT = "RMQ_SYS_TRANS_HALF_TOPIC", 0x8
TIMER_UNIT = 52


class Ledger:
    """A store of DLedger's with what a conversion has to move: transactions, timers, entries without a record."""

    def __init__(self, root: Path, **options: Any) -> None:
        self.root = root
        self.writer = StoreWriter(root, **{"is_ledger": True, "segment_size": SEGMENT, **options})
        self.halves: list[Written] = []
        self.commits: list[Written] = []
        self.timers: list[Written] = []

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
