"""Tables that a Spark stream grows: what `rocketlens.append_batches` returns."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

from protocol.errors import ConfigError
from rocketlens.arguments import check_names
from storage.extras import install_line
from storage.files.write_guard import check_outside

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class TableOptions(TypedDict, total=False):
    """The keyword arguments of :func:`append_batches`; those of `rocketlens export --to`."""

    format: str
    partition_by: str | Sequence[str]
    topic: str | Iterable[str] | None
    tag: str | None
    where: str | None
    columns: Sequence[str]
    mask: Sequence[str]
    unpack: bool
    charset: str | None
    storage_options: Mapping[str, object] | None
    table_storage_options: Mapping[str, object] | None
    engine: str
    catalog: Mapping[str, str]
    name: str


def append_batches(
    store: str | PathLike[str], table: str | PathLike[str], **options: Unpack[TableOptions]
) -> "Callable[[DataFrame, int], None]":
    """Return a function for `foreachBatch` of a stream that follows `store`: each micro-batch grows a table.

    The table gets the messages of the log from its own position up to the last one of the batch, by the very run that
    `rocketlens export --to TABLE --since-last` makes: both may write to it in turns, and a batch that Spark runs again
    appends nothing twice. So the stream says when and how far, these options say what; let its own columns be
    `physical_offset,size`, which are read quickly. `format` is `parquet` unless another is named; `partition_by` are
    `topic`, `date` or both. Of an Iceberg table `catalog` are the properties of its catalog, and `name` is what that
    calls it.

    Raises :class:`ConfigError` for impossible options, and for a table inside the store. The function does for a
    frame without these columns and for another log than the table's, and raises :class:`StoreError` where another run
    has committed meanwhile. Needs pyspark.
    """
    try:
        from spark_jobs.places.file_systems import is_url, local_path
        from spark_jobs.run.progress import Silence
        from spark_jobs.tables.append import run_append
        from spark_jobs.tables.table_request import TableRequest
    except ImportError as error:
        raise ConfigError(f"rocketlens.append_batches needs pyarrow: {install_line('spark')}") from error

    check_names(options, TableOptions)
    places = [local_path(fspath(place)) for place in (store, table)]
    if not any(map(is_url, places)):
        check_outside([Path(places[0])], {"table": Path(places[1])})
    by = options.get("partition_by", ())
    topic, storage = options.get("topic"), options.get("storage_options")
    table_storage = options.get("table_storage_options")
    request = TableRequest(
        store=places[0],
        table=fspath(table),
        format=options.get("format", "parquet"),
        partition_by=(by,) if isinstance(by, str) else tuple(by),
        since_last=True,
        topics=() if topic is None else (topic,) if isinstance(topic, str) else tuple(topic),
        tag=options.get("tag"),
        where=options.get("where"),
        columns=tuple(options.get("columns", ())),
        masked=tuple(options.get("mask", ())),
        unpack=options.get("unpack"),
        charset=options.get("charset"),
        storage="" if storage is None else json.dumps(dict(storage)),
        out_storage="" if table_storage is None else json.dumps(dict(table_storage)),
        engine=options.get("engine", "auto"),
        catalog=dict(options.get("catalog", {})),
        name=options.get("name", ""),
    )

    def append(frame: "DataFrame", _batch: int) -> None:
        missing = [name for name in ("physical_offset", "size") if name not in frame.columns]
        if missing:
            raise ConfigError(f"the stream has no column {missing[0]}: name it in its option columns")
        (row,) = frame.selectExpr("max(physical_offset + size) AS until").collect()
        if row["until"] is not None:
            run_append(request, Silence(), until=int(row["until"]))

    return append
