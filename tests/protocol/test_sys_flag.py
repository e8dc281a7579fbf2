"""The bits of sysFlag."""

import pytest

from protocol.sys_flag import CompressionType, compression_type, has_inner_messages


def test_compression_is_read_off_bits_8_to_10() -> None:
    for value, expected in [
        (0x000, CompressionType.ZLIB),
        (0x101, CompressionType.LZ4),
        (0x201, CompressionType.ZSTD),
        (0x301, CompressionType.ZLIB),
        (0x401, None),
        (0x501, None),
        (0x601, None),
        (0x701, None),
        (0x901, CompressionType.LZ4),
        (-1, None),
    ]:
        assert compression_type(value) is expected


@pytest.mark.parametrize(
    ("value", "expected"), [(0x40, False), (0x80, False), (0xC0, True), (0xFF, True), (0x3F, False)]
)
def test_a_batch_is_split_only_if_both_bits_say_so(value: int, expected: bool) -> None:
    assert has_inner_messages(value) is expected
