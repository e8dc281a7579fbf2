"""The checkpoint: what a broker's last complete flushes covered, in the first bytes of a file of 4,096.

CHECKPOINT
offset  size  type   field                      meaning
0       8     i64    physic_msg_timestamp       of the last message of a complete flush of the log, ms
8       8     i64    logics_msg_timestamp       of a message that the queues hold, ms
16      8     i64    index_msg_timestamp        of the last message of the last full index file, ms
24      8     i64    master_flushed_offset      on slaves only
32      8     i64    confirm_physical_offset    start of the last valid record at recovery; not the log's end
40      8     i64    logics_physical_offset     from 5.5.0 on: up to where the queues were flushed; 0 before

There is no checksum and no magic, so these are hints. Source: store-format §6.1, §10.
"""

from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final, Self

from storage.files.mapped_file import read_head

CHECKPOINT: Final = Struct(">qqqqqq")
_MARGIN_MS: Final = 3000


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The fields of a checkpoint file; all 0 in one that a broker made and did not fill yet."""

    physic_msg_timestamp: int
    logics_msg_timestamp: int
    index_msg_timestamp: int
    master_flushed_offset: int
    confirm_physical_offset: int
    logics_physical_offset: int

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The checkpoint in a file; None where there is no file, TruncatedFile where it is too short."""
        if not path.exists():
            return None
        return cls(*CHECKPOINT.unpack(read_head(path, CHECKPOINT.size)))

    @property
    def min_timestamp(self) -> int:
        """Up to when log and queues were both flushed, less a broker's margin of 3 s; ms, not below 0."""
        return max(0, min(self.physic_msg_timestamp, self.logics_msg_timestamp) - _MARGIN_MS)
