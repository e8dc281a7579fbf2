"""Build the extension of a queue: a unit without filter bitmap for each message.

A bitmap depends on the filters that were registered when a message was stored, which the log does not say; readers
take a unit without one as a match and look at the message. Source: store-format §5.7.
"""

from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from storage.build.queue_file_writer import QueueFileWriter
from storage.queue.consume_queue import UNIT_DTYPE
from storage.queue.consume_queue_ext import ADDRESS_BASE, HEAD, HEAD_DTYPE

END_ROOM: Final = 4
"""Bytes that a broker keeps free in each file for the end marker."""

END_MARKER: Final = b"\xff\xff"


class QueueExtBuilder:
    """Writes the extension files of one queue into `directory`."""

    def __init__(self, directory: Path, file_size: int) -> None:
        """Start an empty extension."""
        self._directory, self._file_size = directory, file_size
        self._in_file = (file_size - END_ROOM) // HEAD.size
        self._writer: QueueFileWriter | None = None
        self._count = 0

    def put(self, units: memoryview, timestamps: npt.NDArray[np.int64]) -> memoryview:
        """Add a unit for each plain unit, stored at these times; the plain units with addresses for tags codes."""
        if self._writer is None:
            self._writer = QueueFileWriter(self._directory, self._file_size)
        plain = np.frombuffer(units, UNIT_DTYPE).copy()
        numbers = np.arange(self._count, self._count + len(plain))
        heads = np.zeros(len(plain), HEAD_DTYPE)
        heads["size"] = HEAD.size
        heads["tags_code"] = plain["tags_code"]
        heads["store_timestamp"] = timestamps
        plain["tags_code"] = (
            ADDRESS_BASE + numbers // self._in_file * self._file_size + numbers % self._in_file * HEAD.size
        )
        self._append(heads.view(np.uint8).data)
        return plain.view(np.uint8).data

    def discard(self) -> None:
        """Remove everything and start over."""
        if self._writer:
            self._writer.discard()
        self._writer, self._count = None, 0

    def finish(self) -> int:
        """Bring to the files what is in memory; the number of units."""
        if self._writer:
            self._writer.finish()
        return self._count

    def _append(self, heads: memoryview) -> None:
        """Write units, the end marker behind the last one of each file before the next one is begun."""
        assert self._writer is not None
        while len(heads):
            inside = self._count % self._in_file
            if self._count and not inside:
                rest = self._file_size - self._in_file * HEAD.size
                self._writer.append(END_MARKER + bytes(rest - len(END_MARKER)))
            part = heads[: (self._in_file - inside) * HEAD.size]
            self._writer.append(part)
            self._count += len(part) // HEAD.size
            heads = heads[len(part) :]
