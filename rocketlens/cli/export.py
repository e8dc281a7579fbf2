"""`rocketlens export`; `spark_jobs/export_store.py` is the same for spark-submit.

Late imports: NumPy and the kernels come along with them, and help and most usage errors do without.
"""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from protocol.body_content import charset_of
from protocol.errors import ConfigError
from protocol.mask import rules_of_file
from protocol.redaction import keep_secrets
from rocketlens.cli.command_options import (
    checked,
    fresh_option,
    job_options,
    storage_option_where,
)
from rocketlens.cli.command_run import JobOptions, run_command, run_command_every
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.time_options import check_stored, chosen_zone, stored_options, timezone_option, typed_time
from spark_jobs.export.export_place import COMPRESSIONS, check_place
from spark_jobs.places.file_systems import has_scheme
from spark_jobs.places.place_names import FORMAT_NAMES
from spark_jobs.tables.days import parse_day, parse_pause
from spark_jobs.tables.table_names import DELTA, ICEBERG, PARTITIONS, TABLE_FORMATS
from storage.columns.names import check_names
from storage.extras import install_line
from storage.patterns.mask import mask_of
from storage.times import is_relative, parse_time

TABLE_OPTIONS: Final = {
    "since_last": "--since-last",
    "partition_by": "--partition-by",
    "drop_before": "--drop-before",
    "compact_bytes": "--compact-files",
    "every": "--every",
    "metrics": "--metrics",
    "catalog": "--catalog",
    "name": "--table",
}
"""Options that only tables have, by their parameters."""

CSV_OPTIONS: Final = {"excel": "--excel", "keep_formulas": "--keep-formulas"}
"""Options that only CSV has."""

LIBRARIES: Final = {
    "parquet": ("pyarrow",),
    ICEBERG: ("pyiceberg", "pyarrow"),
    DELTA: ("deltalake", "pyarrow"),
}
"""What formats need besides the base install; the formats are the names of the extras, too."""

EXPORT_TASKS: Final = "spark_jobs.export.export_part"
APPEND_TASKS: Final = "spark_jobs.tables._append_task"
"""The modules of tasks."""

COMPACTED_BYTES: Final = 256 * 1024 * 1024
LARGEST_PORT: Final = 65535

if TYPE_CHECKING:
    from spark_jobs.run.local_engine import LocalEngine
    from spark_jobs.run.progress import JobProgress
    from spark_jobs.run.report import AnyReport
    from spark_jobs.tables.table_request import TableRequest


def export(options: JobOptions, progress: "JobProgress", ahead: "LocalEngine | None") -> "AnyReport":
    """Export what the options ask for."""
    from spark_jobs.export.export import run_export
    from spark_jobs.export.export_request import ExportRequest

    return run_export(ExportRequest(**options), progress, ahead)


def append(options: JobOptions, progress: "JobProgress", ahead: "LocalEngine | None") -> "AnyReport":
    """Append what is new to a table."""
    from spark_jobs.tables.append import run_append

    return run_append(_table_request(options), progress, ahead)


def _table_request(options: JobOptions) -> "TableRequest":
    """The options of a run that appends; `out` is where the table is."""
    from spark_jobs.tables.table_request import TableRequest

    names = set(TableRequest.__struct_fields__)
    return TableRequest(table=options["out"], **{name: value for name, value in options.items() if name in names})


def check(options: JobOptions) -> None:
    """Raise ConfigError for errors that can be found before anything is started."""
    _check_options(options)
    if options["format"] not in FORMAT_NAMES:
        raise ConfigError(f"--format {options['format']} is for a table, which --to names")
    if has_scheme(options["out"]):
        from spark_jobs.places.placed_run import check_url

        check_url(options["out"], options["out_storage"] or options["storage"], fresh=options["fresh"])
    else:
        check_place(Path(options["out"]), fresh=options["fresh"])


def check_append(options: JobOptions) -> None:
    """Raise ConfigError for errors of a table's options."""
    _check_options(options)
    if options["format"] not in TABLE_FORMATS:
        raise ConfigError(f"--format {options['format']}: a table is of {', '.join(TABLE_FORMATS)}")
    if options["format"] != ICEBERG and (options["catalog"] or options["name"]):
        raise ConfigError(f"--catalog and --table are for --format {ICEBERG}")
    if options["fresh"]:
        raise ConfigError("--fresh and --to cannot be combined: a table is appended to, never written anew")


def _check_options(options: JobOptions) -> None:
    if options["masked"]:
        from storage.filter.hidden import refuse_hidden

        refuse_hidden(mask_of(options["masked"]), options["tag"], options["where"])
    check_stored(options["begin"], options["end"])
    libraries = LIBRARIES.get(options["format"], ())
    for library in libraries:
        if importlib.util.find_spec(library) is None:
            extra = options["format"]
            raise ConfigError(f"--format {extra} needs {library}: {install_line(extra)}")
    for name, flag in CSV_OPTIONS.items():
        if options.get(name) and options["format"] != "csv":
            raise ConfigError(f"{flag} is for --format csv")
    if options["unpack"] is False and options["charset"]:
        raise ConfigError("--no-unpack and --charset cannot be combined: a text may be packed")
    if options.get("excel") and options.get("keep_formulas"):
        raise ConfigError("--excel and --keep-formulas cannot be combined: a spreadsheet would run them")
    if not libraries and options["compression"] != COMPRESSIONS[0]:
        raise ConfigError(f"--compression {options['compression']} is for --format parquet")


