"""Strings as Java sees them, against a JDK's answers and against the loop-by-loop oracle."""

import json
from itertools import product
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from golden_store import GOLDEN, text, vectors
from protocol.java_hash import decode_java, index_hash, java_hash
from strategies import texts, utf8_like


def test_tags_hash_as_the_brokers_own_classes_hash_them() -> None:
    recorded = json.loads((GOLDEN / "filter" / "tag-bloom-vectors.json").read_text())["tag_hash"]
    assert [java_hash(vector["tag"]) for vector in recorded] == [vector["tagsCode"] for vector in recorded]


def test_hashes_and_decoding_are_those_of_the_jdk() -> None:
    for data, string, expected in vectors("string"):
        decoded = decode_java(bytes.fromhex(data))
        assert decoded == text(string), data
        assert java_hash(decoded) == int(expected), data


@pytest.mark.parametrize(
    "vector",
    [
        pytest.param(vector, id=f"length-{vector[1]}", marks=[pytest.mark.soak] if number > 2 else [])
        for number, vector in enumerate(vectors("exhaustive"))
    ],
)
def test_all_short_strings_of_critical_bytes_decode_as_in_the_jdk(vector: list[str]) -> None:
    alphabet, length, expected = bytes.fromhex(vector[0]), int(vector[1]), int(vector[2])
    decoded = (decode_java(bytes(data)) for data in product(alphabet, repeat=length))
    assert crc32(b"".join(string.encode("utf-16-be") + b"\0" for string in decoded)) == expected


@given(st.one_of(utf8_like, st.binary()))
def test_decoding_equals_the_oracle(data: bytes) -> None:
    assert decode_java(data) == decode_java(memoryview(data)) == oracles.decode_java(data)


@given(st.one_of(texts, st.text(), st.text("aé标😀\udc00", min_size=200, max_size=1100)))
def test_hashing_equals_the_oracle(string: str) -> None:
    assert java_hash(string) == oracles.java_hash(string)
    assert index_hash(string) == oracles.index_hash(string)


@pytest.mark.parametrize("length", [255, 256, 257, 511, 512, 513, 5000])
def test_long_strings_hash_alike_around_the_block_size(length: int) -> None:
    for character in "a标":
        assert java_hash(character * length) == oracles.java_hash(character * length)
