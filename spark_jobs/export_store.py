"""`rocketlens export`, and the same for spark-submit: `spark-submit spark_jobs/export_store.py STORE …`.

Late imports: pyspark, NumPy and the kernels come along with them, and help and most usage errors do without.
"""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from protocol.errors import ConfigError
from spark_jobs.commands.command_options import (
    checked,
    fresh_option,
    job_options,
    storage_option_where,
)
from spark_jobs.commands.command_run import EXTRA, JobOptions, run_command
from spark_jobs.export.export_place import COMPRESSIONS, check_place
from spark_jobs.places.file_systems import has_scheme
from spark_jobs.places.place_names import FORMAT_NAMES
from storage.columns.names import check_names, masked_names
from storage.times import parse_time

if TYPE_CHECKING:
    from spark_jobs.run.launch import Launch
    from spark_jobs.run.progress import JobProgress
    from spark_jobs.run.report import AnyReport


def export(options: JobOptions, progress: "JobProgress", launch: "Launch | None") -> "AnyReport":
    """Export what the options ask for."""
    from spark_jobs.export.export import run_export
    from spark_jobs.export.export_request import ExportRequest

    return run_export(ExportRequest(**options), progress, launch)


def check(options: JobOptions) -> None:
    """Raise ConfigError for errors that can be found before Spark is started."""
    begin, end = options["begin"], options["end"]
    if begin is not None and end is not None and begin > end:
        raise ConfigError(f"--from {begin} is after --to {end}")
    if options["format"] == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(f"--format parquet needs pyarrow: pip install '{EXTRA}'")
    if options["format"] != "parquet" and options["compression"] != COMPRESSIONS[0]:
        raise ConfigError(f"--compression {options['compression']} is for --format parquet")
    if has_scheme(options["out"]):
        from spark_jobs.places.placed_run import check_url

        check_url(options["out"], options["out_storage"] or options["storage"], fresh=options["fresh"])
    else:
        check_place(Path(options["out"]), fresh=options["fresh"])


def _columns(text: str) -> tuple[str, ...]:
    return check_names([piece for each in text.split(",") if (piece := each.strip())])


def _mask(fields: tuple[str, ...]) -> tuple[str, ...]:
    masked_names(fields)
    return fields


def _tag(text: str) -> str:
    from storage.filter.tag import parse_tag_expression

    parse_tag_expression(text)
    return text


def _where(text: str) -> str:
    from storage.filter.sql92 import parse

    parse(text)
    return text


@click.command("export")
@click.argument("store", type=click.Path(readable=False))
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Messages of this topic; repeatable. "
              "[default: all topics]")  # fmt: skip
@click.option(
    "--from", "begin", callback=checked(parse_time), metavar="TIME", help="Stored at or after this: ms or ISO 8601."
)
@click.option("--to", "end", callback=checked(parse_time), metavar="TIME", help="Stored at or before this.")
@click.option("--tag", callback=checked(_tag), metavar="EXPRESSION", help="A tag subscription: 'TagA || TagB'.")
@click.option(
    "--where",
    callback=checked(_where),
    metavar="EXPRESSION",
    help="A SQL92 expression over properties: \"a > 5 AND b = 'x'\".",
)
@click.option("--format", "format", type=click.Choice(FORMAT_NAMES), required=True, help="Format of the files.")
@click.option("--compression", type=click.Choice(COMPRESSIONS), default=COMPRESSIONS[0], show_default=True,
              help="The codec of Parquet files.")  # fmt: skip
@click.option(
    "--out", required=True, metavar="DIR",
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
@click.option("--mask", "masked", multiple=True, callback=checked(_mask), metavar="FIELD",
              help="Replace by asterisks: body, keys, tags, unique_key, hosts, born_host, store_host, "
                   "properties or properties.NAME; repeatable.")  # fmt: skip
@storage_option_where("STORE or --out is a URL")
@storage_option_where("--out is a URL that needs others", "--out-storage-options", "out_storage")
@fresh_option
@job_options
def export_store(**options: Any) -> None:
    """Write the messages of the store in STORE, a directory or a URL such as s3://bucket/store, into files.

    There is one file for each segment of the log with selected messages, and _manifest.json, written last, with
    counts and checksums. Run the same command again to continue a run that was stopped. Bodies are decompressed;
    nothing damaged is written. Behind a URL the manifest names the files that count, and nothing else does. STORE may
    be a directory of tiered files: there is one file for each segment of each queue's log.

    Exit code 1: done, but no message matches. 4: done, but the log is damaged; report and manifest name the places.
    """
    run_command(export, reads_tier=True, check=check, **options)


if __name__ == "__main__":
    export_store()
