"""Columns of texts, and of lists and maps of texts: a block of bytes, and offsets into it, as Arrow lays them out."""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from protocol.host_address import HostAddress
from protocol.java_hash import decode_java
from protocol.properties import parse_properties
from storage.kernels import gather as kernel
from storage.kernels.message_rows import load_numbers

Numbers = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int32]

NON_ASCII: Final = 0x80


@dataclass(frozen=True, slots=True)
class Texts:
    """Text i is `data[offsets[i] : offsets[i + 1]]`; `present` says which are there, None that all are."""

    offsets: Offsets
    data: npt.NDArray[np.uint8]
    present: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class TextLists:
    """List i is texts [offsets[i], offsets[i + 1])."""

    offsets: Offsets
    texts: Texts


@dataclass(frozen=True, slots=True)
class TextMaps:
    """Map i is the names and values [offsets[i], offsets[i + 1])."""

    offsets: Offsets
    names: Texts
    values: Texts


class Places:
    """Texts that lie here and there: addresses and lengths, −1 for none. Some may be put in the place of others."""

    def __init__(self, addresses: Numbers, lengths: Numbers) -> None:
        """The arrays are its own from now on; who made them keeps the memory alive."""
        self.addresses = np.ascontiguousarray(addresses)
        self.lengths = np.ascontiguousarray(lengths)
        self._held: list[npt.NDArray[np.uint8]] = []

    def put(self, rows: Sequence[int], texts: Sequence[bytes]) -> None:
        """Let some be other texts."""
        memory, starts, sizes = hold(texts)
        self._held.append(memory)
        self.addresses[rows] = starts
        self.lengths[rows] = sizes

    def keep(self, memory: npt.NDArray[np.uint8]) -> None:
        """Keep alive what some of them lie in."""
        self._held.append(memory)

    def as_utf8(self) -> "Places":
        """The same, what is no UTF-8 decoded as Java does."""
        found = np.empty(len(self.addresses), np.int64)
        count = kernel.find_non_ascii(self.addresses, self.lengths, found)
        rows, texts = [], []
        for row in found[:count].tolist():
            data = bytes_at(int(self.addresses[row]), int(self.lengths[row]))
            if (text := decode_java(data).encode()) != data:
                rows.append(row)
                texts.append(text)
        if rows:
            self.put(rows, texts)
        return self

    def gather(self) -> Texts:
        """The texts, copied."""
        lengths = self.lengths
        # Most columns lack nothing, and are millions of short texts: each pass over them counts.
        is_whole = not len(lengths) or int(lengths.min()) >= 0
        offsets = np.zeros(len(lengths) + 1, np.int32)
        np.cumsum(lengths if is_whole else np.maximum(lengths, 0), dtype=np.int32, out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        kernel.copy_texts(self.addresses, lengths, offsets, data.ctypes.data)
        return Texts(offsets, data, None if is_whole else lengths >= 0)

    def gather_utf8(self) -> Texts:
        """The texts, copied, what is no UTF-8 decoded as Java does."""
        texts = self.gather()
        return texts if is_ascii(texts) else self.as_utf8().gather()


def is_ascii(texts: Texts) -> bool:
    """Whether no text has a byte of 0x80 or above; one pass over what lies side by side, far below a visit to each."""
    return not texts.data.size or int(texts.data.max()) < NON_ASCII


def bytes_at(address: int, length: int) -> bytes:
    """Bytes of memory, copied."""
    return ctypes.string_at(address, length) if length > 0 else b""


def hold(texts: Sequence[bytes]) -> tuple[npt.NDArray[np.uint8], Numbers, Numbers]:
    """Texts side by side in memory, where each lies, and their lengths."""
    memory = np.frombuffer(b"".join(texts) + b"\0", np.uint8)
    sizes = np.array([len(text) for text in texts], np.int64)
    return memory, memory.ctypes.data + np.cumsum(sizes) - sizes, sizes


def gather_keys(places: Places) -> TextLists:
    """KEYS as lists of keys; none where there are none."""
    keys = _split_keys(places)
    return keys if is_ascii(keys.texts) else _split_keys(places.as_utf8())


def _split_keys(places: Places) -> TextLists:
    room = int(np.maximum(places.lengths, 0).sum()) // 2 + len(places.lengths) + 1
    counts, starts, sizes = (np.empty(size, np.int64) for size in (len(places.lengths), room, room))
    total = kernel.split_keys(places.addresses, places.lengths, counts, starts, sizes)
    return TextLists(_offsets(counts), Places(starts[:total], sizes[:total]).gather())


def gather_properties(addresses: Numbers, lengths: Numbers) -> TextMaps:
    """Property blocks as maps. Blocks that are no UTF-8, or have very many properties, are parsed one by one."""
    blocks = Places(addresses, lengths)
    counts, pairs = np.empty(len(addresses), np.int64), np.empty((4, int(lengths.sum()) // 3 + 1), np.int64)
    total = kernel.split_properties(blocks.addresses, blocks.lengths, counts, pairs)
    odd = set(np.flatnonzero(counts == kernel.TOO_MANY).tolist())
    if not odd:
        names = Places(pairs[0, :total], pairs[1, :total]).gather()
        values = Places(pairs[2, :total], pairs[3, :total]).gather()
        # What is not ASCII is rare: the blocks are only looked into where the texts have some.
        if (is_ascii(names) and is_ascii(values)) or not (odd := _no_utf8(blocks)):
            return TextMaps(_offsets(counts), names, values)
    else:
        odd |= _no_utf8(blocks)
    return _gather_odd(blocks, np.maximum(counts, 0), pairs[:, :total], sorted(odd))


def gather_hosts(addresses: Numbers, is_v6: npt.NDArray[np.bool_]) -> Texts:
    """IP addresses and ports as texts; an IPv4 host that many messages one behind the other have is written once."""
    addresses = np.ascontiguousarray(addresses)
    if is_v6.any():
        return _host_texts(addresses, is_v6).gather()
    hosts = np.empty(len(addresses), np.int64)
    load_numbers(0, addresses, 0, 64, hosts)
    starts = np.flatnonzero(np.concatenate([[True], hosts[1:] != hosts[:-1]])[: len(hosts)])
    texts = _host_texts(addresses[starts], is_v6[starts])
    repeats = np.diff(starts, append=len(hosts))
    places = Places(np.repeat(texts.addresses, repeats), np.repeat(texts.lengths, repeats))
    gathered = places.gather()
    del texts  # held until here
    return gathered


def _host_texts(addresses: Numbers, is_v6: npt.NDArray[np.bool_]) -> Places:
    """The texts, which the places hold."""
    room, lengths = np.empty(len(addresses) * kernel.HOST_ROOM, np.uint8), np.empty(len(addresses), np.int64)
    kernel.write_hosts(addresses, room.ctypes.data, lengths)
    places = Places(room.ctypes.data + kernel.HOST_ROOM * np.arange(len(addresses)), lengths)
    places.keep(room)
    rows = np.flatnonzero(is_v6).tolist()
    if rows:
        places.put(rows, [str(HostAddress.unpack(bytes_at(int(addresses[row]), 20))).encode() for row in rows])
    return places


def _no_utf8(blocks: Places) -> set[int]:
    """Blocks that Java decodes otherwise than they stand there."""
    found = np.empty(len(blocks.addresses), np.int64)
    count = kernel.find_non_ascii(blocks.addresses, blocks.lengths, found)
    return {row for row in found[:count].tolist() if not _is_utf8(_block(blocks, row))}


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _block(blocks: Places, row: int) -> bytes:
    return bytes_at(int(blocks.addresses[row]), int(blocks.lengths[row]))


def _gather_odd(blocks: Places, counts: Numbers, pairs: Numbers, odd: list[int]) -> TextMaps:
    """Maps of which some are parsed here, in the place of what the kernel found."""
    owners = np.repeat(np.arange(len(counts)), counts)
    kept = ~np.isin(owners, odd)
    parsed = {row: list(parse_properties(_block(blocks, row)).items()) for row in odd}
    texts = [text.encode() for row in odd for pair in parsed[row] for text in pair]
    memory, starts, sizes = hold(texts)
    more = np.stack([starts[0::2], sizes[0::2], starts[1::2], sizes[1::2]])
    new_owners = np.repeat(odd, [len(parsed[row]) for row in odd])
    order = np.argsort(np.concatenate([owners[kept], new_owners]), kind="stable")
    joined = np.concatenate([pairs[:, kept], more], axis=1)[:, order]
    counts = counts.copy()
    counts[odd] = [len(parsed[row]) for row in odd]
    names, values = Places(joined[0], joined[1]).gather(), Places(joined[2], joined[3]).gather()
    del memory  # held until here
    return TextMaps(_offsets(counts), names, values)


def _offsets(counts: Numbers) -> Offsets:
    offsets = np.zeros(len(counts) + 1, np.int32)
    offsets[1:] = np.cumsum(counts)
    return offsets
