"""`rocketlens lookup`: very many keys and ids at once."""

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import click
import msgspec

from protocol.errors import ConfigError
from protocol.mask import Mask
from protocol.question import OFFSET_ID, PHYSICAL_OFFSET, KeyKind, parts_of
from rocketlens.cli.command_options import optional_engine_options, storage_option, store_argument
from rocketlens.cli.errors import FOUND, NOT_FOUND, STOPPED, plain_errors, say
from rocketlens.cli.grouped_command import GroupedCommand
from rocketlens.cli.opening import open_store
from rocketlens.cli.options import charset_option, gathered, store_options
from rocketlens.cli.output import json_fields, message_fields
from rocketlens.cli.search import stopping
from rocketlens.cli.search_progress import SearchProgress
from rocketlens.cli.searched_place import StorePlace, searched_store
from rocketlens.opening import StoreArguments
from storage.extras import install_line
from storage.files.attempt_names import attempt_name
from storage.files.own_directories import HeldDirectory, new_file
from storage.files.write_guard import check_outside
from storage.patterns.mask import mask_of

if TYPE_CHECKING:
    from storage.search.lookup import LookupSource, Match

FORMATS = ("ndjson", "parquet")
KINDS = {
    "auto": None,
    "key": KeyKind.ANY.words,
    "offset-id": OFFSET_ID,
    "physical-offset": PHYSICAL_OFFSET,
}
MOST_NAMED = 5


