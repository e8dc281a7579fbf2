"""`epochFileCheckpoint`: in controller mode, which master's term each part of the log was written in.

Lines of text: how many entries there are; the CRC-32 of the lines behind (without its highest bit, 0 for not checked);
then an entry a line, `epoch-startOffset`, ascending in both. An epoch reaches up to the next one, the last one to the
end of the log; where a replica cuts its log it drops those that begin behind the cut. Source: store-format §8.5.
"""

import itertools
import re
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from protocol.errors import StoreError
from storage.files.mapped_file import read_piece

EPOCHS: Final = "epochFileCheckpoint"
MOST_BYTES: Final = 4 * 1024 * 1024
_ENTRY: Final = re.compile(rb"([0-9]{1,10})-([0-9]{1,19})")
_HEAD: Final = re.compile(rb"([0-9]{1,10})\r?\n([0-9]{1,10})\r?\n")
_CHECKED_BITS: Final = 0x7FFFFFFF


class Epoch(NamedTuple):
    """A term of a master, and the physical offset of the first message that was written in it."""

    number: int
    start: int


def read_epochs(root: Path) -> list[Epoch]:
    """The epochs of a store, ascending; none where there is no file, or none that a broker would read."""
    for name in (EPOCHS, f"{EPOCHS}.bak"):
        try:
            found = parse_epochs(read_piece(root / name, 0, MOST_BYTES))
        except StoreError:
            continue
        if found:
            return found
    return []


def parse_epochs(data: bytes) -> list[Epoch]:
    """The entries of a file; none where its count or checksum is wrong, or what is no entry is among them."""
    head = _HEAD.match(data)
    if head is None:
        return []
    body = data[head.end() :]
    entries = [_ENTRY.fullmatch(line) for line in body.splitlines()]
    found = [Epoch(int(each[1]), int(each[2])) for each in entries if each is not None]
    checksum = int(head[2])
    is_whole = len(found) == len(entries) == int(head[1])
    if not is_whole or (checksum and zlib.crc32(body) & _CHECKED_BITS != checksum):
        return []
    pairs = itertools.pairwise(found)
    return found if all(one.number < next_.number and one.start < next_.start for one, next_ in pairs) else []
