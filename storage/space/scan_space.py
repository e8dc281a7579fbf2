"""Count the messages of one segment, or of the part of it that is valid, in one pass over it at the log's speed.

Only what lies beside the bodies is read: a body that is damaged is counted as if it were not.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from protocol.born_host import BornHost, sender_behind_proxy
from protocol.errors import StoreError
from protocol.properties import BORN_HOST
from storage.columns.properties import Properties
from storage.columns.rows import PIECE_BYTES, MessageRows, RowReader
from storage.columns.texts import MULTIPLIER
from storage.columns.wanted import ALL_TIMES, Wanted
from storage.kernels import records as codes
from storage.kernels.message_rows import load_numbers
from storage.kernels.region import Region
from storage.kernels.texts import bytes_at, code_texts, find_holding
from storage.log.log_window import LocalFile, LogWindow
from storage.space.tally import HOUR_MS, MOST_LARGEST, Tally

WIDEST_TABLE: Final = 4
"""Pairs that there might be, a message, up to which they are counted in a table of all of them, without sorting."""

_NOTHING: Final = Region(b"")
Numbers = npt.NDArray[np.int64]


class SegmentPart(msgspec.Struct, frozen=True):
    """The first `stop` bytes of the segment in a file; the next segment starts at the physical offset `boundary`.

    Of its messages those count that were stored between `times`, in ms, both included.
    """

    path: str
    base_offset: int
    stop: int
    boundary: int
    times: tuple[int, int] = ALL_TIMES


def tally_segment(part: SegmentPart, check: Callable[[], None] = lambda: None) -> Tally:
    """What a segment holds; one that was deleted meanwhile is `gone`.

    `check` is called for each block of it, and ends the counting by what it raises. Raises StoreError where the file
    cannot be read, or was cut meanwhile.
    """
    tally = Tally()
    try:
        file = LocalFile(Path(part.path))
    except StoreError as error:
        # A broker deletes segments, never their directory: without that the path is wrong, or not seen from here.
        if not isinstance(error.__cause__, FileNotFoundError) or not Path(part.path).parent.is_dir():
            raise
        tally.add_gone(part.base_offset, part.base_offset + part.stop)
        return tally
    with LogWindow(file, part.base_offset, PIECE_BYTES) as window:
        reader = RowReader(
            window, Wanted(times=part.times), names=True, checksums=False, apart=False, boundary=part.boundary
        )
        for rows in reader.read(0, part.stop):
            check()
            add_rows(tally, rows)
    for damaged in reader.damage:
        tally.add_damage(damaged.start, damaged.stop)
    tally.shrink()
    return tally


class _Coded:
    """The different ones among some texts: `code_of` each text, −1 for one that is not there, and where each lies."""

    def __init__(self, region: Region, positions: Numbers, lengths: Numbers) -> None:
        count = len(positions)
        self._region = region
        self.code_of = np.empty(count, np.int32)
        self._positions, self._lengths = np.empty(count, np.int64), np.empty(count, np.int64)
        self.count = code_texts(
            region, _NOTHING, positions, lengths, MULTIPLIER, self.code_of, self._positions, self._lengths
        )
        self._words: dict[int, bytes] = {}

    def word(self, code: int) -> bytes:
        """The text of a code."""
        if code not in self._words:
            self._words[code] = bytes_at(self._region, int(self._positions[code]), int(self._lengths[code]))
        return self._words[code]


def add_rows(tally: Tally, rows: MessageRows) -> None:
    """Count a block of messages."""
    sizes = rows.column("size")
    count, starts = len(sizes), rows.column("position")
    if not count:
        return
    flags, stored = np.empty(count, np.int64), np.empty(count, np.int64)
    load_numbers(rows.region, starts, codes.SYS_FLAG, 32, flags)
    load_numbers(rows.region, rows.column("store_host"), -8, 64, stored)
    tally.messages += count
    tally.size += int(sizes.sum())
    tally.oldest, tally.newest = min(tally.oldest, int(stored.min())), max(tally.newest, int(stored.max()))
    topics = _Coded(rows.region, rows.column("topic"), rows.column("topic_length"))
    queues = _Coded(rows.region, starts + codes.QUEUE_ID, np.full(count, 4))
    tags = _Coded(rows.region, rows.column("tags"), rows.column("tags_length"))
    for topic, _, messages, size in _pairs(topics.code_of, np.zeros(count, np.int64), 1, sizes):
        tally.topics.add(topics.word(topic), messages, size)
    for topic, queue, messages, size in _pairs(topics.code_of, queues.code_of, queues.count, sizes):
        queue_id = int.from_bytes(queues.word(queue), "big", signed=True)
        tally.queues.add((topics.word(topic), queue_id), messages, size)
    # A message without a tag has the code −1.
    for topic, tag, messages, size in _pairs(topics.code_of, tags.code_of + 1, tags.count + 1, sizes):
        tally.tags.add((topics.word(topic), tags.word(tag - 1) if tag else None), messages, size)
    _add_senders(tally, rows, flags, sizes)
    hours, hour_of = np.unique(stored // HOUR_MS, return_inverse=True)
    for hour, _, messages, size in _pairs(hour_of, np.zeros(count, np.int64), 1, sizes):
        tally.hours.add(int(hours[hour]), messages, size)
    _add_largest(tally, rows, sizes)


def _add_senders(tally: Tally, rows: MessageRows, flags: Numbers, sizes: Numbers) -> None:
    """Count who sent the messages: the hosts that proxies name, and the born hosts of all others."""
    named, values = _named_senders(rows)
    senders = [sender_behind_proxy(values.word(code).decode("utf-8", "replace")) for code in range(values.count)]
    # A message whose property has no value has the code −1.
    kept = np.flatnonzero(np.array([*(sender is not None for sender in senders), False])[values.code_of])
    for code, _, messages, size in _pairs(values.code_of[kept], np.zeros(len(kept), np.int64), 1, sizes[named[kept]]):
        tally.hosts.add(_host_key(senders[code]), messages, size)
    direct = np.delete(np.arange(len(sizes)), named[kept])
    hosts = _Coded(rows.region, rows.column("born_host")[direct], np.where(flags[direct] & codes.BORN_HOST_V6, 16, 4))
    for host, _, messages, size in _pairs(hosts.code_of, np.zeros(len(direct), np.int64), 1, sizes[direct]):
        tally.hosts.add(hosts.word(host), messages, size)


def _named_senders(rows: MessageRows) -> tuple[Numbers, "_Coded"]:
    """The messages that a proxy may have passed on, and what it named their senders."""
    starts, lengths = rows.column("properties"), rows.column("properties_length")
    found = np.empty(len(starts), np.int64)
    count = find_holding(rows.region, _NOTHING, starts, lengths, f"{BORN_HOST}\x01".encode(), found)
    named = found[:count]
    if not count:
        return named, _Coded(rows.region, named, named)
    values = Properties(rows.region, starts[named], lengths[named]).of(BORN_HOST.encode())
    return named, _Coded(rows.region, values.positions, values.lengths)


def _host_key(sender: BornHost | None) -> bytes | str:
    assert sender is not None
    return sender.name or b"" if sender.network is None else sender.network.network_address.packed


def _pairs(
    first: npt.NDArray[np.signedinteger], second: npt.NDArray[np.signedinteger], seconds: int, sizes: Numbers
) -> list[tuple[int, int, int, int]]:
    """Each pair of numbers that comes, with how many messages have it, and how many bytes.

    The second ones are below `seconds`.
    """
    if not len(first):
        return []
    keys = first.astype(np.int64) * seconds + second
    largest = int(keys.max())
    if largest < WIDEST_TABLE * len(keys):
        pairs, place = np.arange(largest + 1), keys
    else:
        pairs, place = np.unique(keys, return_inverse=True)
    messages = np.bincount(place, minlength=len(pairs))
    # Sums of a block's sizes are far below the numbers that a float64 holds exactly.
    total = np.bincount(place, weights=sizes, minlength=len(pairs)).astype(np.int64)
    there = np.flatnonzero(messages)
    found = pairs[there]
    columns = (found // seconds, found % seconds, messages[there], total[there])
    return list(zip(*(column.tolist() for column in columns), strict=True))


def _add_largest(tally: Tally, rows: MessageRows, sizes: Numbers) -> None:
    least = tally.largest[0][0] if len(tally.largest) == MOST_LARGEST else 0
    candidates = np.flatnonzero(sizes >= least)
    if len(candidates) > MOST_LARGEST:
        # In the order of the log where sizes are equal, so that those that were stored first are kept.
        order = np.argsort(-sizes[candidates], kind="stable")
        candidates = candidates[order[:MOST_LARGEST]]
    positions = rows.column("position")
    for row in candidates.tolist():
        tally.add_largest(int(sizes[row]), rows.base_offset + int(positions[row]))
