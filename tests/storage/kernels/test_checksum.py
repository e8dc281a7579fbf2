"""CRC-32 of the compiled kernels against zlib's, by the way this processor goes and by the one that all can go."""

import platform
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_memory import Bytes
from storage.kernels.records import CRC32_PATH, crc32, crc32_by_tables

WIDE = 64
"""Bytes that are folded at a time."""


@given(st.binary(max_size=300))
def test_any_bytes_have_the_checksum_zlib_gives(data: bytes) -> None:
    assert crc32(data) == crc32_by_tables(data) == zlib.crc32(data)


def test_every_short_length_has_the_checksum_zlib_gives_and_nothing_behind_it_is_read() -> None:
    data = bytes(n * n % 253 for n in range(5 * WIDE + 7))
    for length in range(len(data) + 1):
        held = Bytes(data[:length])
        assert crc32(held.region) == crc32_by_tables(held.region) == zlib.crc32(data[:length])


@pytest.mark.parametrize("length", [4096, 10_007, 1 << 20])
@pytest.mark.parametrize("shift", [0, 1, 7, 15])
def test_bytes_of_any_alignment_have_the_checksum_zlib_gives(length: int, shift: int) -> None:
    data = bytes(n * 7 % 251 for n in range(length + shift))
    assert crc32(memoryview(data)[shift:]) == crc32_by_tables(data[shift:]) == zlib.crc32(data[shift:])


def test_the_way_is_the_one_that_the_system_says_the_processor_can_go() -> None:
    with open("/proc/cpuinfo") as file:
        flags = {word for line in file if line.startswith(("flags", "Features")) for word in line.split()}
    if platform.machine() == "x86_64":
        assert ("folding" if {"pclmulqdq", "ssse3", "sse4_1"} <= flags else "tables") == CRC32_PATH
    elif platform.machine() == "aarch64":
        assert ("instructions" if "crc32" in flags else "tables") == CRC32_PATH
    else:
        assert CRC32_PATH == "tables"
