"""The properties of messages, taken apart once: as maps, and the values of single names."""

from typing import Final

import numpy as np

from protocol.properties import parse_properties
from storage.columns.texts import (
    FEW,
    MULTIPLIER,
    Numbers,
    Places,
    RepeatedTexts,
    TextMaps,
    bytes_at,
    hold,
    is_ascii,
    offsets_of,
    word_table,
)
from storage.kernels import gather
from storage.kernels import words as kernel

_MORE: Final = 64
"""So many times more names are made room for where there is none."""


class Properties:
    """Some property blocks, by the broker's rules: what has no name or no value is none, the last one of a name counts.

    The memory that they lie in must be kept; records lie around them.
    """

    def __init__(self, addresses: Numbers, lengths: Numbers) -> None:
        """Take them apart."""
        self._blocks = Places(addresses, lengths)
        self._sizes = np.empty(len(lengths), np.int64)
        pairs = np.empty((kernel.PAIR, int(lengths.sum()) // 3 + 1), np.int64)
        room, total = FEW, kernel.TOO_MANY
        while total == kernel.TOO_MANY:
            words, slots = word_table(room)
            newest = np.full(room, -1, np.int64)
            total = kernel.split_properties(*self._places, MULTIPLIER, self._sizes, pairs, words, slots, newest)
            room = min(room * _MORE, pairs.shape[1])
        self._pairs, self._total = pairs, total
        self._words = Places(*words[: np.count_nonzero(newest >= 0)].T)

    @property
    def _places(self) -> tuple[Numbers, Numbers]:
        return self._blocks.addresses, self._blocks.lengths

    def of(self, name: bytes) -> Places:
        """Where the values of one name lie, which is ASCII."""
        addresses, lengths = np.zeros(len(self._sizes), np.int64), np.full(len(self._sizes), -1, np.int64)
        words = self._words
        for code in np.flatnonzero(words.lengths == len(name)).tolist():
            if bytes_at(int(words.addresses[code]), len(name)) == name:
                kernel.places_of_name(self._sizes, self._pairs, code, addresses, lengths)
        return Places(addresses, lengths)

    def maps(self) -> TextMaps:
        """All of them. Blocks that are no UTF-8 are decoded as Java does, and parsed one by one."""
        codes, starts, sizes = self._pairs[:, : self._total]
        names = RepeatedTexts(codes.astype(np.int32), self._words.gather())
        values = Places(starts, sizes).gather()
        # What is not ASCII is rare: the blocks are only looked into where the texts have some.
        if (is_ascii(names) and is_ascii(values)) or not (odd := self._no_utf8()):
            return TextMaps(offsets_of(self._sizes), names, values)
        return self._with_parsed(odd)

    def _no_utf8(self) -> list[int]:
        """Blocks that Java decodes otherwise than they stand there."""
        found = np.empty(len(self._sizes), np.int64)
        count = gather.find_non_ascii(*self._places, found)
        return [row for row in found[:count].tolist() if not _is_utf8(self._block(row))]

    def _block(self, row: int) -> bytes:
        return bytes_at(int(self._blocks.addresses[row]), int(self._blocks.lengths[row]))

    def _with_parsed(self, odd: list[int]) -> TextMaps:
        """Maps of which some are parsed here, in the place of what the kernel found."""
        codes, value_starts, value_sizes = self._pairs[:, : self._total]
        pairs = np.stack([self._words.addresses[codes], self._words.lengths[codes], value_starts, value_sizes])
        owners = np.repeat(np.arange(len(self._sizes)), self._sizes)
        kept = ~np.isin(owners, odd)
        parsed = {row: list(parse_properties(self._block(row)).items()) for row in odd}
        texts = [text.encode() for row in odd for pair in parsed[row] for text in pair]
        memory, starts, sizes = hold(texts)
        more = np.stack([starts[0::2], sizes[0::2], starts[1::2], sizes[1::2]])
        new_owners = np.repeat(odd, [len(parsed[row]) for row in odd])
        order = np.argsort(np.concatenate([owners[kept], new_owners]), kind="stable")
        joined = np.concatenate([pairs[:, kept], more], axis=1)[:, order]
        counts = self._sizes.copy()
        counts[odd] = [len(parsed[row]) for row in odd]
        names, values = Places(joined[0], joined[1]).gather_repeated(), Places(joined[2], joined[3]).gather()
        del memory  # held until here
        return TextMaps(offsets_of(counts), names, values)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
