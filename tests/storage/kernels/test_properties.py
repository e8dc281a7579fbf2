"""The one pass over a property block, and Java's numbers, against the parser that goes line by line."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dispatch_oracle import java_number
from dispatching import named_blocks, numbers
from kernel_memory import Bytes
from oracles import decode_java, parse_properties
from storage.kernels import properties as kernel
from strategies import property_blocks

NAMES = {
    "KEYS": kernel.KEYS,
    "TAGS": kernel.TAGS,
    "UNIQ_KEY": kernel.UNIQUE_KEY,
    "DELAY": kernel.DELAY,
    "INNER_NUM": kernel.INNER_NUM,
    "INNER_BASE": kernel.INNER_BASE,
    "INNER_MULTI_DISPATCH": kernel.MULTI_DISPATCH,
    "INNER_MULTI_QUEUE_OFFSET": kernel.MULTI_QUEUE_OFFSET,
}
HEAD = 8
"""Bytes that a record has before its properties, at least."""


def find(block: bytes) -> dict[str, str]:
    held = Bytes(bytes(HEAD) + block)
    found = np.zeros(kernel.PROPERTIES, np.int64)
    kernel.find_properties(held.address + HEAD, len(block), found.ctypes.data)
    values = {name: int(found[number]) for name, number in NAMES.items()}
    return {
        name: decode_java(block[value >> 16 : (value >> 16) + (value & 0xFFFF)])
        for name, value in values.items()
        if value >= 0
    }


def parse(text: str, bits: int) -> int | None:
    held, parsed = Bytes(text.encode()), np.zeros(1, np.int64)
    is_number = kernel.parse_integer(held.address, held.length, bits, parsed.ctypes.data)
    return int(parsed[0]) if is_number else None


names = st.one_of(
    st.sampled_from([*NAMES, "A", "KEY", "TAGSS", "INNER_NUB", "UNIQ_KEZ"]), st.text("KEYSTAG", max_size=5)
)
any_blocks = st.one_of(
    property_blocks,
    named_blocks,
    st.lists(
        st.tuples(names.map(str.encode), st.binary(max_size=20)).map(lambda pair: b"%b\x01%b\x02" % pair), max_size=6
    ).map(b"".join),
    st.lists(st.sampled_from([b"\0", b"\1", b"\2", b"\3", b"TAGS", b"KEYS\1", b"\x81", b"\x82"]), max_size=20).map(
        b"".join
    ),
)


@settings(max_examples=300)
@given(any_blocks)
@example(b"TAGS\x01a\x02TAGS\x01b")
@example(b"TAGS\x01\x02KEYS\x01\x01\x02")
@example(b"\x01a\x02TAGS\x01\0\x02")
def test_the_properties_found_are_those_that_the_broker_parses(block: bytes) -> None:
    expected = parse_properties(decode_java(block))
    assert find(block) == {name: expected[name] for name in NAMES if name in expected}


@pytest.mark.parametrize("length", range(40))
@pytest.mark.parametrize("byte", [0, 1, 2])
def test_a_separator_is_found_at_every_place_and_none_behind_the_end(length: int, byte: int) -> None:
    for place in range(length):
        data = bytearray(b"\x83\x7f\x80\xff\x03a" * 10)[:length]
        data[place] = byte
        for first in range(place + 1):
            held = Bytes(bytes(HEAD) + data)
            assert kernel.find_below_three(held.address + HEAD, first, length) == place
            held = Bytes(bytes(HEAD) + data[:place])
            assert kernel.find_below_three(held.address + HEAD, first, place) == place


@settings(max_examples=300)
@given(numbers | st.text("+-0123456789", max_size=22), st.sampled_from([16, 32, 64]))
@example("-9223372036854775808", 64)
@example("9223372036854775808", 64)
def test_numbers_are_parsed_as_java_parses_them(text: str, bits: int) -> None:
    assert parse(text, bits) == java_number(text, bits)
