"""Columns of texts, and of lists and maps of texts: a block of bytes, and offsets into it, as Arrow lays them out."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from protocol.host_address import HostAddress
from protocol.java_hash import decode_java
from storage.kernels import texts as kernel
from storage.kernels.message_rows import load_numbers
from storage.kernels.region import Region
from storage.kernels.texts import bytes_at

Numbers = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int32]

NON_ASCII: Final = 0x80
FEW: Final = 256
"""Different texts up to which a column is kept as words and codes."""

MULTIPLIER: Final = secrets.randbits(63) | 1
"""Of the hashes of :mod:`storage.kernels.texts`, another one in each process."""

_NOTHING: Final = Region(b"")


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
        """The text of each row, written out one behind the other."""
        words = TextPlaces.of(self.words)
        # The last one is where −1 leads to: a text that is not there.
        positions, lengths = np.append(words.positions, 0), np.append(words.lengths, -1)
        return words.at(positions[self.codes], lengths[self.codes]).gather()


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


class TextPlaces:
    """Texts that lie here and there in a region: positions and lengths, −1 for none. Some may be put in others' place.

    Those lie in the region of others, and their positions are negative: −1 is its first byte.
    """

    def __init__(self, region: Region, positions: Numbers, lengths: Numbers, others: Region = _NOTHING) -> None:
        """The arrays are its own from now on."""
        self.region, self.others = region, others
        self.positions = np.ascontiguousarray(positions)
        self.lengths = np.ascontiguousarray(lengths)

    @classmethod
    def of(cls, texts: Texts) -> "TextPlaces":
        """Where some texts, of which none is missing, lie in their block."""
        return cls(
            Region(texts.data.data), texts.offsets[:-1].astype(np.int64), np.diff(texts.offsets).astype(np.int64)
        )

    def at(self, positions: Numbers, lengths: Numbers) -> "TextPlaces":
        """Other texts of the same memory."""
        return TextPlaces(self.region, positions, lengths, self.others)

    @property
    def parts(self) -> tuple[Region, Region, Numbers, Numbers]:
        """The arguments by which kernels take these texts."""
        return self.region, self.others, self.positions, self.lengths

    def put(self, rows: Sequence[int], texts: Sequence[bytes]) -> None:
        """Let some be other texts."""
        before = bytes_at(self.others, 0, self.others.size)
        self.others, starts, sizes = hold([before, *texts])
        self.positions[rows] = -1 - starts[1:]
        self.lengths[rows] = sizes[1:]

    def text(self, row: int) -> bytes:
        """One of the texts, copied; of no bytes where it is not there."""
        position, length = int(self.positions[row]), int(self.lengths[row])
        return bytes_at(self.region, position, length) if position >= 0 else bytes_at(self.others, ~position, length)

    def as_utf8(self) -> "TextPlaces":
        """Replace texts that are not UTF-8 by what Java decodes them to."""
        found = np.empty(len(self.lengths), np.int64)
        count = kernel.find_holding(*self.parts, None, found)
        rows, texts = [], []
        for row in found[:count].tolist():
            data = self.text(row)
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
        kernel.copy_texts(*self.parts, offsets, data)
        return Texts(offsets, data, None if is_whole else lengths >= 0)

    def gather_utf8(self) -> Texts:
        """The texts, copied, what is no UTF-8 decoded as Java does."""
        texts = self.gather()
        return texts if is_ascii(texts) else self.as_utf8().gather()

    def gather_repeated(self) -> AnyTexts:
        """The texts, each different one copied once if they are few."""
        codes = np.empty(len(self.lengths), np.int32)
        positions, lengths = np.empty(FEW, np.int64), np.empty(FEW, np.int64)
        count = kernel.code_texts(*self.parts, MULTIPLIER, codes, positions, lengths)
        if count == kernel.TOO_MANY:
            return self.gather()
        return RepeatedTexts(codes, self.at(positions[:count], lengths[:count]).gather())

    def gather_repeated_utf8(self) -> AnyTexts:
        """As :meth:`gather_repeated`, what is no UTF-8 decoded as Java does."""
        texts = self.gather_repeated()
        if is_ascii(texts):
            return texts
        if isinstance(texts, Texts):
            return self.as_utf8().gather()
        return RepeatedTexts(texts.codes, TextPlaces.of(texts.words).as_utf8().gather())


def is_ascii(texts: AnyTexts) -> bool:
    """Whether no text has a byte of 0x80 or above; one pass over what lies side by side, far below a visit to each."""
    data = texts.words.data if isinstance(texts, RepeatedTexts) else texts.data
    return not data.size or int(data.max()) < NON_ASCII


def hold(texts: Sequence[bytes]) -> tuple[Region, Numbers, Numbers]:
    """Texts side by side in a region, where each lies, and their lengths."""
    sizes = np.array([len(text) for text in texts], np.int64)
    return Region(b"".join(texts)), np.cumsum(sizes) - sizes, sizes


def gather_keys(places: TextPlaces) -> TextLists:
    """KEYS as lists of keys; none where there are none."""
    keys = _split_keys(places)
    return keys if is_ascii(keys.texts) else _split_keys(places.as_utf8())


def _split_keys(places: TextPlaces) -> TextLists:
    room = int(np.maximum(places.lengths, 0).sum()) // 2 + len(places.lengths) + 1
    counts, starts, sizes = (np.empty(size, np.int64) for size in (len(places.lengths), room, room))
    total = kernel.split_keys(*places.parts, counts, starts, sizes)
    return TextLists(offsets_of(counts), places.at(starts[:total], sizes[:total]).gather())


def gather_hosts(region: Region, positions: Numbers, is_v6: npt.NDArray[np.bool_]) -> AnyTexts:
    """IP addresses and ports as texts; an IPv4 host that many messages one behind the other have is written once."""
    positions = np.ascontiguousarray(positions)
    if is_v6.any():
        return _host_texts(region, positions, is_v6).gather_repeated()
    hosts = np.empty(len(positions), np.int64)
    load_numbers(region, positions, 0, 64, hosts)
    starts = np.flatnonzero(np.concatenate([[True], hosts[1:] != hosts[:-1]])[: len(hosts)])
    places = _host_texts(region, positions[starts], is_v6[starts])
    repeats = np.diff(starts, append=len(hosts))
    texts = places.gather_repeated()
    if isinstance(texts, RepeatedTexts):
        return RepeatedTexts(np.repeat(texts.codes, repeats), texts.words)
    return places.at(np.repeat(places.positions, repeats), np.repeat(places.lengths, repeats)).gather()


def _host_texts(region: Region, positions: Numbers, is_v6: npt.NDArray[np.bool_]) -> TextPlaces:
    count = len(positions)
    texts, lengths = np.empty(count * kernel.HOST_ROOM, np.uint8), np.empty(count, np.int64)
    kernel.write_hosts(region, positions, texts, lengths)
    places = TextPlaces(Region(texts.data), kernel.HOST_ROOM * np.arange(count), lengths)
    rows = np.flatnonzero(is_v6).tolist()
    if rows:
        packed = [bytes_at(region, int(positions[row]), 20) for row in rows]
        places.put(rows, [str(HostAddress.unpack(host)).encode() for host in packed])
    return places


def offsets_of(counts: Numbers) -> Offsets:
    """Compute the offset of each list in their concatenation, and the end of the last."""
    offsets = np.zeros(len(counts) + 1, np.int32)
    offsets[1:] = np.cumsum(counts)
    return offsets
