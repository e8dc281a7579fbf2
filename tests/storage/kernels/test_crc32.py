"""CRC-32 of kernels against zlib's."""

import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_memory import Bytes
from storage.kernels.carryless import SHORTEST, compiles_for, fold_factors
from storage.kernels.crc32 import crc32, crc32_anywhere, crc32_by_folding

ROOT = Path(__file__).parents[3]
ON_TABLES = """
import zlib
from kernel_memory import Bytes
from storage.kernels.carryless import compiles_for
from storage.kernels.crc32 import crc32, crc32_anywhere
assert not compiles_for("pclmul") and crc32 is crc32_anywhere
data = bytes(n * 7 % 251 for n in range(1000))
for length in (0, 15, 64, 1000):
    held = Bytes(data[:length])
    assert crc32(held.address, length) == zlib.crc32(data[:length])
print("checked")
"""


@given(st.binary(max_size=200))
def test_any_bytes_have_the_checksum_zlib_gives(data: bytes) -> None:
    held = Bytes(data)
    assert crc32(held.address, held.length) == zlib.crc32(data)


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 31, 32, 33, 255, 4096, 10_007])
def test_lengths_around_the_step_have_the_checksum_zlib_gives(length: int) -> None:
    data = bytes(n * 7 % 251 for n in range(length))
    held = Bytes(data)
    assert crc32(held.address, length) == zlib.crc32(data)


def test_every_short_length_has_the_checksum_zlib_gives_with_tables_and_with_folding() -> None:
    data = bytes(n * n % 253 for n in range(5 * SHORTEST + 7))
    for length in range(len(data) + 1):
        held, expected = Bytes(data[:length]), zlib.crc32(data[:length])
        assert crc32(held.address, length) == expected
        assert crc32_anywhere(held.address, length) == expected


@given(st.binary(min_size=SHORTEST, max_size=SHORTEST * 4), st.integers(0, 15))
def test_bytes_of_any_alignment_are_folded(data: bytes, shift: int) -> None:
    held = Bytes(bytes(shift) + data)
    assert crc32(held.address + shift, len(data)) == zlib.crc32(data)


def test_the_factors_are_those_of_the_method() -> None:  # its table for this polynomial, reflected
    assert fold_factors(64) == (0x154442BD4, 0x1C6E41596)
    assert fold_factors(16) == (0x1751997D0, 0x0CCAA009E)


def test_what_is_folded_where_it_can_be() -> None:
    assert crc32 is (crc32_by_folding if compiles_for("pclmul") else crc32_anywhere)
    assert not compiles_for("no such thing")


@pytest.mark.parametrize("settings", [{"NUMBA_CPU_NAME": "generic"}, {"NUMBA_DISABLE_JIT": "1"}], ids=str)
def test_a_processor_that_cannot_fold_does_without(settings: dict[str, str], tmp_path: Path) -> None:
    path = os.pathsep.join((str(ROOT), str(ROOT / "tests" / "support")))
    environment = {**os.environ, **settings, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": path}
    outcome = subprocess.run([sys.executable, "-c", ON_TABLES], env=environment, capture_output=True, text=True)
    assert (outcome.stdout, outcome.returncode) == ("checked\n", 0), outcome.stderr
