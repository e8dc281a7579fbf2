"""The extension of a queue: units too long for a ConsumeQueue, with the time and the filter bitmap of a message.

A broker with `enableConsumeQueueExt` writes one for each message, before the message's 20-byte unit, whose tags code
then holds the address of the extension unit: its byte offset in the extension's files, moved to the smallest numbers
of an i64, where no sign-extended tag hash lies.

HEAD
offset  size  type   field            meaning
0       2     i16    size             of the whole unit, 20 to 32,767; ≤ 0 ends the file
2       8     i64    tags_code        as in a 20-byte unit without extension
10      8     i64    store_timestamp  the broker's clock, ms
18      2     i16    bitmap_size      ≤ 0: no bitmap

The bitmap follows the head: bit i is bit i mod 8 of byte i div 8. Source: store-format §5.7, filters §3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final

from protocol.errors import StoreError
from storage.files.open_files import OpenFiles
from storage.files.waiting import Lookup
from storage.queue.queue_files import QueueFiles

HEAD: Final = Struct(">hqqh")
HEAD_DTYPE: Final = [("size", ">i2"), ("tags_code", ">i8"), ("store_timestamp", ">i8"), ("bitmap_size", ">i2")]
LARGEST_ADDRESS: Final = -(1 << 31) - 1
ANY_TAG: Final = LARGEST_ADDRESS
"""The tags code of a unit whose tag is not known, though its message is: an address that is too large for a file."""

ADDRESS_BASE: Final = -(1 << 63)
"""The number that is added to a byte offset to get an address."""


@dataclass(frozen=True, slots=True)
class ConsumeQueueExtUnit:
    """One extension unit; `bitmap` is None for a message for which no registered filter was evaluated."""

    size: int
    tags_code: int
    store_timestamp: int
    bitmap: bytes | None


def is_extension_address(tags_code: int) -> bool:
    """Whether a unit's tags code is the address of an extension unit: no tag's hash is that small."""
    return tags_code <= LARGEST_ADDRESS


class ConsumeQueueExt:
    """The extension files of one queue; any of them may be missing, and an address in a missing one has no unit."""

    __slots__ = ("_files",)

    def __init__(self, directory: Path, open_files: OpenFiles) -> None:
        self._files = QueueFiles(directory, 1, open_files)

    def unit_at(self, address: int) -> Lookup[ConsumeQueueExtUnit | None]:
        """Return the unit at an address (a tags code), or None where there is no whole unit."""
        if not is_extension_address(address):
            return None
        try:
            return (yield from self._decode(address - ADDRESS_BASE))
        except StoreError:  # a unit in an unreadable file, or one that reaches beyond its file, counts as lost
            return None

    def _decode(self, position: int) -> Lookup[ConsumeQueueExtUnit | None]:
        head = yield from self._files.read_lookup(position, HEAD.size)
        if head is None:
            return None
        size, tags_code, store_timestamp, bitmap_size = HEAD.unpack(head)
        if size != HEAD.size + max(bitmap_size, 0):
            return None
        if bitmap_size <= 0:
            return ConsumeQueueExtUnit(size, tags_code, store_timestamp, None)
        # The whole unit is read again, in one piece, because it is in one file: bytes of the next file are not its own.
        unit = yield from self._files.read_lookup(position, HEAD.size + bitmap_size)
        if unit is None:
            return None
        return ConsumeQueueExtUnit(size, tags_code, store_timestamp, bytes(unit[HEAD.size :]))
