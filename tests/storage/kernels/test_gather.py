"""The kernels that gather texts, at their edges; the rest is shown with the columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_memory import Bytes
from storage.kernels import gather as kernel


@given(st.lists(st.binary(max_size=20), max_size=6))
def test_texts_with_bytes_beyond_ascii_are_found(texts: list[bytes]) -> None:
    held = [Bytes(text) for text in texts]
    addresses = np.array([each.address for each in held], np.int64)
    lengths = np.array([each.length for each in held], np.int64)
    found = np.zeros(len(texts), np.int64)
    count = kernel.find_non_ascii(addresses, lengths, found)
    assert found[:count].tolist() == [row for row, text in enumerate(texts) if not text.isascii()]


@pytest.mark.parametrize("port", [0, 9, 10, 10911, 2**31 - 1, -1, -(2**31)])
def test_any_port_is_written(port: int) -> None:
    held = Bytes(bytes([255, 0, 10, 199]) + port.to_bytes(4, "big", signed=True))
    room, lengths = np.zeros(kernel.HOST_ROOM, np.uint8), np.zeros(1, np.int64)
    kernel.write_hosts(np.array([held.address]), room.ctypes.data, lengths)
    assert room[: lengths[0]].tobytes().decode() == f"255.0.10.199:{port}"


def test_missing_texts_are_not_copied() -> None:
    held = Bytes(b"abc")
    data = np.zeros(3, np.uint8)
    kernel.copy_texts(
        np.array([0, held.address, 0]), np.array([-1, 3, 0]), np.array([0, 0, 3, 3], np.int32), data.ctypes.data
    )
    assert data.tobytes() == b"abc"


@given(st.lists(st.sampled_from([b" ", b"a", b"abcdefg", b"!\x1f"]), max_size=12).map(b"".join))
def test_texts_are_split_at_blanks(text: bytes) -> None:
    held = Bytes(text)
    counts, starts, sizes = np.empty(1, np.int64), np.empty(50, np.int64), np.empty(50, np.int64)
    total = kernel.split_keys(np.array([held.address]), np.array([len(text)]), counts, starts, sizes)
    pieces = list(zip((starts[:total] - held.address).tolist(), sizes[:total].tolist(), strict=True))
    assert [text[start : start + size] for start, size in pieces] == [each for each in text.split(b" ") if each]
    assert counts[0] == total
