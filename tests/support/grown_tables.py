"""Tables of files read back as any reader of a directory would, without what RocketLens keeps beside the data."""

from datetime import UTC, datetime
from typing import Any, cast
from urllib.parse import unquote

from exported_files import READERS, Row
from loop_engine import LoopEngine
from spark_jobs.places.output_place import OutputPlace
from spark_jobs.run.progress import Silence
from spark_jobs.run.report import Report
from spark_jobs.tables.append import run_append
from spark_jobs.tables.table_request import TableDetails, TableRequest
from store_writer import StoreWriter

PARTITIONS = ("topic", "date")
DAY = 24 * 60 * 60 * 1000


def append(store: StoreWriter, place: OutputPlace, source: str = "", **more: Any) -> Report[TableDetails]:
    """A run whose tasks this process does, on JSON lines in partitions unless something else is asked for.

    `source` is where the store lies, if not in its directory.
    """
    options = {"format": "jsonl", "partition_by": PARTITIONS, "since_last": True, **more}
    request = TableRequest(store=source or str(store.root), table=place.url, out_storage=place.storage, **options)
    return run_append(request, Silence(), cast("Any", LoopEngine()))


def rows_of_table(place: OutputPlace, format_: str = "jsonl") -> list[Row]:
    """The rows below `data`, in the order of the log, with what the names of directories say."""
    rows = []
    for name in place.objects("data"):
        assert name.endswith(f".{format_}"), name
        data = place.read(name)
        assert data is not None
        values = dict(map(unquote, part.split("=")) for part in name.split("/")[1:-1])
        rows += [row | values for row in READERS.get(format_, READERS["ndjson"])(data)]
    return sorted(rows, key=lambda row: int(row["physical_offset"]))


def with_date(row: Row) -> Row:
    """A row of the oracle, with the day on which it was stored."""
    return row | {"date": datetime.fromtimestamp(row["store_timestamp"] / 1000, UTC).date().isoformat()}
