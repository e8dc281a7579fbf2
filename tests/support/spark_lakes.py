"""Read a table of Iceberg or Delta by Spark and its runtime for that format, as a program of its own.

`python tests/support/spark_lakes.py FORMAT TABLE JARS [CATALOG]` prints the columns with their types as one line of
JSON, and then a line for each row. TABLE is a directory for Delta; for Iceberg it is a name in the catalog behind REST.
PYTHONPATH says which PySpark that is: the newest for which there is a runtime, which need not be the pinned one.
"""

import base64
import json
import sys
from datetime import date, datetime
from pathlib import Path

from pyspark.sql import SparkSession


def main(format_: str, table: str, jars: str, catalog: str = "") -> None:
    settings = {
        "spark.jars": ",".join(map(str, sorted(Path(jars).glob("*.jar")))), "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
    }  # fmt: skip
    if format_ == "delta":
        settings["spark.sql.extensions"] = "io.delta.sql.DeltaSparkSessionExtension"
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    else:
        lake = "spark.sql.catalog.lake"
        settings |= {lake: "org.apache.iceberg.spark.SparkCatalog", f"{lake}.type": "rest", f"{lake}.uri": catalog}
        settings[f"{lake}.io-impl"] = "org.apache.iceberg.hadoop.HadoopFileIO"
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    frame = spark.read.format("delta").load(table) if format_ == "delta" else spark.table(f"lake.{table}")
    print(json.dumps(dict(frame.dtypes)))
    for row in frame.collect():
        print(json.dumps(row.asDict(recursive=True), default=_said))
    spark.stop()


def _said(value: object) -> object:
    if isinstance(value, bytearray | bytes):
        return base64.b64encode(value).decode()
    assert isinstance(value, date | datetime), value
    return value.isoformat()


if __name__ == "__main__":
    main(*sys.argv[1:])
