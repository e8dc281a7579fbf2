"""`rocketlens export`, and the same for spark-submit: `spark-submit spark_jobs/export_store.py STORE …`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spark_jobs.commands.command_options import fresh_option, job_options
from spark_jobs.commands.command_run import run_command

if TYPE_CHECKING:
    from spark_jobs.commands.request import Report
    from spark_jobs.engine.launch import Launch
    from spark_jobs.engine.progress import Progress

FORMATS = ("parquet", "ndjson", "csv", "msgpack")
KERNELS = ("spark_jobs.exporting.export",)


def export(options: dict[str, Any], progress: "Progress", launch: "Launch | None") -> "Report":
    """Export what the options ask for."""
    from spark_jobs.exporting.export import ExportRequest, run_export

    return run_export(ExportRequest(**options), progress, launch)


def _time(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    """Milliseconds since 1970, or an ISO 8601 time."""
    if text is None:
        return None
    from protocol.errors import ConfigError
    from storage.times import parse_time

    try:
        return parse_time(text)
    except ConfigError as error:
        raise click.BadParameter(str(error)) from error


def _columns(_context: click.Context, _parameter: click.Parameter, text: str | None) -> tuple[str, ...]:
    return tuple(piece for each in (text or "").split(",") if (piece := each.strip()))


@click.command("export")
@click.argument("store", type=click.Path(readable=False))
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Messages of this topic; repeatable. "
              "[default: all topics]")  # fmt: skip
@click.option("--from", "begin", callback=_time, metavar="TIME", help="Stored at or after this: ms or ISO 8601.")
@click.option("--to", "end", callback=_time, metavar="TIME", help="Stored at or before this.")
@click.option("--tag", metavar="EXPRESSION", help="A tag subscription: 'TagA || TagB'.")
@click.option("--where", metavar="EXPRESSION", help="A SQL92 expression over properties: \"a > 5 AND b = 'x'\".")
@click.option("--format", "format", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option(
    "--out", required=True, type=click.Path(path_type=Path), metavar="DIR",
    help="A directory, empty or of an export that was stopped; on a cluster all machines must see it there.",
)  # fmt: skip
@click.option("--columns", callback=_columns, metavar="NAME,...", help="These columns alone, in this order.")
@click.option("--mask", "masked", multiple=True, metavar="FIELD", help="Asterisks for body, keys, tags, unique_key, "
              "hosts, born_host, store_host, properties or properties.NAME; repeatable.")  # fmt: skip
@click.option("--storage-options", "storage", default="", metavar="JSON", help="Options of the file system where STORE "
              "is a URL, such as {\"anon\": true}.")  # fmt: skip
@fresh_option
@job_options
def export_store(out: Path, **options: Any) -> None:
    """Write the messages of the store in STORE, a directory or a URL such as s3://bucket/store, into files.

    There is a file for each segment of the log that holds some, and manifest.json, written last, with counts and
    checksums. A run that was stopped goes on where it was. Bodies are decompressed; nothing damaged is written.

    Exit code 4: done, with damage, which report and manifest name.
    """
    run_command(export, kernels=KERNELS, out=str(out), **options)


if __name__ == "__main__":
    export_store()
