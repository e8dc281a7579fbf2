"""The kernels that number texts, beside dictionaries; what columns make of it is shown there."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from kernel_memory import Bytes
from storage.kernels import words as kernel

MULTIPLIER = 0x2545F4914F6CDD1D
texts = st.sampled_from(
    [b"", b"a", b"b", b"ab", b"abcd", b"abce", b"abcdefgh", b"abcdXfgh", b"abcdefghi", b"zbcdefghi"]
)
pieces = st.sampled_from([b"a", b"name", b"a longer name", b"\0", b"\1", b"\1", b"\2"])


def tables(room: int) -> tuple[np.ndarray, np.ndarray]:
    return np.empty((room, kernel.WORD), np.int64), np.full(32, kernel.EMPTY, np.int32)


@given(st.lists(st.none() | texts, max_size=20))
def test_each_different_text_has_a_number(texts: list[bytes | None]) -> None:
    held = [Bytes(text or b"") for text in texts]
    addresses = np.array([each.address for each in held], np.int64)
    lengths = np.array([-1 if text is None else len(text) for text in texts], np.int64)
    words, slots = tables(room=10)
    codes = np.empty(len(texts), np.int32)
    count = kernel.code_texts(addresses, lengths, MULTIPLIER, codes, words, slots)
    known = list(dict.fromkeys(text for text in texts if text is not None))
    assert codes.tolist() == [-1 if text is None else known.index(text) for text in texts]
    assert words[:count, kernel.LENGTH].tolist() == [len(text) for text in known]


def test_more_texts_than_there_is_room_for_are_too_many() -> None:
    held = Bytes(b"abc")
    for room, expected in ((3, 3), (2, kernel.TOO_MANY)):
        words, slots = tables(room)
        addresses, lengths = held.address + np.arange(3), np.ones(3, np.int64)
        assert kernel.code_texts(addresses, lengths, MULTIPLIER, np.empty(3, np.int32), words, slots) == expected


@given(st.lists(st.lists(pieces, max_size=12).map(b"".join), min_size=1, max_size=3))
def test_blocks_are_split_by_the_brokers_rules(blocks: list[bytes]) -> None:
    held = Bytes(b"".join(b"........" + block for block in blocks))
    lengths = np.array([len(block) for block in blocks], np.int64)
    addresses = held.address + np.cumsum(lengths + 8) - lengths
    for room in (1, 16):
        (words, slots), pairs = tables(room), np.empty((kernel.PAIR, 40), np.int64)
        sizes, newest = np.empty(len(blocks), np.int64), np.full(room, -1, np.int64)
        total = kernel.split_properties(addresses, lengths, MULTIPLIER, sizes, pairs, words, slots, newest)
        expected = [oracles.parse_properties(block.decode()) for block in blocks]
        names = list(dict.fromkeys(name for each in expected for name in each))
        if len(names) > room:
            assert total == kernel.TOO_MANY
            continue
        assert sizes.tolist() == [len(each) for each in expected]
        assert pairs[kernel.NAME_CODE, :total].tolist() == [names.index(name) for each in expected for name in each]
        values = [value for each in expected for value in each.values()]
        starts = (pairs[kernel.VALUE, :total] - held.address).tolist()
        ends = (starts + pairs[kernel.VALUE_LENGTH, :total]).tolist()
        data = b"".join(b"........" + block for block in blocks)
        assert [data[start:end].decode() for start, end in zip(starts, ends, strict=True)] == values
        for code, name in enumerate(names):
            starts_of, sizes_of = np.empty(len(blocks), np.int64), np.empty(len(blocks), np.int64)
            kernel.places_of_name(sizes, pairs, code, starts_of, sizes_of)
            assert sizes_of.tolist() == [len(each[name]) if name in each else -1 for each in expected]


@pytest.mark.parametrize(
    "text", ["AAAAAAAA%08dBBBBBBBB", "%08d", "%06d", "n%07d and more", "a name of some length: %08d"]
)
def test_texts_that_look_alike_do_not_share_a_hash(text: str) -> None:
    """Each that does is compared with all before it."""
    held = [Bytes((text % number).encode()) for number in range(2000)]
    hashes = {kernel.hash_text(each.address, each.length, MULTIPLIER) % 8192 for each in held}
    assert len(hashes) > 1500
