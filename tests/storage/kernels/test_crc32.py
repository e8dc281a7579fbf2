"""CRC-32 of kernels against zlib's."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_memory import Bytes
from storage.kernels.crc32 import crc32


@given(st.binary(max_size=200))
def test_any_bytes_have_the_checksum_zlib_gives(data: bytes) -> None:
    held = Bytes(data)
    assert crc32(held.address, held.length) == zlib.crc32(data)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 31, 32, 33, 255, 4096, 10_007])
def test_lengths_around_the_step_have_the_checksum_zlib_gives(length: int) -> None:
    data = bytes(n * 7 % 251 for n in range(length))
    held = Bytes(data)
    assert crc32(held.address, length) == zlib.crc32(data)
