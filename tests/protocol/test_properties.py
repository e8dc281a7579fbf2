"""Property blocks by the broker's own rules, against its own parser's answers and its code line by line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from java_vectors import pairs, vectors
from protocol import properties as names
from protocol.properties import encode_properties, parse_properties, property_value, remove_property, split_keys
from strategies import property_blocks, property_names, texts


def test_blocks_parse_as_the_brokers_own_class_parses_them() -> None:
    for data, expected in vectors("properties"):
        assert parse_properties(bytes.fromhex(data)) == pairs(expected), data


@given(property_blocks)
def test_parsing_pieces_of_bytes_equals_parsing_the_decoded_text(block: bytes) -> None:
    expected = oracles.parse_properties(oracles.decode_java(block))
    assert parse_properties(block) == parse_properties(memoryview(block)) == expected


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"", {}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01\x02b\x01c\x02", {"b": "c"}),
        (b"\x01b\x02", {}),
        (b"abc\x02d\x01e\x02", {"d": "e"}),
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01b\x02a\x01c\x02", {"a": "c"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"a\x01 \x02", {"a": " "}),
    ],
)
def test_the_rules_one_by_one(block: bytes, expected: dict[str, str]) -> None:
    assert parse_properties(block) == expected


@given(property_blocks, st.one_of(property_names, texts))
def test_one_value_is_the_one_that_parsing_everything_gives(block: bytes, name: str) -> None:
    if any(character in "\ufffd\x01\x02" or "\ud800" <= character <= "\udfff" for character in name):
        return
    assert property_value(block, name) == parse_properties(block).get(name)


@given(property_blocks)
def test_every_value_is_found_by_its_name(block: bytes) -> None:
    for name, value in parse_properties(block).items():
        if "\ufffd" not in name:
            assert property_value(block, name) == value


def test_a_name_within_another_name_or_a_value_is_not_taken_for_it() -> None:
    assert property_value(b"XKEYS\x01a\x02v\x01KEYS\x01b\x02", "KEYS") is None


def test_an_empty_value_does_not_hide_an_earlier_one() -> None:
    assert property_value(b"KEYS\x01a\x02KEYS\x01\x02", "KEYS") == "a"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("", []),
        (" ", []),
        ("a", ["a"]),
        ("k1 k2  k3 ", ["k1", "k2", "k3"]),
        ("a a b", ["a", "a", "b"]),
        ("a\tb,c\u00a0d", ["a\tb,c\u00a0d"]),
    ],
)
def test_keys_are_split_at_single_spaces_only(keys: str, expected: list[str]) -> None:
    assert split_keys(keys) == expected == oracles.split_keys(keys)


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


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"U\x01x\x02", b""),
        (b"U\x01x", b""),
        (b"a\x01b\x02U\x01x\x02c\x01d\x02", b"a\x01b\x02c\x01d\x02"),
        (b"a\x01b\x02U\x01x\x02c\x01d", b"a\x01b\x02c\x01d"),
        (b"a\x01b\x02U\x01x", b"a\x01b\x02"),
        (b"U\x01x\x02U\x01y\x02", b""),
        (b"UU\x01x\x02", b"UU\x01x\x02"),
        (b"a\x01U\x01x\x02", b"a\x01U\x01x\x02"),
    ],
)
def test_removing_cuts_exactly_the_entry(block: bytes, expected: bytes) -> None:
    assert remove_property(block, "U") == expected


def test_the_names_are_those_of_the_format() -> None:
    assert (names.KEYS, names.TAGS, names.UNIQ_KEY) == ("KEYS", "TAGS", "UNIQ_KEY")
    assert (names.SHARDING_KEY, names.PROPERTY_CRC) == ("__SHARDINGKEY", "__CRC32#")
