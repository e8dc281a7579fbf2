"""A message's properties read one by one, beside the whole block parsed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import oracles
from protocol.properties import parse_properties
from storage.filter import property_block
from storage.filter.property_block import MOST_SEARCHES, PropertyBlock
from strategies import property_blocks, property_names, texts

names = st.one_of(property_names, texts, st.sampled_from(["", "\x01", "a\x01b", "\x02a", "\ufffd", "\ud800"]))


@given(property_blocks, st.lists(names, max_size=2 * MOST_SEARCHES))
def test_each_property_is_what_the_whole_block_says(block: bytes, asked: list[str]) -> None:
    whole = oracles.parse_properties(oracles.decode_java(block))
    properties = PropertyBlock(memoryview(block))
    for name in asked:
        assert properties.get(name) == whole.get(name)
        assert properties.get(name, 5) == whole.get(name, 5)
    assert properties == whole == dict(properties)
    assert (len(properties), list(properties)) == (len(whole), list(whole))


@given(property_blocks)
def test_every_name_in_a_block_is_found_by_itself(block: bytes) -> None:
    for name, value in parse_properties(block).items():
        assert PropertyBlock(block)[name] == value
        assert name in PropertyBlock(block)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"a\x015\x02", "5"),
        (b"a\x015", "5"),
        (b"b\x01a\x02a\x015\x02aa\x016\x02", "5"),
        (b"ba\x016\x02", None),
        (b"b\x01a\x016\x02", None),
        (b"a\x015\x02a\x016\x02", "6"),
        (b"a\x015\x02a\x01\x02", "5"),
        (b"a\x01\x02", None),
        (b"a\x015\x016\x02", "5\x016"),
        (b"a\x01\xe4\xbb\xb7\x02", "价"),
        (b"a\x01\xff\x02", "\ufffd"),
        (b"", None),
    ],
)
def test_a_property_is_found_by_the_brokers_rules(block: bytes, expected: str | None) -> None:
    assert PropertyBlock(block).get("a") == expected


def test_what_is_missing_raises_as_in_any_mapping() -> None:
    with pytest.raises(KeyError):
        PropertyBlock(b"a\x015\x02")["b"]
    assert repr(PropertyBlock(b"a\x015")) == "PropertyBlock({'a': '5'})"


def test_a_block_is_parsed_only_when_more_than_a_few_names_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    monkeypatch.setattr(property_block, "parse_properties", lambda block: parsed.append(block) or {"a": "parsed"})
    properties = PropertyBlock(b"a\x015\x02")
    for _ in range(MOST_SEARCHES):
        assert properties.get("a") == "5"
    assert not parsed
    assert [properties.get("a"), properties.get("b"), properties.get("a")] == ["parsed", None, "parsed"]
    assert len(parsed) == 1
