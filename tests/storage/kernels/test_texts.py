"""The kernels of texts at their edges and beside dictionaries; what columns make of it is shown there."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from kernel_memory import Bytes
from storage.kernels import texts as kernel
from storage.kernels.region import Region

BEFORE = b"." * 64
"""Records lie around property blocks, which are looked at so many bytes at a time."""

MULTIPLIER = 0x2545F4914F6CDD1D
texts = st.sampled_from(
    [b"", b"a", b"b", b"ab", b"abcd", b"abce", b"abcdefgh", b"abcdXfgh", b"abcdefghi", b"zbcdefghi"]
)
pieces = st.sampled_from([b"a", b"name", b"a longer name", b"\0", b"\1", b"\1", b"\2"])
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


def text_of(places: Placed, position: int, length: int) -> bytes:
    if position >= 0:
        return kernel.bytes_at(places.region, position, length)
    return kernel.bytes_at(places.others, -1 - position, length)


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_texts_with_bytes_beyond_ascii_are_found(texts: list[bytes]) -> None:
    found = np.zeros(len(texts), np.int64)
    count = kernel.find_holding(*placed([*texts]), None, found)
    assert found[:count].tolist() == [row for row, text in enumerate(texts) if not text.isascii()]


@given(texts=st.lists(st.binary(max_size=6), max_size=6), needle=st.binary(min_size=1, max_size=2))
def test_texts_that_hold_some_bytes_are_found(texts: list[bytes], needle: bytes) -> None:
    texts = [*texts, b"a" + needle, needle[:-1]]
    found = np.zeros(len(texts), np.int64)
    count = kernel.find_holding(*placed([*texts]), needle, found)
    assert found[:count].tolist() == [row for row, text in enumerate(texts) if needle in text]


@pytest.mark.parametrize("port", [0, 9, 10, 10911, 2**31 - 1, -1, -(2**31)])
def test_any_port_is_written(port: int) -> None:
    held = Bytes(bytes([255, 0, 10, 199]) + port.to_bytes(4, "big", signed=True))
    texts, lengths = np.zeros(kernel.HOST_ROOM, np.uint8), np.zeros(1, np.int64)
    kernel.write_hosts(held.region, numbers(0), texts, lengths)
    assert texts[: lengths[0]].tobytes().decode() == f"255.0.10.199:{port}"


def test_missing_texts_are_not_copied() -> None:
    data = np.zeros(3, np.uint8)
    places = Placed(Bytes(b"abc").region, Region(b""), numbers(7, 0, 9), numbers(-1, 3, 0))
    kernel.copy_texts(*places, np.array([0, 0, 3, 3], np.int32), data)
    assert data.tobytes() == b"abc"


@given(st.lists(st.none() | st.binary(max_size=20), max_size=6))
def test_texts_are_copied_from_both_regions(texts: list[bytes | None]) -> None:
    whole = b"".join(text or b"" for text in texts)
    offsets = np.cumsum([0, *(len(text or b"") for text in texts)]).astype(np.int32)
    data = np.zeros(len(whole), np.uint8)
    kernel.copy_texts(*placed(texts), offsets, data)
    assert data.tobytes() == whole


@given(st.lists(st.lists(st.sampled_from([b" ", b"a", b"abcdefg", b"!\x1f"]), max_size=12).map(b"".join), max_size=3))
def test_texts_are_split_at_blanks(texts: list[bytes]) -> None:
    places, counts, starts, sizes = placed([*texts]), room(len(texts)), room(200), room(200)
    total = kernel.split_keys(*places, counts, starts, sizes)
    expected = [[key for key in text.split(b" ") if key] for text in texts]
    keys = zip(starts[:total].tolist(), sizes[:total].tolist(), strict=True)
    assert [text_of(places, *key) for key in keys] == [key for keys in expected for key in keys]
    assert counts.tolist() == [len(keys) for keys in expected]


@given(st.lists(st.none() | texts, max_size=20))
def test_each_different_text_has_a_number(texts: list[bytes | None]) -> None:
    places, codes, starts, sizes = placed(texts), np.empty(len(texts), np.int32), room(10), room(10)
    count = kernel.code_texts(*places, MULTIPLIER, codes, starts, sizes)
    known = list(dict.fromkeys(text for text in texts if text is not None))
    assert codes.tolist() == [-1 if text is None else known.index(text) for text in texts]
    words = zip(starts[:count].tolist(), sizes[:count].tolist(), strict=True)
    assert [text_of(places, *word) for word in words] == known


def test_more_texts_than_there_is_room_for_are_too_many() -> None:
    places, codes = placed([b"a", b"b", b"c"]), np.empty(3, np.int32)
    for most, expected in ((3, 3), (2, kernel.TOO_MANY), (0, kernel.TOO_MANY)):
        assert kernel.code_texts(*places, MULTIPLIER, codes, room(most), room(most)) == expected


@given(st.lists(st.lists(pieces, max_size=12).map(b"".join), min_size=1, max_size=3))
def test_blocks_are_split_by_the_brokers_rules(blocks: list[bytes]) -> None:
    data = b"".join(BEFORE + block for block in blocks)
    lengths = numbers(*(len(block) for block in blocks))
    positions = np.cumsum(lengths + len(BEFORE)) - lengths
    for most in (1, 16):
        words, counts = (room(most), room(most)), room(len(blocks))
        pairs = np.empty(40, np.int32), room(40), room(40)
        found = kernel.split_properties(Bytes(data).region, positions, lengths, MULTIPLIER, counts, *pairs, *words)
        expected = [oracles.parse_properties(block.decode()) for block in blocks]
        names = list(dict.fromkeys(name for each in expected for name in each))
        if len(names) > most:
            assert found.pairs == kernel.TOO_MANY
            continue
        assert counts.tolist() == [len(each) for each in expected]
        assert [
            data[start : start + size].decode() for start, size in list(zip(*words, strict=True))[: found.words]
        ] == names
        codes, starts, sizes = (part[: found.pairs].tolist() for part in pairs)
        assert codes == [names.index(name) for each in expected for name in each]
        values = [value for each in expected for value in each.values()]
        assert [data[start : start + size].decode() for start, size in zip(starts, sizes, strict=True)] == values
        for code, name in enumerate(names):
            starts_of, sizes_of = room(len(blocks)), room(len(blocks))
            kernel.places_of_name(counts, *pairs, code, starts_of, sizes_of)
            assert sizes_of.tolist() == [len(each[name]) if name in each else -1 for each in expected]


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


@pytest.mark.parametrize(
    "text", ["AAAAAAAA%08dBBBBBBBB", "%08d", "%06d", "n%07d and more", "a name of some length: %08d"]
)
def test_texts_that_look_alike_do_not_share_a_hash(text: str) -> None:
    """Each that does is compared with all before it."""
    hashes = {kernel.hash_text(Bytes((text % number).encode()).region, MULTIPLIER) % 8192 for number in range(2000)}
    assert len(hashes) > 1500
