"""The properties of messages, taken apart once: as maps, and the values of single names."""

from typing import Final

import numpy as np

from protocol.properties import parse_properties
from storage.columns.texts import (
    FEW,
    MULTIPLIER,
    Numbers,
    RepeatedTexts,
    TextMaps,
    TextPlaces,
    hold,
    is_ascii,
    offsets_of,
)
from storage.kernels import texts as kernel
from storage.kernels.region import Region

_MORE: Final = 64
"""Growth factor of the name table."""


class Properties:
    """Property blocks of records, parsed by the broker's rules: without a name or a value a property is dropped.

    Of several with one name the last counts. The blocks lie inside their records.
    """

    def __init__(self, region: Region, positions: Numbers, lengths: Numbers) -> None:
        """Parse the blocks in place; `positions` and `lengths` are in bytes of the region."""
        self._blocks = TextPlaces(region, positions, lengths)
        self._sizes = np.empty(len(lengths), np.int64)
        most = int(lengths.sum()) // 3 + 1
        codes, starts, sizes = np.empty(most, np.int32), np.empty(most, np.int64), np.empty(most, np.int64)
        room, total = FEW, kernel.TOO_MANY
        while total == kernel.TOO_MANY:
            words = self._blocks.at(np.empty(room, np.int64), np.empty(room, np.int64))
            found = kernel.split_properties(
                region,
                self._blocks.positions,
                self._blocks.lengths,
                MULTIPLIER,
                self._sizes,
                codes,
                starts,
                sizes,
                words.positions,
                words.lengths,
            )
            total = found.pairs
            room = min(room * _MORE, most)
        self._codes, self._values = codes[:total], self._blocks.at(starts[:total], sizes[:total])
        self._words = words.at(words.positions[: found.words], words.lengths[: found.words])

    def of(self, name: bytes) -> TextPlaces:
        """Where the values of one name lie, which is ASCII."""
        positions, lengths = np.zeros(len(self._sizes), np.int64), np.full(len(self._sizes), -1, np.int64)
        words, values = self._words, self._values
        for code in np.flatnonzero(words.lengths == len(name)).tolist():
            if words.text(code) == name:
                kernel.places_of_name(
                    self._sizes, self._codes, values.positions, values.lengths, code, positions, lengths
                )
        return self._blocks.at(positions, lengths)

    def maps(self) -> TextMaps:
        """All of them. Blocks that are no UTF-8 are decoded as Java does, and parsed one by one."""
        names = RepeatedTexts(self._codes.copy(), self._words.gather())
        values = self._values.gather()
        # What is not ASCII is rare: the blocks are only looked into where the texts have some.
        if (is_ascii(names) and is_ascii(values)) or not (odd := self._no_utf8()):
            return TextMaps(offsets_of(self._sizes), names, values)
        return self._with_parsed(odd)

    def _no_utf8(self) -> list[int]:
        """Blocks that Java decodes otherwise than they stand there."""
        found = np.empty(len(self._sizes), np.int64)
        count = kernel.find_holding(*self._blocks.parts, None, found)
        return [row for row in found[:count].tolist() if not _is_utf8(self._blocks.text(row))]

    def _with_parsed(self, odd: list[int]) -> TextMaps:
        """Replace some of the kernel's maps by maps that are parsed here."""
        codes, words, values = self._codes, self._words, self._values
        pairs = np.stack([words.positions[codes], words.lengths[codes], values.positions, values.lengths])
        owners = np.repeat(np.arange(len(self._sizes)), self._sizes)
        kept = ~np.isin(owners, odd)
        parsed = {row: list(parse_properties(self._blocks.text(row)).items()) for row in odd}
        texts = [text.encode() for row in odd for pair in parsed[row] for text in pair]
        others, starts, sizes = hold(texts)
        starts = -1 - starts
        more = np.stack([starts[0::2], sizes[0::2], starts[1::2], sizes[1::2]])
        new_owners = np.repeat(odd, [len(parsed[row]) for row in odd])
        order = np.argsort(np.concatenate([owners[kept], new_owners]), kind="stable")
        joined = np.concatenate([pairs[:, kept], more], axis=1)[:, order]
        counts = self._sizes.copy()
        counts[odd] = [len(parsed[row]) for row in odd]
        region = self._blocks.region
        names = TextPlaces(region, joined[0], joined[1], others).gather_repeated()
        return TextMaps(offsets_of(counts), names, TextPlaces(region, joined[2], joined[3], others).gather())


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
