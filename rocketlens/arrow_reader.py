"""Messages as Arrow batches, for whatever reads Arrow: what `rocketlens.arrow` returns."""

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

from protocol.errors import ConfigError
from rocketlens.arguments import Time, check_names, times_of
from rocketlens.source import Source
from rocketlens.store import Store
from storage.columns.wanted import LOWEST
from storage.extras import install_line

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_jobs.read.log_ranges import Problem


class ArrowOptions(TypedDict, total=False):
    """The keyword arguments of :func:`arrow` that choose messages, and those of the store's file system."""

    tag: str | None
    queue_id: int | Iterable[int] | None
    begin: Time | None
    end: Time | None
    where: str | None
    mask: Sequence[str]
    storage_options: Mapping[str, object] | None


MOST_WARNED: Final = 5
"""Places of damage of one segment that are named one by one."""


class DamageWarning(UserWarning):
    """A part of the log is damaged or missing, and its messages are left out."""


def arrow(
    store: Source | str | PathLike[str],
    topic: str | Iterable[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    fails_fast: bool = False,
    **options: Unpack[ArrowOptions],
) -> "pa.RecordBatchReader":
    """Messages as a `pyarrow.RecordBatchReader`, which DuckDB, Polars and pandas take, in the order of the log.

    `store` is one that is open, a directory, or a URL that fsspec knows, with `storage_options` of its file system.
    `columns` are some of those of the Parquet export, with the same types; name those that you need, since bodies cost
    the most. `topic` and `queue_id` are one or several, `tag` is an expression such as ``TagA || TagB``, `where` SQL92
    over the properties; `begin` and `end` are store times, both included. `mask` are rules of what is hidden
    (docs/security.md); by that messages cannot be chosen.

    The log is read while batches are asked for. What of it is damaged is left out with a :class:`DamageWarning`, or
    with `fails_fast` raises :class:`CorruptRecord`. Where no message was read, a topic that is nowhere in the store is
    :class:`NoSuchTopic` at the end. Needs pyarrow; raises :class:`ConfigError` without it, and for arguments that
    cannot be.

    >>> reader = rocketlens.arrow(path, topic="TopicTest", columns=["queue_id", "tags"])
    >>> reader.schema.names
    ['queue_id', 'tags']
    >>> reader.read_all().group_by("tags").aggregate([("queue_id", "count")]).num_rows > 5
    True
    """
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ConfigError(f"rocketlens.arrow needs pyarrow: {install_line('parquet')}") from error

    from spark_jobs.read.absent_topics import refuse_absent_topics
    from spark_jobs.read.arrow_columns import arrow_schema
    from spark_jobs.read.log_ranges import find_ranges
    from spark_jobs.read.read_range import check_problems, read_messages
    from spark_jobs.read.source_options import read_options

    wanted = read_options(_as_of_data_source(store, topic, columns, options))
    found = find_ranges(wanted.path, wanted.commit_log, wanted.storage)
    check_problems(found, fails_fast=fails_fast, notify=_warn)
    schema = arrow_schema(wanted.columns)

    def batches() -> "Iterator[pa.RecordBatch]":
        is_empty = True
        for each in found.holding(wanted.wanted):
            for batch in read_messages(
                each,
                wanted.wanted,
                schema,
                fails_fast=fails_fast,
                masked=wanted.masked,
                notify=_warn,
                note=partial(warnings.warn, stacklevel=2),
            ):
                is_empty = is_empty and not batch.num_rows
                yield batch
        if is_empty:
            topics = sorted(topic.decode() for topic in wanted.wanted.topics or ())
            refuse_absent_topics(wanted.path, wanted.commit_log, wanted.storage, topics)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _as_of_data_source(
    store: Source | str | PathLike[str],
    topic: str | Iterable[str] | None,
    columns: Sequence[str] | None,
    more: ArrowOptions,
) -> dict[str, str]:
    """The arguments as options of the data source, which reads the same."""
    check_names(more, ArrowOptions)
    begin, end, queue_id = more.get("begin"), more.get("end"), more.get("queue_id")
    tag, where, storage_options = more.get("tag"), more.get("where"), more.get("storage_options")
    if isinstance(store, Source) and not isinstance(store, Store):
        raise ConfigError(f"{store!r}: expected a store in a directory, or the directory or URL of one")
    options = {"path": str(store.path) if isinstance(store, Store) else fspath(store)}
    if isinstance(store, Store):
        options["commit_log"] = ",".join(map(str, store.commit_log_directories))
    rules = (*(store.rules if isinstance(store, Store) else ()), *more.get("mask", ()))
    if topic is not None:
        options["topic"] = topic if isinstance(topic, str) else ",".join(topic)
    if columns is not None:
        options["columns"] = ",".join(columns)
    if queue_id is not None:
        options["queue_id"] = str(queue_id) if isinstance(queue_id, int) else ",".join(map(str, queue_id))
    first, last = times_of(begin, end, LOWEST)
    options |= {} if begin is None else {"from": str(first)}
    options |= {} if end is None else {"to": str(last)}
    options |= {} if tag is None else {"tag": tag}
    options |= {} if where is None else {"where": where}
    options |= {"mask": "\n".join(rules)} if rules else {}
    return options | ({} if storage_options is None else {"storage_options": json.dumps(dict(storage_options))})


def _warn(problems: "Sequence[Problem]") -> None:
    for problem in problems[:MOST_WARNED]:
        warnings.warn(DamageWarning(problem.sentence()), stacklevel=2)
    if len(problems) > MOST_WARNED:
        warnings.warn(DamageWarning(f"{len(problems) - MOST_WARNED} more places are damaged"), stacklevel=2)
