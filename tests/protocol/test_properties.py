"""Property blocks by the broker's own rules, against its own parser's answers and its code line by line."""

from hypothesis import given
from hypothesis import strategies as st

import oracles
from golden_store import pairs, vectors
from protocol.properties import encode_properties, parse_properties, remove_property
from strategies import property_blocks, property_names


def test_blocks_parse_as_the_brokers_own_class_parses_them() -> None:
    for data, expected in vectors("properties"):
        assert parse_properties(bytes.fromhex(data)) == pairs(expected), data


@given(property_blocks)
def test_parsing_pieces_of_bytes_equals_parsing_the_decoded_text(block: bytes) -> None:
    expected = oracles.parse_properties(oracles.decode_java(block))
    assert parse_properties(block) == parse_properties(memoryview(block)) == expected


@given(st.dictionaries(st.text("abé", min_size=1), st.text("xyz 标\U0001f600", min_size=1)))
def test_what_is_encoded_parses_back(properties: dict[str, str]) -> None:
    block = encode_properties(properties)
    assert parse_properties(block) == properties
    assert list(parse_properties(block)) == list(properties)


def test_an_unpaired_surrogate_is_encoded_as_java_encodes_it() -> None:
    assert encode_properties({"a": "\ud800x"}) == b"a\x01?x\x02"


@given(property_blocks, property_names)
def test_removing_a_property_leaves_all_others(block: bytes, name: str) -> None:
    expected = parse_properties(block)
    expected.pop(name, None)
    assert parse_properties(remove_property(block, name)) == expected


def test_removing_cuts_exactly_the_entry() -> None:
    for block, expected in [
        (b"U\x01x\x02", b""),
        (b"U\x01x", b""),
        (b"a\x01b\x02U\x01x\x02c\x01d\x02", b"a\x01b\x02c\x01d\x02"),
        (b"a\x01b\x02U\x01x\x02c\x01d", b"a\x01b\x02c\x01d"),
        (b"a\x01b\x02U\x01x", b"a\x01b\x02"),
        (b"U\x01x\x02U\x01y\x02", b""),
        (b"UU\x01x\x02", b"UU\x01x\x02"),
        (b"a\x01U\x01x\x02", b"a\x01U\x01x\x02"),
    ]:
        assert remove_property(block, "U") == expected
