"""The kernels of texts at their edges and beside dictionaries; what columns make of it is shown there."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_memory import Bytes
from storage.kernels import texts as kernel
from storage.kernels.region import Region

BEFORE = b"." * 64
"""Records lie around property blocks, which are looked at so many bytes at a time."""

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


@pytest.mark.parametrize(
    ("position", "length"), [(2, 2), (4, 1), (2**62, 2**62), (-2, 2), (-(2**63), 1), (0, 2**63 - 1)]
)
def test_texts_outside_their_region_are_refused(position: int, length: int) -> None:
    places = Placed(Bytes(b"abc").region, Bytes(b"de").region, numbers(0, position), numbers(3, length))
    codes, offsets, data = np.empty(2, np.int32), np.array([0, 3, 5], np.int32), np.zeros(5, np.uint8)
    for call in (
        lambda: kernel.copy_texts(*places, offsets, data),
        lambda: kernel.find_holding(*places, None, room(2)),
        lambda: kernel.find_holding(*places, b"a", room(2)),
        lambda: kernel.split_keys(*places, room(2), room(9), room(9)),
        lambda: kernel.code_texts(*places, MULTIPLIER, codes, room(2), room(2)),
    ):
        with pytest.raises(ValueError, match=f"text 1 of {length} bytes at position {position} does not lie in"):
            call()


@pytest.mark.parametrize("position", [-1, 9, 2**63 - 1])
def test_hosts_and_blocks_outside_their_region_are_refused(position: int) -> None:
    region = Bytes(bytes(16)).region
    with pytest.raises(ValueError, match="do not lie in a region of 16 bytes"):
        kernel.write_hosts(region, numbers(8, position), np.zeros(64, np.uint8), room(2))
    pairs = np.empty(9, np.int32), room(9), room(9)
    blocks = Bytes(bytes(72)).region
    with pytest.raises(ValueError, match="block 1 of 8 bytes at position"):
        kernel.split_properties(
            blocks, numbers(64, position), numbers(8, 8), MULTIPLIER, room(2), *pairs, room(9), room(9)
        )
    with pytest.raises(ValueError, match="with 64 of them before its end"):
        kernel.split_properties(blocks, numbers(0), numbers(63), MULTIPLIER, room(1), *pairs, room(9), room(9))
    with pytest.raises(ValueError, match="do not lie in a region of 16 bytes"):
        kernel.bytes_at(region, position, 8)


def test_texts_that_meet_by_the_highest_bits_of_their_words_have_hashes_of_their_own() -> None:
    pairs = (b"abcaefgahijklmna", b"abc!efg!hijklmn!"), (b"abc\xe1efg\xe1hijklmna", b"abcaefgahijklmn\xe1")
    for one, other in pairs:
        met = [kernel.hash_text(Region(one), m) == kernel.hash_text(Region(other), m) for m in range(3, 2**62, 2**56)]
        assert sum(met) < 3


def test_too_little_room_is_refused() -> None:
    places, codes = placed([b"a b", b"c"]), np.empty(2, np.int32)
    with pytest.raises(ValueError, match="text 0 of 3 bytes at offset 2 does not fit into 4 bytes"):
        kernel.copy_texts(*places, np.array([2, 3], np.int32), np.zeros(4, np.uint8))
    with pytest.raises(ValueError, match="text 1 of 1 bytes at offset -1 does not fit"):
        kernel.copy_texts(*places, np.array([0, -1], np.int32), np.zeros(4, np.uint8))
    with pytest.raises(ValueError, match="room for 2 keys, expected 3"):
        kernel.split_keys(*places, room(2), room(2), room(3))
    with pytest.raises(ValueError, match="room for 1 rows, expected 2"):
        kernel.find_holding(*places, b"a", room(1))
    with pytest.raises(ValueError, match="room for 1 codes, expected 2"):
        kernel.code_texts(*places, MULTIPLIER, codes[:1], room(9), room(9))
    with pytest.raises(ValueError, match="2 positions and 1 lengths"):
        kernel.find_holding(*places._replace(lengths=numbers(1)), b"a", room(2))
    with pytest.raises(ValueError, match="room for 31 bytes of texts, expected 32"):
        kernel.write_hosts(Region(bytes(8)), numbers(0), np.zeros(31, np.uint8), room(1))
    block, pairs = Region(BEFORE + b"a\1b\2c\1d"), (np.empty(1, np.int32), room(2), room(2))
    with pytest.raises(ValueError, match="room for 1 properties, expected 2"):
        kernel.split_properties(block, numbers(64), numbers(7), MULTIPLIER, room(1), *pairs, room(9), room(9))
    with pytest.raises(ValueError, match="room for 1 properties, expected 2"):
        kernel.places_of_name(numbers(2), *pairs, 0, room(1), room(1))
