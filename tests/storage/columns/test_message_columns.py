"""Columns of messages: names, and bodies that are compressed, badly or into very much."""

import zlib
from pathlib import Path

import pytest

from column_rows import read_log_rows
from protocol.errors import ConfigError
from storage.columns import message_columns
from storage.columns.names import check_names
from store_writer import StoreWriter

COMPRESSED = 1


def test_a_body_that_cannot_be_decompressed_is_missing_and_says_why(tmp_path: Path) -> None:
    writer = StoreWriter(tmp_path)
    writer.append("T", zlib.compress(b"good"), sys_flag=COMPRESSED)
    writer.append("T", b"no stream\xff\1", sys_flag=COMPRESSED)
    writer.append("T", b"odd\xff\1", sys_flag=COMPRESSED | 0x700)
    writer.append("T", b"plain")
    writer.append("T", b"", sys_flag=COMPRESSED)
    writer.close()
    rows = read_log_rows(tmp_path / "commitlog")
    assert [row["body"] for row in rows] == [b"good", None, None, b"plain", b""]
    assert [row["body_error"] is None for row in rows] == [True, False, False, True, True]
    assert "zlib" in rows[1]["body_error"]
    assert rows[2]["body_error"] == "compression type 7, expected 0 to 3"


def test_bodies_that_decompress_to_very_much_end_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_columns, "MOST_BODY_BYTES", 1000)
    writer = StoreWriter(tmp_path)
    sizes = [600, 3, 600, 5, 2000, 1, 7]
    for size in sizes:
        compressed = size > 100
        body = bytes(size)
        writer.append("T", zlib.compress(body) if compressed else body, sys_flag=COMPRESSED if compressed else 0)
    writer.append("T", b"bad\xff\1", sys_flag=COMPRESSED)
    writer.close()
    rows = read_log_rows(tmp_path / "commitlog")
    assert [len(row["body"]) for row in rows[:-1]] == sizes
    assert [row["queue_offset"] for row in rows] == list(range(8))
    assert [row["body_error"] is None for row in rows] == [True] * 7 + [False]


def test_only_columns_can_be_named_and_once() -> None:
    assert check_names(["body", "topic"]) == ("body", "topic")
    with pytest.raises(ConfigError, match="no column 'boby': expected some of topic, queue_id"):
        check_names(["topic", "boby"])
    with pytest.raises(ConfigError, match="named twice"):
        check_names(["topic", "topic"])
