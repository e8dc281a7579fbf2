"""Sizes and amounts, as people write and read them."""

import pytest

from protocol.errors import ConfigError
from storage.search.criteria import parse_size_range
from storage.search.progress import ProgressReport


def test_sizes_are_read() -> None:
    for text, sizes in [
        ("512", (512, 512)),
        ("1k..2M", (1024, 2 << 20)),
        ("..3", (0, 3)),
        ("1K", (1024, 1024)),
        ("100..", (100, None)),
        ("0..0", (0, 0)),
    ]:
        assert parse_size_range(text) == sizes


def test_other_texts_are_no_sizes() -> None:
    for text in ["", "..", "x", "1.5k", "-1", "5..4", "1kB"]:
        with pytest.raises(ConfigError):
            parse_size_range(text)


def test_progress_is_told_in_a_sentence() -> None:
    assert ProgressReport(0, 0, 0, 0.0).sentence() == "searched 0 of 0 bytes (100 %), 0 found"
    assert ProgressReport(5, 5, 1, 2.0).sentence() == "searched 5 of 5 bytes (100 %), 1 found, 2.50 bytes/s, in 2.0 s"
    resumed = ProgressReport(3 * 10**9, 4 * 10**9, 2, 2.0, before_bytes=2 * 10**9)
    assert resumed.sentence() == "searched 3 of 4 GB (75 %), 2 found, 500 MB/s, 0:00:02 left"
