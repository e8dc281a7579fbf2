"""The kernels of texts at their edges and beside dictionaries; what columns make of it is shown there."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from kernel_memory import Bytes
from storage.kernels import texts as kernel
from storage.kernels.region import Region

MULTIPLIER = 0x2545F4914F6CDD1D
texts = st.sampled_from(
    [b"", b"a", b"b", b"ab", b"abcd", b"abce", b"abcdefgh", b"abcdXfgh", b"abcdefghi", b"zbcdefghi"]
)
Numbers = npt.NDArray[np.int64]


def numbers(*values: int) -> Numbers:
    """Which a kernel does not write."""
    given = np.array(values, np.int64)
    given.flags.writeable = False
    return given


def room(count: int) -> Numbers:
    return np.empty(count, np.int64)


class Placed(NamedTuple):
    """Texts in the form that kernels take them in: two regions, and where each text is."""

    region: Region
    others: Region
    positions: Numbers
    lengths: Numbers


def placed(texts: list[bytes | None]) -> Placed:
    """Texts side by side, those of even rows in the region, the others in that of others."""
    halves, positions = [b"", b""], []
    for row, text in enumerate(texts):
        position = len(halves[row % 2])
        positions.append(-1 - position if row % 2 else position)
        halves[row % 2] += text or b""
    lengths = [-1 if text is None else len(text) for text in texts]
    return Placed(Bytes(halves[0]).region, Bytes(halves[1]).region, numbers(*positions), numbers(*lengths))


@given(texts=st.lists(st.binary(max_size=6), max_size=6), needle=st.binary(min_size=1, max_size=2))
def test_texts_that_hold_some_bytes_are_found(texts: list[bytes], needle: bytes) -> None:
    texts = [*texts, b"a" + needle, needle[:-1]]
    found = np.zeros(len(texts), np.int64)
    count = kernel.find_holding(*placed([*texts]), needle, found)
    assert found[:count].tolist() == [row for row, text in enumerate(texts) if needle in text]


def test_more_texts_than_there_is_room_for_are_too_many() -> None:
    places, codes = placed([b"a", b"b", b"c"]), np.empty(3, np.int32)
    for most, expected in ((3, 3), (2, kernel.TOO_MANY), (0, kernel.TOO_MANY)):
        assert kernel.code_texts(*places, MULTIPLIER, codes, room(most), room(most)) == expected


def test_texts_that_meet_by_the_highest_bits_of_their_words_have_hashes_of_their_own() -> None:
    pairs = (b"abcaefgahijklmna", b"abc!efg!hijklmn!"), (b"abc\xe1efg\xe1hijklmna", b"abcaefgahijklmn\xe1")
    for one, other in pairs:
        met = [kernel.hash_text(Region(one), m) == kernel.hash_text(Region(other), m) for m in range(3, 2**62, 2**56)]
        assert sum(met) < 3
