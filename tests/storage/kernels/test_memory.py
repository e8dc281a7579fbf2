"""Loads, stores, comparison and the page probe."""

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import njit

from kernel_memory import Bytes
from storage.kernels import memory
from storage.kernels.memory import PROBE_ADDRESS, PROBE_BYTES, equal_bytes, is_hot
from storage.mapped_file import MappedFile


@njit
def load_all(address: int) -> tuple[int, int, int, int, int, int, int]:
    return (
        memory.load_i8(address),
        memory.load_u8(address),
        memory.load_i16(address),
        memory.load_i32(address),
        memory.load_i64(address),
        memory.load_native_i32(address),
        memory.load_native_i64(address),
    )


@njit
def store_all(address: int, value: int) -> int:
    memory.store_u8(address, value)
    memory.store_native_i32(address + 1, value)
    memory.store_native_i64(address + 5, value)
    memory.copy_bytes(address + 13, address, 13)
    return 0


@given(st.binary(min_size=8, max_size=8), st.integers(0, 7))
def test_loads_read_what_struct_reads_at_any_alignment(data: bytes, shift: int) -> None:
    held = Bytes(bytes(shift) + data)
    expected = [struct.unpack_from(layout, data)[0] for layout in (">b", ">B", ">h", ">i", ">q", "=i", "=q")]
    assert list(load_all(held.address + shift)) == expected


@given(st.integers(-(2**31), 2**31 - 1))
def test_stores_and_copies_write_what_struct_packs(value: int) -> None:
    held = Bytes(bytes(26))
    store_all(held.address, value)
    assert bytes(held) == struct.pack("=Biq", value & 0xFF, value, value) * 2


@given(st.binary(max_size=40), st.integers(0, 40), st.integers(0, 255))
def test_equal_bytes_is_equality_of_bytes(data: bytes, place: int, byte: int) -> None:
    other = bytearray(data)
    if data:
        other[place % len(data)] = byte
    left, right = Bytes(data), Bytes(bytes(other))
    assert equal_bytes(left.address, right.address, len(data)) == (data == bytes(other))


class TestIsHot:
    def test_a_file_just_written_is_hot_and_remembered(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_bytes(bytes(3 * PROBE_BYTES + 5))
        file = MappedFile.open(path)
        assert file.is_hot(0, file.size, 1000)
        if file.descriptor >= 0:
            assert list(file._heat) == [1000] * 4

    def test_a_descriptor_that_cannot_be_asked_counts_as_hot(self) -> None:
        heat = np.zeros(4, dtype=np.int32)
        assert is_hot(PROBE_ADDRESS, heat.ctypes.data, -1, 10, 0, 10, 1000)

    def test_a_thread_that_may_wait_finds_everything_hot(self) -> None:
        heat = np.zeros(4, dtype=np.int32)
        assert is_hot(PROBE_ADDRESS, heat.ctypes.data, 10_000, 10, 0, 10, 0)

    def test_a_short_read_is_cold(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_bytes(bytes(100))
        descriptor = os.open(path, os.O_RDONLY)
        heat = np.zeros(4, dtype=np.int32)
        try:
            # The file is shorter than the caller believes, so that the probe comes back short, as over cold pages.
            assert not is_hot(PROBE_ADDRESS, heat.ctypes.data, descriptor, 2 * PROBE_BYTES, 0, 10, 1000)
        finally:
            os.close(descriptor)
        assert not heat.any()

    def test_heat_lasts_a_second(self) -> None:
        heat = np.full(1, 999, dtype=np.int32)
        closed = 10_000  # asking it would fail
        assert is_hot(PROBE_ADDRESS, heat.ctypes.data, closed, 10, 0, 10, 1000)
        assert not is_hot(PROBE_ADDRESS, heat.ctypes.data, closed, 10, 0, 10, 1001)


def test_an_unknown_function_has_no_address() -> None:
    assert memory.function_address("no_such_function_in_libc") == 0
    assert memory.function_address("preadv2") > 0


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9])
def test_empty_and_short_ranges_compare(length: int) -> None:
    data = Bytes(b"abcdefghi")
    assert equal_bytes(data.address, data.address, length)


def test_bytes_of_these_tests_end_where_reading_on_kills() -> None:
    code = "from kernel_memory import Bytes; import ctypes; held = Bytes(b'ab'); ctypes.string_at(held.address, {})"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    for length, expected in ((2, 0), (3, -signal.SIGSEGV)):
        command = [sys.executable, "-c", code.format(length)]
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False, timeout=60)
        assert done.returncode == expected