def _to(texts: tuple[str, ...]) -> tuple[int | None, str | None]:
    """A time, and the place of a table: what begins with a digit and has no slash, or is relative, is a time.

    Times were given so before there was --until; they are taken until the next release.
    """
    end: int | None = None
    table: str | None = None
    for text in texts:
        if is_relative(text) or (text[:1].isdigit() and "/" not in text):
            if end is not None:
                raise ConfigError("two times")
            end = parse_time(text, chosen_zone())
        elif table is not None or not text:
            raise ConfigError("expected one place" if text else "it is empty")
        else:
            table = text
    return end, table


def _partition_by(text: str) -> tuple[str, ...]:
    names = tuple(piece for each in text.split(",") if (piece := each.strip()))
    unknown = [name for name in names if name not in PARTITIONS]
    if unknown or len(set(names)) != len(names):
        raise ConfigError(f"{text!r}: expected {', '.join(PARTITIONS)}, each once")
    return names


def _catalog(texts: tuple[str, ...]) -> dict[str, str]:
    wrong = [text for text in texts if not text.partition("=")[0] or "=" not in text]
    if wrong:
        raise ConfigError(f"{wrong[0]!r} is no NAME=VALUE")
    properties = {name: value for name, _, value in (text.partition("=") for text in texts)}
    keep_secrets(properties)
    return properties


def _day(text: str) -> str:
    parse_day(text)
    return text


