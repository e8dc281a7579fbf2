"""Rows of a look-up as Parquet: nothing is lost that Arrow can hold, and what is no Unicode does not end the file."""

from pathlib import Path

import pyarrow.parquet as pq

from spark_jobs.search.lookup_parquet import ROWS_AT_ONCE, ParquetRows


def test_what_is_missing_stays_apart_from_what_is_empty(tmp_path: Path) -> None:
    rows = ParquetRows(tmp_path / "out")
    rows.write([{"query": "a", "found": True, "keys": ["k", "l"], "properties": {"n": "1", "m": "2"}, "more": 3}])
    rows.write([{"query": "b", "found": False}, {"query": "c", "found": True, "keys": [], "properties": {}}])
    rows.write([{"query": "d", "found": True, "properties": {"o": "3"}}] * ROWS_AT_ONCE)
    rows.close()
    table = pq.read_table(tmp_path / "out")
    first = table.select(["query", "found", "keys", "properties", "body"]).slice(0, 4).to_pylist()
    assert first == [
        {"query": "a", "found": True, "keys": ["k", "l"], "properties": [("n", "1"), ("m", "2")], "body": None},
        {"query": "b", "found": False, "keys": None, "properties": None, "body": None},
        {"query": "c", "found": True, "keys": [], "properties": [], "body": None},
        {"query": "d", "found": True, "keys": None, "properties": [("o", "3")], "body": None},
    ]
    assert table.num_rows == 3 + ROWS_AT_ONCE


def test_half_a_surrogate_pair_is_a_question_mark(tmp_path: Path) -> None:
    rows = ParquetRows(tmp_path / "out")
    texts = {"query": "a\ud800", "found": True, "keys": ["x\udc00"], "properties": {"n\ud800": "é", "b": "\udfff"}}
    rows.write([texts, {"query": "文", "found": False}])
    rows.close()
    found = pq.read_table(tmp_path / "out").select(["query", "keys", "properties"]).to_pylist()
    assert found == [
        {"query": "a?", "keys": ["x?"], "properties": [("n?", "é"), ("b", "?")]},
        {"query": "文", "keys": None, "properties": None},
    ]
