"""`config/timercheck`: how far a broker has come with its timer messages, in the first bytes of a file of 4,096.

TIMER_CHECK
offset  size  type   field                      meaning
0       8     i64    last_read_timestamp        what was due before is delivered, ms
8       8     i64    last_timer_log_position    up to where timerlog/ was flushed
16      8     i64    last_queue_offset          the next message of the timer topic's queue 0 that the timer reads
24      8     i64    master_queue_offset        the same, of a slave's master
32      8     i64    state_version
40      8     i64    changed_timestamp          when the checkpoint was last changed, ms
48      8     i64    counter                    how often

There is no checksum and no magic. Source: store-format §8.2, §9.
"""

from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final, Self

from protocol.errors import StoreError
from storage.files.mapped_file import read_head

TIMER_CHECK: Final = Struct(">qqqqqqq")
TIMER_CHECK_FILE: Final = "timercheck"


@dataclass(frozen=True, slots=True)
class TimerCheck:
    """The fields that say which timer messages are delivered; times in ms."""

    last_read_timestamp: int
    last_queue_offset: int

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The checkpoint in a file; None where there is no file, or where no timer has run yet.

        Raises TruncatedFile where it is too short, and another StoreError where it cannot be read or holds negative
        numbers.
        """
        try:
            head = read_head(path, TIMER_CHECK.size)
        except StoreError as error:
            if isinstance(error.__cause__, FileNotFoundError):
                return None
            raise
        read_timestamp, _, queue_offset, *_ = TIMER_CHECK.unpack(head)
        if read_timestamp < 0 or queue_offset < 0:
            raise StoreError(path, expected="a time and a queue offset", found=f"{read_timestamp} and {queue_offset}")
        return cls(read_timestamp, queue_offset) if read_timestamp else None