def _metrics(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > LARGEST_PORT or (colon and not host):
        raise ConfigError(f"{text!r} is no [HOST:]PORT")
    return host or "127.0.0.1", int(port)


def _columns(text: str) -> tuple[str, ...]:
    return check_names([piece for each in text.split(",") if (piece := each.strip())])


def _mask(fields: tuple[str, ...]) -> tuple[str, ...]:
    mask_of(fields)
    return fields


def _rules_of(files: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(rule for file in files for rule in rules_of_file(file))
    except ConfigError as error:
        raise click.BadParameter(str(error), param_hint="--mask-file") from error


def _tag(text: str) -> str:
    from storage.filter.tag import parse_tag_expression

    parse_tag_expression(text)
    return text


def _where(text: str) -> str:
    from storage.filter.sql92 import parse

    parse(text)
    return text


@click.command("export", cls=GroupedCommand)
@click.argument("store", type=click.Path(readable=False))
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Messages of this topic; repeatable. "
              "[default: all topics]")  # fmt: skip
@stored_options(("--from", ""), is_optional=True)
@click.option(
    "--to", "to", multiple=True, callback=checked(_to), metavar="DIR|URL",
    help="The table to append to, a directory or a URL, instead of --out.",
)  # fmt: skip
@timezone_option
@click.option("--tag", callback=checked(_tag), metavar="EXPRESSION", help="A tag subscription: 'TagA || TagB'.")
@click.option(
    "--where",
    callback=checked(_where),
    metavar="EXPRESSION",
    help="A SQL92 expression over properties: \"a > 5 AND b = 'x'\".",
)
@click.option("--format", "format", type=click.Choice((*FORMAT_NAMES, ICEBERG, DELTA)), required=True,
              help="Format of the files; iceberg and delta are for --to.")  # fmt: skip
@click.option("--compression", type=click.Choice(COMPRESSIONS), default=COMPRESSIONS[0], show_default=True,
              help="The codec of Parquet files.")  # fmt: skip
@click.option(
    "--out", metavar="DIR",
    help=("An empty directory, or that of an export that was stopped; on a cluster all machines must see it "
         "under this path. Or a URL (s3://, gs://, hdfs://, file://), for which no disk is shared."),
)  # fmt: skip
@click.option(
    "--columns",
    default="",
    callback=checked(_columns),
    metavar="NAME,...",
    help="Write only these columns, in this order.",
)
@click.option("--mask", "masked", multiple=True, callback=checked(_mask), metavar="RULE",
              help="Replace by asterisks: body, keys, tags, unique_key, hosts, born_host, store_host, properties, "
                   "properties.NAME, a JSONPath ($.a.b) or what /REGEX/ matches; repeatable.")  # fmt: skip
@click.option("--mask-file", "mask_files", multiple=True, metavar="FILE",
              help="The same, a rule on each line of a file.")  # fmt: skip
@click.option("--since-last", is_flag=True, help="Append to the table what came since the last run.")
@click.option("--partition-by", default="", callback=checked(_partition_by), metavar="topic,date",
              help="A directory of the table for each topic, each day (UTC) of the store time, or both.")  # fmt: skip
@click.option("--drop-before", default=None, callback=checked(_day), metavar="DAY|Nd",
              help="Then drop from the table what was stored before a day, or so many days ago: 7d.")  # fmt: skip
@click.option("--compact-files", "compact_bytes", type=click.IntRange(1), is_flag=False, flag_value=COMPACTED_BYTES,
              metavar="[BYTES]", help="Then put the table's small files together, to files of at most this. "
              f"[without BYTES: {COMPACTED_BYTES}]")  # fmt: skip
@click.option("--every", callback=checked(parse_pause), metavar="30s|5m|1h",
              help="Append again and again, beside a live store, until the command is stopped.")  # fmt: skip
@click.option("--metrics", callback=checked(_metrics), metavar="[HOST:]PORT",
              help="With --every: answer /metrics (Prometheus) there, by default on 127.0.0.1.")  # fmt: skip
@click.option("--catalog", multiple=True, callback=checked(_catalog), metavar="NAME=VALUE",
              help="A property of the catalog of an Iceberg table, as pyiceberg names them: uri=https://... for REST, "
                   "uri=sqlite:///FILE, token=..., catalog=NAME; repeatable. [default: DIR/catalog.db]")  # fmt: skip
@click.option("--table", "name", default="", metavar="NAMESPACE.NAME",
              help="What the catalog calls an Iceberg table. [default: rocketmq.messages]")  # fmt: skip
@click.option("--excel", is_flag=True, help="Write CSV for a spreadsheet: with a byte-order mark, and times as ISO "
              "8601 in UTC.")  # fmt: skip
@click.option("--keep-formulas", is_flag=True, help="Write CSV for programs: without the apostrophe before texts that "
              "a spreadsheet would take for formulas.")  # fmt: skip
@click.option("--unpack/--no-unpack", default=None, help="Whether bodies that are packed, as with gzip, are unpacked. "
              "[default: they are]")  # fmt: skip
@click.option(
    "--charset",
    callback=checked(charset_of),
    metavar="NAME",
    help="Write bodies that are text of this charset, such as gbk, as UTF-8.",
)
@storage_option_where("STORE or --out is a URL")
@storage_option_where("--out or --to is a URL that needs others", "--out-storage-options", "out_storage")
@fresh_option
@job_options
def export_store(**options: Any) -> None:
    """Write the messages of the store in STORE, a directory or a URL such as s3://bucket/store, into files.

    With --out that is done once, into an empty place. With --to a table grows: each run with --since-last appends what
    came since the last one, also where that was killed (docs/tables.md). The rest of this text is about --out.

    There is one file for each segment of the log with selected messages, and _manifest.json, written last, with
    counts and checksums. The same command goes on with a run that was stopped. Bodies are decompressed and unpacked;
    nothing damaged is written. Behind a URL the manifest names the files that count, and nothing else does. STORE may
    be a directory of tiered files: there is one file for each segment of each queue's log.

    Exit code 1: done, but no message matches; 0 of a table. 4: done, but the log is damaged, or a part of it had
    expired before a run came to it; the report names the places.
    """
    earlier_end, table = options.pop("to")
    if earlier_end is not None:
        if options["end"] is not None:
            raise click.UsageError("--to with a time is --until now: give one of them")
        options["end"] = earlier_end
    options["masked"] += _rules_of(options.pop("mask_files"))
    if table is not None and options["out"] is not None:
        raise click.UsageError(f"--out and --to {table} cannot be combined: a directory once, or a table that grows")
    if table is None and options["out"] is None:
        raise click.UsageError(
            "either --out DIR, or --to with the DIR or URL of a table, is needed (a DIR that begins with a digit "
            "needs a slash: ./2026)"
        )
    given = {name: options.pop(name) for name in TABLE_OPTIONS}
    if table is None:
        for name, value in given.items():
            if value:
                flag = TABLE_OPTIONS[name]
                raise click.UsageError(f"{flag} is for a table, which --to names")
        run_command(export, reads_tier=True, tasks=EXPORT_TASKS, check=check, **options)
    every, metrics = given.pop("every"), given.pop("metrics")
    if metrics is not None and every is None:
        raise click.UsageError("--metrics is for --every")
    if every is not None and not given["since_last"]:
        raise click.UsageError("--every needs --since-last: each run but the first finds a table that is there")
    for name, flag in CSV_OPTIONS.items():
        if options.pop(name):
            raise click.UsageError(f"{flag} is for --out")
    since, until = options["begin"], options["end"]
    if until is not None and is_relative(typed_time("end", until)):
        raise click.UsageError(
            f"--until {typed_time('end', until)} is another time in each run, and a table's rows have one bound: "
            "leave it out, or give a fixed time"
        )
    options["begin_moves"] = since is not None and is_relative(typed_time("begin", since))
    options |= {"out": table} | {name: value for name, value in given.items() if value is not None}
    if every is not None:
        run_command_every(append, every, metrics, tasks=APPEND_TASKS, check=check_append, **options)
    run_command(append, reads_tier=True, tasks=APPEND_TASKS, check=check_append, **options)
