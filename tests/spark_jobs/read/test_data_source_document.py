"""The examples of docs/spark.md, run one after the other as in a notebook."""

import re
from pathlib import Path

import oracles
from made_parts import made
from spark_jobs.export.export import run_export
from spark_jobs.export.export_request import ExportRequest
from spark_jobs.read.source_options import NAMES
from spark_jobs.run.progress import Silence
from storage.columns.names import KINDS

DOCUMENT = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()


def test_the_examples_run_and_find_what_is_there(session, g1_store, tmp_path, capsys) -> None:
    blocks = re.findall(r"^```python$(.*?)^```$", DOCUMENT, re.M | re.S)
    assert len(blocks) == 7
    out = f"file://{tmp_path}/export"
    run_export(ExportRequest(store=str(g1_store), out=out, format="parquet"), Silence())
    here = {"/path/to/store": str(g1_store), "s3://bucket/export": out, '"s3': '"file'}
    names = {}
    for block in blocks:
        for written, meant in here.items():
            block = block.replace(written, meant)
        exec(compile(block, "docs/spark.md", "exec"), names)
    records = [record for record in oracles.read_log(g1_store / "commitlog") if record.topic == "TopicTest"]
    assert names["count"] == len(records) == sum(row["count"] for row in names["per_minute"].collect())
    assert [row.body for row in names["found"].collect()] == ["Hello world"]
    assert names["damage"].count() == 0
    every = len(oracles.read_log(g1_store / "commitlog"))
    assert session.table("arrived").count() == every
    assert names["exported"].count() == names["dataset"].count_rows() == every
    assert "TopicTest|   52|" in capsys.readouterr().out


def test_every_column_and_option_is_explained() -> None:
    rows = re.findall(r"^\| (`[^|]*`) \|", made(DOCUMENT), re.M)
    explained = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert set(KINDS) <= explained
    assert NAMES - {"path"} <= {name.lower() for name in explained}
