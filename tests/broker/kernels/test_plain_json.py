"""Where a run of plain ASCII ends: eight bytes at a time, and the same as one by one."""

import re

from hypothesis import given
from hypothesis import strategies as st

from broker.kernels.plain_json import plain_end
from storage.kernels.memory import address_of

SPECIAL = re.compile(rb'["\\\x00-\x1f\x80-\xff]')


@given(st.binary(max_size=40), st.integers(0, 12))
def test_a_run_ends_at_the_first_special_byte(tail: bytes, plain: int) -> None:
    data = b"~ !#[]azAZ\x7f0"[:plain] + tail
    expected = found.start() if (found := SPECIAL.search(data)) else len(data)
    start = address_of(data)
    assert plain_end(start, start + len(data)) - start == expected


def test_every_byte_counts_alike_at_every_place_before_any_other_byte() -> None:
    for byte in range(256):
        for place in range(16):
            data = b"a" * place + bytes([byte, (byte + 1) % 256, 0x22, 0x00])
            data += b"a" * (20 - len(data))
            found = SPECIAL.search(data)
            assert found
            start = address_of(data)
            assert plain_end(start, start + len(data)) - start == found.start(), data