class Rows(Protocol):
    """The interface of outputs that rows are written to."""

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows."""
        ...

    def close(self) -> None:
        """Complete the output."""
        ...

    def drop(self) -> None:
        """Close an output that is not complete."""
        ...


class OutputArguments(msgspec.Struct, frozen=True):
    """What the options say of where the rows go: in which form, into which file, and whether one may be there."""

    output_format: str
    out: Path | None
    replace: bool
    charset: str | None


@click.command(cls=GroupedCommand)
@store_argument
@click.argument("queries", type=click.Path(allow_dash=True), metavar="FILE")
@click.option("--topic", help="Topic of the messages; without it every topic of the store is searched.")
@click.option(
    "--as",
    "kind",
    type=click.Choice(list(KINDS)),
    default="auto",
    show_default=True,
    help="What the lines are: business keys or unique keys (key), offset message ids, or physical offsets. "
    "auto: lines that are offset message ids of the store count as such, and others as keys.",
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(FORMATS),
    default="ndjson",
    show_default=True,
    help="JSON objects, one on each line, or a Parquet file.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="Write to this new file, which appears when it is complete. [default: stdout, for ndjson]",
)
@click.option("--replace", is_flag=True, help="Replace an existing file at --out.")
@charset_option
@storage_option
@optional_engine_options
@store_options
@gathered(output=OutputArguments, place=StorePlace)
@plain_errors
def lookup(
    place: StorePlace,
    queries: str,
    topic: str | None,
    kind: str,
    output: OutputArguments,
    store_arguments: StoreArguments,
) -> None:
    """Look up the keys and ids in FILE, one on each line, in the store in STORE; - is stdin.

    STORE is a directory, or a URL such as s3://bucket/store, where the tasks of an engine look them up.

    FILE may have a million lines and more. The index is read once, or the log if there is no index. The output has
    one row for each line and message, in the order of the log, with the line as `query`; at the end is one row with
    `found` false for each line that found nothing.

    Exit code 0 if every line found a message, 1 if not. The number is printed on stderr.
    """
    wanted = _lines(queries)
    out, output_format = output.out, output.output_format
    if output_format == "parquet" and out is None:
        raise click.UsageError("--format parquet needs --out")
    if not place.is_remote:
        check_outside((place.directory, *(store_arguments.commit_log_directories or ())), {"--out": out})
    if out is not None:
        _check_free(out, output.replace)
    from storage.search.lookup import look_up

    mask = mask_of(store_arguments.rules)
    if parts_of(KINDS[kind]):
        _refuse_hidden(mask, wanted)
    held = None if out is None else _held(out)
    part = None if held is None or out is None else held.path / attempt_name(out.name)
    rows = _rows(output_format, part)
    missing = dict.fromkeys(wanted)
    notes: tuple[str, ...] = ()
    try:
        with stopping() as should_stop, _source(place, store_arguments) as source:
            steps = look_up(source, wanted, topic=topic, kind=KINDS[kind], should_stop=should_stop)
            with SearchProgress() as progress:
                for step in steps:
                    rows.write(_row(match, mask, output_format, output.charset) for match in step.matches)
                    for match in step.matches:
                        missing.pop(match.text, None)
                    progress.show(step.progress)
                    notes = step.notes
            if should_stop():
                say("stopped")
                sys.exit(STOPPED)
        rows.write({"query": query, "found": False} for query in missing)
        rows.close()
        if part is not None and held is not None and out is not None:
            os.replace(part, held.path / out.name)
    except OSError as error:
        error.filename = error.filename or out
        raise
    finally:
        if part is not None:
            rows.drop()
            part.unlink(missing_ok=True)
    _report(len(set(wanted)), missing, notes)
    sys.exit(NOT_FOUND if missing else FOUND)


@contextlib.contextmanager
def _source(place: StorePlace, store_arguments: StoreArguments) -> Iterator["LookupSource"]:
    """The store, looked at by this process or by the tasks of an engine."""
    from storage.search.lookup import LookupHere

    if not place.needs_engine:
        from rocketlens.store import message_store_of

        yield LookupHere(message_store_of(open_store(place.directory, store_arguments), "lookup", masks=True))
        return
    with searched_store(place, store_arguments, None, with_keys=False) as searched:
        from spark_jobs.search.look_up import LookupByTasks
        from spark_jobs.search.search import engine_for

        with engine_for("lookup", place, say, LookupByTasks.__module__) as engine:
            yield LookupByTasks(engine, searched, store_arguments.index_slots or 0)


def _held(out: Path) -> HeldDirectory:
    """Hold the directory of --out, so that nobody leads us elsewhere; raises ConfigError where there is none."""
    try:
        return HeldDirectory.open(out.parent)
    except OSError as error:
        raise ConfigError(f"--out: {out} cannot be written: {error.strerror or error}") from error


def _check_free(out: Path, replace: bool) -> None:
    """Raise ConfigError if --out is a directory, or a file that may not be replaced."""
    if out.is_dir():
        raise ConfigError(f"--out: {out} is a directory, name a file")
    if os.path.lexists(out) and not replace:
        raise ConfigError(f"--out: {out} exists already: choose another name, or --replace")


def _lines(file: str) -> list[str]:
    """The lines that are not empty; raises ConfigError for a file that is no UTF-8 text."""
    try:
        with click.open_file(file, "rb") as stream:
            lines = stream.read().decode("utf-8-sig").split("\n")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: {error}") from error
    wanted = [line for each in lines if (line := each.rstrip("\r"))]
    if not wanted:
        raise ConfigError(f"{file} holds no line to look up")
    return wanted


def _refuse_hidden(mask: Mask, wanted: list[str]) -> None:
    """Raise ConfigError for keys by which nothing may be found."""
    for key in wanted if mask else ():
        for field in ("keys", "unique_key"):
            mask.refuse_value(field, key)


def _row(match: "Match", mask: Mask, output_format: str, charset: str | None) -> dict[str, Any]:
    message = mask.message(match.message)
    fields = json_fields(message, charset) if output_format == "ndjson" else message_fields(message)
    return {"query": match.text, "found": True, "foundBy": match.kind, **fields}


def _rows(output_format: str, path: Path | None) -> Rows:
    try:
        if output_format == "ndjson":
            return JsonRows(sys.stdout.buffer if path is None else new_file(path), closes=path is not None)
        assert path is not None
        from spark_jobs.search.lookup_parquet import ParquetRows

        return ParquetRows(path)
    except ImportError as error:
        raise ConfigError(f"--format parquet needs pyarrow: {install_line('parquet')}") from error
    except OSError as error:
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        raise ConfigError(f"--out: {path} cannot be written: {error.strerror or error}") from error


class JsonRows:
    """JSON objects, one a line."""

    def __init__(self, stream: IO[bytes], *, closes: bool) -> None:
        """``closes``: the stream is a file of ours."""
        self._stream = stream
        self._closes = closes

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows."""
        self._stream.writelines(msgspec.json.encode(row) + b"\n" for row in rows)

    def close(self) -> None:
        """Flush, and close a file of ours."""
        self._stream.flush()
        if self._closes:
            self._stream.close()

    def drop(self) -> None:
        """Close a stream that is not complete."""
        with contextlib.suppress(OSError):
            self._stream.close()


def _report(count: int, missing: Mapping[str, None], notes: Sequence[str]) -> None:
    for note in notes:
        say(note)
    summary = f"{count - len(missing):,} of {count:,} found"
    if missing:
        some = ", ".join(list(missing)[:MOST_NAMED])
        more = f" and {len(missing) - MOST_NAMED:,} more" if len(missing) > MOST_NAMED else ""
        summary += f"; missing: {some}{more}"
    say(summary)
