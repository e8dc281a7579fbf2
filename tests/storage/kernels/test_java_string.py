"""Hashing of UTF-8 bytes against the oracle that decodes as Java does and hashes UTF-16 units."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import oracles
from kernel_memory import Bytes
from storage.kernels.java_string import fold_hash, hash_utf8

PIECES = [
    *(b"a", b"\x7f", b"\xc2\xa9", b"\xe4\xbb\xb7", b"\xf0\x9f\x98\x80"),
    *(b"\xc0", b"\xe0\x80\x80", b"\xf0\x80", b"\xf4\x90\x80\x80", b"\xf5", b"\xf8", b"\xff", b"\x80"),
    *(b"\xed\xa0\x80", b"\xed\xa0", b"\xe1\x80", b"\xf0\x9f\x98"),
]
"""Whole sequences; ones that no encoder writes; encoded surrogates and sequences cut short."""


def kernel_hash(data: bytes) -> int:
    held = Bytes(data)
    return int(hash_utf8(0, held.address, held.length))


@given(st.one_of(st.binary(max_size=40), st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join)))
@example(b"\xed\xa0A")
@example(b"\xf0\x9f")
def test_any_bytes_hash_as_java_decodes_and_hashes_them(data: bytes) -> None:
    assert kernel_hash(data) == oracles.java_hash(oracles.decode_java(data)) % 2**32


@given(st.text(max_size=40))
def test_any_text_folds_to_the_hash_an_index_keeps(text: str) -> None:
    assert fold_hash(kernel_hash(text.encode("utf-8", "surrogatepass"))) == oracles.index_hash(
        oracles.decode_java(text.encode("utf-8", "surrogatepass"))
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("TagA", 2598919), ("polygenelubricants", 0), ("😀", 1772899), ("", 0), ("价格", 653349)],
)
def test_the_reference_vectors_hold(text: str, expected: int) -> None:  # store-format §11.1, filters §1.3
    assert fold_hash(kernel_hash(text.encode())) == expected


@given(st.text(max_size=20), st.text(max_size=20))
def test_a_hash_goes_on_where_another_ended(left: str, right: str) -> None:
    left, right = left.replace("\ud800", ""), right
    encoded = right.encode("utf-8", "replace")
    held = Bytes(encoded)
    whole = kernel_hash(left.encode("utf-8", "replace") + encoded)
    assert hash_utf8(kernel_hash(left.encode("utf-8", "replace")), held.address, held.length) == whole
