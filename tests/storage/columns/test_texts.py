"""Texts, lists and maps gathered from memory, beside what plain Python makes of the same bytes."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from column_rows import host_text, texts_of, values_of
from kernel_memory import Bytes
from storage.columns.texts import Places, gather_hosts, gather_keys, gather_properties, hold
from storage.kernels.gather import MOST_PAIRS

any_text = st.one_of(st.binary(max_size=20), st.text(max_size=12).map(str.encode))
blocks = st.one_of(
    st.binary(max_size=30),
    st.lists(st.sampled_from([b"a", b"bb", b"\1", b"\2", b"\1", b"\2", b"\xff", "é".encode(), b"\0"]), max_size=24).map(
        b"".join
    ),
)


def places_of(texts: list[bytes | None]) -> tuple[Places, object]:
    memory, starts, sizes = hold([text or b"" for text in texts])
    lengths = np.where([text is None for text in texts], -1, sizes).astype(np.int64)
    return Places(np.array(starts), lengths), memory


@given(st.lists(st.none() | any_text, max_size=10))
@settings(max_examples=100)
def test_texts_are_gathered_as_they_stand(texts: list[bytes | None]) -> None:
    places, memory = places_of(texts)
    assert texts_of(places.gather()) == texts
    del memory


@given(st.lists(st.none() | any_text, max_size=10))
@settings(max_examples=100)
def test_what_is_no_utf8_is_decoded_as_java_does(texts: list[bytes | None]) -> None:
    places, memory = places_of(texts)
    expected = [text if text is None else oracles.decode_java(text) for text in texts]
    assert [text if text is None else text.decode() for text in texts_of(places.gather_utf8())] == expected
    del memory


key_texts = st.text(" ab🔑", max_size=12).map(str.encode) | st.text(" ab", max_size=6).map(
    lambda keys: keys.encode() + b"\xff c"
)


@given(st.lists(st.none() | key_texts, max_size=6))
def test_keys_are_split_at_blanks(texts: list[bytes | None]) -> None:
    places, memory = places_of(texts)
    expected = [oracles.split_keys(oracles.decode_java(text or b"")) for text in texts]
    assert values_of("keys", gather_keys(places)) == expected
    del memory


def maps_of(blocks: list[bytes]) -> list[dict[str, str]]:
    # A record lies around each block: eight bytes before its end may be read.
    held = Bytes(b"".join(b"........" + block for block in blocks))
    sizes = np.array([len(block) for block in blocks], np.int64)
    starts = held.address + np.cumsum(sizes + 8) - sizes
    maps: list[dict[str, str]] = values_of("properties", gather_properties(starts, sizes))
    return maps


@given(st.lists(blocks, max_size=8))
@settings(max_examples=200)
def test_property_blocks_become_maps_by_the_brokers_rules(blocks: list[bytes]) -> None:
    maps = maps_of(blocks)
    expected = [oracles.parse_properties(oracles.decode_java(block)) for block in blocks]
    assert maps == expected
    assert [list(each) for each in maps] == [list(each) for each in expected]


def test_very_many_properties_are_all_there() -> None:
    many = b"".join(b"n%d\1v%d\2" % (number, number) for number in range(MOST_PAIRS + 5))
    names = [f"n{number}" for number in range(MOST_PAIRS + 5)]
    few, all_, none = maps_of([b"a\1b\2", many, b""])
    assert (few, list(all_), none) == ({"a": "b"}, names, {})


addresses = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
hosts = st.tuples(addresses, st.integers(-(2**31), 2**31 - 1))


@given(st.lists(hosts, max_size=8) | st.lists(st.sampled_from([(bytes(4), 1), (bytes(4), 2)]), max_size=12))
@settings(max_examples=100)
def test_hosts_are_written_as_people_do(hosts: list[tuple[bytes, int]]) -> None:
    packed = [address + port.to_bytes(4, "big", signed=True) for address, port in hosts]
    memory, starts, _ = hold(packed)
    is_v6 = np.array([len(address) == 16 for address, _ in hosts], np.bool_)
    found = gather_hosts(np.array(starts), is_v6)
    assert [text.decode() for text in texts_of(found) if text is not None] == [host_text(host) for host in hosts]
    del memory
