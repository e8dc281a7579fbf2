"""Texts, hosts and properties gathered from memory, beside what plain Python makes of the same bytes."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

import oracles
from column_rows import host_text, texts_of, values_of
from examples import examples
from kernel_memory import Bytes
from storage.columns.properties import Properties
from storage.columns.texts import FEW, RepeatedTexts, TextPlaces, Texts, gather_hosts, hold

any_text = st.one_of(st.binary(max_size=20), st.text(max_size=12).map(str.encode))


def places_of(texts):
    region, starts, sizes = hold([text or b"" for text in texts])
    lengths = np.where([text is None for text in texts], -1, sizes).astype(np.int64)
    return TextPlaces(region, starts, lengths)


@given(st.lists(st.none() | any_text, max_size=10))
@settings(max_examples=examples(30))
def test_what_is_no_utf8_is_decoded_as_java_does(texts: list[bytes | None]) -> None:
    places = places_of(texts)
    expected = [text if text is None else oracles.decode_java(text) for text in texts]
    assert [text if text is None else text.decode() for text in texts_of(places.gather_utf8())] == expected


repeated_texts = st.sampled_from([b"", b"a", b"ab", b"TAGS", b"CLUSTER", b"UNIQ_KEY", b"__CRC32#", b"\xff"])


@given(st.lists(st.none() | repeated_texts) | st.lists(st.none() | any_text, max_size=10))
@settings(max_examples=examples(60))
def test_texts_that_come_again_are_kept_once(texts: list[bytes | None]) -> None:
    places = places_of(texts)
    repeated = places.gather_repeated()
    assert isinstance(repeated, RepeatedTexts)
    assert texts_of(repeated) == texts_of(repeated.spread()) == texts
    words = texts_of(repeated.words)
    assert len(words) == len(set(words))
    assert set(words) == set(texts) - {None}
    decoded = [text if text is None else oracles.decode_java(text) for text in texts]
    found = texts_of(places.gather_repeated_utf8())
    assert [text if text is None else text.decode() for text in found] == decoded


addresses = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
hosts = st.tuples(addresses, st.integers(-(2**31), 2**31 - 1))
few_hosts = st.sampled_from([(bytes(4), 1), (bytes(4), 2), (bytes([127, 0, 0, 1]), 1)])


@given(st.lists(hosts, max_size=8) | st.lists(few_hosts, max_size=12))
@example([(bytes(4), number) for number in range(FEW + 1)] * 2)
@settings(max_examples=examples(30))
def test_hosts_are_written_as_people_do(hosts: list[tuple[bytes, int]]) -> None:
    packed = [address + port.to_bytes(4, "big", signed=True) for address, port in hosts]
    region, starts, _ = hold(packed)
    is_v6 = np.array([len(address) == 16 for address, _ in hosts], np.bool_)
    found = gather_hosts(region, starts, is_v6)
    assert [text.decode() for text in texts_of(found) if text is not None] == [host_text(host) for host in hosts]


blocks = st.one_of(
    st.binary(max_size=30),
    st.lists(st.sampled_from([b"a", b"bb", b"\1", b"\2", b"\1", b"\2", b"\xff", "é".encode(), b"\0"]), max_size=24).map(
        b"".join
    ),
)
BEFORE = b"." * 64


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


def test_texts_of_which_very_many_differ_stay_as_they_are() -> None:
    for count, kind in ((FEW, RepeatedTexts), (FEW + 1, Texts)):
        for first in (b"a", "é".encode(), b"\xff"):
            texts: list[bytes | None] = [first, None, first, *(b"text %d" % number for number in range(count - 1))]
            places = places_of(texts)
            assert isinstance(places.gather_repeated(), kind)
            assert texts_of(places.gather_repeated()) == texts
            decoded = [text if text is None else oracles.decode_java(text).encode() for text in texts]
            assert texts_of(places.gather_repeated_utf8()) == decoded
