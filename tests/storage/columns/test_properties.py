"""Property blocks taken apart, beside what plain Python makes of the same bytes."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from column_rows import texts_of, values_of
from examples import examples
from kernel_memory import Bytes
from storage.columns.properties import Properties
from storage.columns.texts import FEW, RepeatedTexts

blocks = st.one_of(
    st.binary(max_size=30),
    st.lists(st.sampled_from([b"a", b"bb", b"\1", b"\2", b"\1", b"\2", b"\xff", "é".encode(), b"\0"]), max_size=24).map(
        b"".join
    ),
)
BEFORE = b"." * 64
"""What a record has before its properties, at least."""


def properties_of(blocks: list[bytes]) -> Properties:
    held = Bytes(b"".join(BEFORE + block for block in blocks))
    sizes = np.array([len(block) for block in blocks], np.int64)
    return Properties(held.region, np.cumsum(sizes + len(BEFORE)) - sizes, sizes)


def maps_of(blocks: list[bytes]) -> list[dict[str, str]]:
    properties = properties_of(blocks)
    maps: list[dict[str, str]] = values_of("properties", properties.maps())
    return maps


@given(st.lists(blocks, max_size=8))
@settings(max_examples=examples(40))
def test_property_blocks_become_maps_by_the_brokers_rules(blocks: list[bytes]) -> None:
    maps = maps_of(blocks)
    expected = [oracles.parse_properties(oracles.decode_java(block)) for block in blocks]
    assert maps == expected
    assert [list(each) for each in maps] == [list(each) for each in expected]


@given(st.lists(blocks, max_size=8))
@settings(max_examples=examples(30))
def test_the_values_of_one_name_are_found(blocks: list[bytes]) -> None:
    properties = properties_of(blocks)
    for name in ("a", "bb", "aa", "c"):
        expected = [oracles.parse_properties(oracles.decode_java(block)).get(name) for block in blocks]
        found = texts_of(properties.of(name.encode()).gather_utf8())
        assert [text if text is None else text.decode() for text in found] == expected


def test_however_many_names_there_are_each_is_kept_once() -> None:
    """Of one message, and of many."""
    for count in (FEW - 1, FEW, FEW + 1, 70 * FEW):
        names = [f"n{number}" for number in range(count)]
        many = b"".join(b"n%d\1v%d\2" % (number, number) for number in range(count))
        few, all_, none = maps_of([b"a\1b\2", many * 2, b""])
        assert (few, list(all_), none) == ({"a": "b"}, names, {})
        assert all_["n7"] == "v7"
        properties = properties_of([b"n%d\1v\2n0\1w\2" % number for number in range(count)])
        kept = properties.maps().names
        assert isinstance(kept, RepeatedTexts)
        assert texts_of(kept.words) == [name.encode() for name in names]
        assert texts_of(properties.of(b"n0").gather()) == [b"w"] * count
