"""CRC-32 of the compiled kernels against zlib's, by every way that this processor can go."""

import platform
import zlib

import pytest

from kernel_memory import Bytes
from storage.kernels.records import CRC32_PATH, CRC32_PATHS, crc32, crc32_by

WIDE = 256

ways = pytest.mark.parametrize("way", CRC32_PATHS)


@ways
def test_every_short_length_has_the_checksum_zlib_gives_and_nothing_behind_it_is_read(way: str) -> None:
    data = bytes(n * n % 253 for n in range(3 * WIDE + 7))
    for length in range(len(data) + 1):
        held = Bytes(data[:length])
        assert crc32(held.region) == crc32_by(way, held.region) == zlib.crc32(data[:length])


@ways
@pytest.mark.parametrize("length", [4096, 10_007, 1 << 20])
@pytest.mark.parametrize("shift", [0, 1, 7, 15])
def test_bytes_of_any_alignment_have_the_checksum_zlib_gives(way: str, length: int, shift: int) -> None:
    data = (bytes(range(251)) * ((length + shift) // 251 + 1))[: length + shift]
    assert crc32(memoryview(data)[shift:]) == crc32_by(way, memoryview(data)[shift:]) == zlib.crc32(data[shift:])


def test_the_way_is_the_one_that_the_system_says_the_processor_can_go() -> None:
    with open("/proc/cpuinfo") as file:
        flags = {word for line in file if line.startswith(("flags", "Features")) for word in line.split()}
    needed = {
        "folding-512": {"vpclmulqdq", "avx512f", "pclmulqdq"},
        "folding-256": {"vpclmulqdq", "avx2", "pclmulqdq"},
        "folding": {"pclmulqdq", "ssse3", "sse4_1"},
        "instructions": {"crc32"},
        "tables": set(),
    }
    ways = {"x86_64": ("folding-512", "folding-256", "folding"), "aarch64": ("instructions",)}
    possible = (*ways.get(platform.machine(), ()), "tables")
    assert tuple(way for way in possible if needed[way] <= flags) == CRC32_PATHS
    assert CRC32_PATHS[0] == CRC32_PATH


def test_a_way_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be made by magic"):
        crc32_by("magic", b"")
