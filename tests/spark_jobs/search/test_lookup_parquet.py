"""Rows of a look-up as Parquet: nothing is lost that Arrow can hold, and what is no Unicode does not end the file."""

from pathlib import Path

import pyarrow.parquet as pq

from spark_jobs.search.lookup_parquet import ParquetRows


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
