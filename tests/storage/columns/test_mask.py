"""What is masked is nowhere in the columns any more, and the rest is as it was."""

import gzip
import zlib
from pathlib import Path
from typing import Any

import pytest

from column_rows import rows_of
from protocol.errors import ConfigError
from protocol.mask import Mask
from protocol.message import decode_message
from storage.columns.mask import read_mask
from storage.columns.message_columns import gather
from storage.columns.names import KINDS
from storage.columns.rows import RowReader
from storage.columns.wanted import Wanted
from storage.log.log_window import LocalFile, LogWindow
from store_writer import StoreWriter


@pytest.fixture
def writer(tmp_path: Path) -> StoreWriter:
    writer = StoreWriter(tmp_path)
    writer.append("T", b"secret", tags="A", keys="k l", unique_key="u", properties={"card": "4111", "cart": "x"})
    writer.append("T", b"", properties={"cart": "y"})
    writer.close()
    return writer


def masked(writer: StoreWriter, *fields: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    (segment,) = writer.log.segments.values()
    with LogWindow(LocalFile(segment), 0) as window:
        for rows in RowReader(window, Wanted(), names=True).read(0, writer.log.end):
            (columns,) = gather(rows, tuple(KINDS))
            return rows_of(columns), rows_of(read_mask(fields).apply(columns, tuple(columns)))
    raise AssertionError


RULES = [
    *(["body"], ["keys"], ["tags"], ["unique_key"], ["hosts"], ["properties"], ["properties.card"]),
    *(["$.phone"], ["/1[3-9]\\d{9}/"], ["/l m/"], ["body:/138/", "tags"], ["properties:/4\\d+/", "$..x"]),
]


@pytest.mark.parametrize("rules", RULES, ids=" ".join)
def test_columns_and_messages_are_masked_alike(tmp_path: Path, rules: list[str]) -> None:
    writer = StoreWriter(tmp_path)
    phone = b"13812345678"
    for body in (b'{"phone": "138"}', phone, b"\xff" + phone, gzip.compress(phone), b"", b"plain"):
        writer.append("T", body, tags="A 13812345678", keys="k l m", unique_key="u", properties={"card": "4111"})
    writer.append("T", zlib.compress(phone), sys_flag=1, properties={"REAL_TOPIC": "T41"})
    writer.append("T", b"batch " + phone, sys_flag=0xC0, properties={"card": "4111"})
    writer.append("RMQ_SYS_TRACE_TOPIC", b"Pub k")
    writer.close()
    mask = Mask(rules)
    rows = masked(writer, *rules)[1]
    assert len(rows) == len(writer.records)
    (segment,) = writer.log.segments.values()
    data = segment.read_bytes()
    for record, row in zip(writer.records, rows, strict=True):
        shown = mask.message(decode_message(data[record.physical_offset :]))
        assert row["body"] == shown.body
        assert row["properties"] == shown.properties
        assert (row["tags"], row["unique_key"], row["born_host"]) == (
            shown.tags,
            shown.unique_key,
            str(shown.born_host),
        )
        assert row["store_host"] == str(shown.store_host)
        assert (row["body_crc"], len(row["keys"])) in {(shown.body_crc, 3), (shown.body_crc, 0), (shown.body_crc, 2)}
        assert not set(row["keys"]) - {"k", "l", "m", "***"}


def test_a_column_alone_is_masked_as_beside_the_others(writer: StoreWriter) -> None:
    (segment,) = writer.log.segments.values()
    mask = read_mask(("/secret/", "$.a"))
    with LogWindow(LocalFile(segment), 0) as window:
        for rows in RowReader(window, Wanted()).read(0, writer.log.end):
            (columns,) = gather(rows, mask.reading(("body",)))
            assert rows_of(mask.apply(columns, ("body",))) == [{"body": b"***"}, {"body": b""}]


@pytest.mark.parametrize("field", ["topic", "properties.", "queue_id", ""])
def test_what_is_no_field_to_mask_is_refused(field: str) -> None:
    with pytest.raises(ConfigError, match="to mask: expected body, keys"):
        read_mask([field])
