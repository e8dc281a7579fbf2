"""Columns as rows, and the same rows from the records that an oracle reads: what both must agree on."""

import ipaddress
import itertools
import zlib
from typing import Any

import lz4.frame
import zstandard

import oracles
from storage.columns.message_columns import gather
from storage.columns.names import KINDS
from storage.columns.rows import RowReader
from storage.columns.texts import RepeatedTexts, TextLists, TextMaps, Texts
from storage.columns.wanted import Wanted
from storage.log.log_window import LocalFile, LogWindow

Row = dict[str, Any]


def texts_of(texts):
    if isinstance(texts, RepeatedTexts):
        words = texts_of(texts.words)
        return [None if code < 0 else words[code] for code in texts.codes.tolist()]
    ends = texts.offsets.tolist()
    data = texts.data.tobytes()
    present = [True] * len(texts) if texts.present is None else texts.present.tolist()
    return [
        data[start:end] if there else None
        for (start, end), there in zip(itertools.pairwise(ends), present, strict=True)
    ]


def _decoded(texts):
    return [text if text is None else text.decode() for text in texts_of(texts)]


def values_of(name: str, column: Any) -> list[Any]:
    if isinstance(column, Texts | RepeatedTexts):
        return texts_of(column) if name == "body" else _decoded(column)
    if isinstance(column, TextLists):
        ends, texts = column.offsets.tolist(), _decoded(column.texts)
        return [texts[start:end] for start, end in itertools.pairwise(ends)]
    if isinstance(column, TextMaps):
        ends = column.offsets.tolist()
        pairs = list(zip(_decoded(column.names), _decoded(column.values), strict=True))
        return [dict(pairs[start:end]) for start, end in itertools.pairwise(ends)]
    values: list[Any] = column.tolist()
    return values


def rows_of(columns):
    values = {name: values_of(name, column) for name, column in columns.items()}
    assert all(len(each) == columns.count for each in values.values())
    return [{name: each[row] for name, each in values.items()} for row in range(columns.count)]


def read_rows(
    segment,
    base_offset,
    wanted=None,
    names=tuple(KINDS),
    *,
    start=0,
    stop=None,
    is_last=True,
    read_bytes=4096,
    boundary=0,
):
    with LogWindow(LocalFile(segment), base_offset, read_bytes) as window:
        reader = RowReader(window, wanted or Wanted(), names=True, is_last=is_last, boundary=boundary)
        found = [
            row
            for rows in reader.read(start, window.size if stop is None else stop)
            for columns in gather(rows, names)
            for row in rows_of(columns)
        ]
        return found, reader.damage


def read_log_rows(directory, wanted=None):
    segments = sorted(path for path in directory.iterdir() if path.stat().st_size)
    rows: list[Row] = []
    for number, path in enumerate(segments):
        found, damage = read_rows(path, int(path.name), wanted, is_last=number == len(segments) - 1)
        assert not damage
        rows += found
    return rows


def expected_row(record: oracles.Record) -> Row:
    properties = record.properties
    own = """topic queue_id queue_offset physical_offset store_timestamp born_timestamp flag sys_flag reconsume_times
        prepared_transaction_offset body_crc"""
    return {name: getattr(record, name) for name in own.split()} | {
        "size": record.total_size,
        "store_host": host_text(record.store_host),
        "born_host": host_text(record.born_host),
        "unique_key": properties.get("UNIQ_KEY"),
        "keys": record.keys,
        "tags": properties.get("TAGS"),
        "properties": properties,
        **body_of(record),
    }


def body_of(record: oracles.Record) -> Row:
    """The body, or that the stream of a compressed one is cut off."""
    try:
        return {"body": decompressed(record), "body_error": None}
    except zlib.error:
        return {"body": None, "body_error": "zlib body the stream ends early, expected a complete stream"}


def decompressed(record: oracles.Record) -> bytes:
    if not record.sys_flag & 1 or not record.body:
        return record.body
    kind = record.sys_flag >> 8 & 7
    if kind == 1:
        return bytes(lz4.frame.decompress(record.body))
    return zstandard.decompress(record.body, 1 << 20) if kind == 2 else zlib.decompress(record.body)


def host_text(host: tuple[bytes, int]) -> str:
    address, port = host
    return (
        f"[{ipaddress.ip_address(address)}]:{port}" if len(address) == 16 else f"{'.'.join(map(str, address))}:{port}"
    )


def expected_rows(records):
    return [
        expected_row(message) | {"size": record.total_size}
        for record in records
        for message in oracles.messages_of(record)
    ]
