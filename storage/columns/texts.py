"""Columns of texts, and of lists and maps of texts: a block of bytes, and offsets into it, as Arrow lays them out."""

import ctypes
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from protocol.host_address import HostAddress
from protocol.java_hash import decode_java
from storage.kernels import gather as kernel
from storage.kernels import words as coding
from storage.kernels.message_rows import load_numbers

Numbers = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int32]

NON_ASCII: Final = 0x80
FEW: Final = 256
"""Different texts up to which a column is kept as words and codes."""

MULTIPLIER: Final = secrets.randbits(63) | 1
"""Of the hashes of :mod:`storage.kernels.words`, another one in each process."""


@dataclass(frozen=True, slots=True)
class Texts:
    """Text i is `data[offsets[i] : offsets[i + 1]]`; `present` says which are there, None that all are."""

    offsets: Offsets
    data: npt.NDArray[np.uint8]
    present: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.offsets) - 1


@dataclass(frozen=True, slots=True)
class RepeatedTexts:
    """Few texts that come again and again: text i is `words[codes[i]]`, and is not there where that is −1."""

    codes: Offsets
    words: Texts

    def __len__(self) -> int:
        return len(self.codes)

    def spread(self) -> Texts:
        """The same texts one behind the other."""
        words = Places.of(self.words)
        # The last one is where −1 leads to: a text that is not there.
        places = Places(np.append(words.addresses, 0)[self.codes], np.append(words.lengths, -1)[self.codes])
        return places.gather()


AnyTexts: TypeAlias = Texts | RepeatedTexts


@dataclass(frozen=True, slots=True)
class TextLists:
    """List i is texts [offsets[i], offsets[i + 1])."""

    offsets: Offsets
    texts: Texts


@dataclass(frozen=True, slots=True)
class TextMaps:
    """Map i is the names and values [offsets[i], offsets[i + 1])."""

    offsets: Offsets
    names: AnyTexts
    values: Texts


class Places:
    """Texts that lie here and there: addresses and lengths, −1 for none. Some may be put in the place of others."""

    def __init__(self, addresses: Numbers, lengths: Numbers) -> None:
        """The arrays are its own from now on; who made them keeps the memory alive."""
        self.addresses = np.ascontiguousarray(addresses)
        self.lengths = np.ascontiguousarray(lengths)
        self._held: list[npt.NDArray[np.uint8]] = []

    @classmethod
    def of(cls, texts: Texts) -> "Places":
        """Where some texts, of which none is missing, lie in their block; they must be kept alive."""
        starts = texts.offsets[:-1].astype(np.int64) + texts.data.ctypes.data
        return cls(starts, np.diff(texts.offsets).astype(np.int64))

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

    def gather_repeated(self) -> AnyTexts:
        """The texts, each different one copied once if they are few."""
        codes, (words, slots) = np.empty(len(self.lengths), np.int32), word_table(FEW)
        count = coding.code_texts(self.addresses, self.lengths, MULTIPLIER, codes, words, slots)
        if count == coding.TOO_MANY:
            return self.gather()
        return RepeatedTexts(codes, Places(*words[:count].T).gather())

    def gather_repeated_utf8(self) -> AnyTexts:
        """As :meth:`gather_repeated`, what is no UTF-8 decoded as Java does."""
        texts = self.gather_repeated()
        if is_ascii(texts):
            return texts
        if isinstance(texts, Texts):
            return self.as_utf8().gather()
        return RepeatedTexts(texts.codes, Places.of(texts.words).as_utf8().gather())


def word_table(room: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Tables for so many words, and for where each is found (:mod:`storage.kernels.words`)."""
    return np.empty((room, coding.WORD), np.int64), np.full(1 << (2 * room).bit_length(), coding.EMPTY, np.int32)


def is_ascii(texts: AnyTexts) -> bool:
    """Whether no text has a byte of 0x80 or above; one pass over what lies side by side, far below a visit to each."""
    data = texts.words.data if isinstance(texts, RepeatedTexts) else texts.data
    return not data.size or int(data.max()) < NON_ASCII


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
    return TextLists(offsets_of(counts), Places(starts[:total], sizes[:total]).gather())


def gather_hosts(addresses: Numbers, is_v6: npt.NDArray[np.bool_]) -> AnyTexts:
    """IP addresses and ports as texts; an IPv4 host that many messages one behind the other have is written once."""
    addresses = np.ascontiguousarray(addresses)
    if is_v6.any():
        return _host_texts(addresses, is_v6).gather_repeated()
    hosts = np.empty(len(addresses), np.int64)
    load_numbers(0, addresses, 0, 64, hosts)
    starts = np.flatnonzero(np.concatenate([[True], hosts[1:] != hosts[:-1]])[: len(hosts)])
    places = _host_texts(addresses[starts], is_v6[starts])
    repeats = np.diff(starts, append=len(hosts))
    texts = places.gather_repeated()
    if isinstance(texts, RepeatedTexts):
        return RepeatedTexts(np.repeat(texts.codes, repeats), texts.words)
    return Places(np.repeat(places.addresses, repeats), np.repeat(places.lengths, repeats)).gather()


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


def offsets_of(counts: Numbers) -> Offsets:
    """Where each of some lists starts in what all of them hold, and where the last one ends."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    offsets[1:] = np.cumsum(counts)
    return offsets
