"""Very many texts of a file at once, into lines or a Parquet file: what `find -f` does."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn, Protocol

import click
import msgspec

from protocol.errors import ConfigError
from rocketlens.cli.errors import FOUND, NOT_FOUND, STOPPED, say
from rocketlens.cli.opening import SourceArguments, absence_of
from rocketlens.cli.output import json_fields, message_fields
from rocketlens.cli.search import stopping
from rocketlens.cli.search_progress import SearchProgress
from spark_jobs.run.engine import EngineOptions
from storage.extras import install_line
from storage.files.attempt_names import attempt_name
from storage.files.own_directories import HeldDirectory, new_file
from storage.files.write_guard import check_outside

if TYPE_CHECKING:
    from rocketlens.looking_up import LookUp
    from storage.search.lookup import Match

MOST_NAMED = 5
"""Texts that are named of those that name nothing."""


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


class ManyArguments(msgspec.Struct, frozen=True):
    """What the options say of the texts, and of where the rows go: from and into which file, in which form."""

    file: str
    out: Path | None
    replace: bool
    output_format: str
    charset: str | None

    def check(self, source: SourceArguments) -> None:
        """Raise a usage error, or ConfigError, for options that contradict each other, or where nothing is written."""
        if self.output_format == "parquet" and self.out is None:
            raise click.UsageError("--format parquet needs --out")
        check_outside(
            (*source.directories, *(source.store_arguments.commit_log_directories or ())), {"--out": self.out}
        )
        if self.out is not None and self.out.is_dir():
            raise ConfigError(f"--out: {self.out} is a directory, name a file")
        if self.out is not None and os.path.lexists(self.out) and not self.replace:
            raise ConfigError(f"--out: {self.out} exists already: choose another name, or --replace")

    def row(self, match: "Match") -> dict[str, Any]:
        """Make the row that is written of a message."""
        is_json = self.output_format == "json"
        fields = json_fields(match.message, self.charset) if is_json else message_fields(match.message)
        store = {"store": match.store} if match.store else {}
        return {**store, "query": match.text, "found": True, "foundBy": match.kind, **fields}

    @contextlib.contextmanager
    def written(self) -> Iterator[Rows]:
        """Where the rows go: a new file has its name once it is complete. Raises ConfigError where it cannot be."""
        if self.out is None:
            rows = self._rows(None)
            yield rows
            rows.close()
            return
        try:
            held = HeldDirectory.open(self.out.parent)  # so that nobody leads us elsewhere
        except OSError as error:
            raise ConfigError(f"--out: {self.out} cannot be written: {error.strerror or error}") from error
        part = held.path / attempt_name(self.out.name)
        rows = self._rows(part)
        try:
            yield rows
            rows.close()
            os.replace(part, held.path / self.out.name)
        except OSError as error:
            error.filename = error.filename or self.out
            raise
        finally:
            rows.drop()
            part.unlink(missing_ok=True)

    def _rows(self, path: Path | None) -> Rows:
        try:
            if self.output_format == "parquet":
                from spark_jobs.search.lookup_parquet import ParquetRows

                assert path is not None
                return ParquetRows(path)
            stream = sys.stdout.buffer if path is None else new_file(path)
            return PlainRows(stream, _encoder(self.output_format), closes=path is not None)
        except ImportError as error:
            raise ConfigError(f"--format parquet needs pyarrow: {install_line('parquet')}") from error
        except OSError as error:
            if path is not None:
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)
            raise ConfigError(f"--out: {path} cannot be written: {error.strerror or error}") from error


def lines_of(file: str) -> list[str]:
    """The lines of a file that are not empty, without blanks around; raises ConfigError for what is no UTF-8 text."""
    try:
        with click.open_file(file, "rb") as stream:
            lines = stream.read().decode("utf-8-sig").split("\n")
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8 text: {error}") from error
    wanted = [line for each in lines if (line := each.strip())]
    if not wanted:
        raise ConfigError(f"{file} holds no line to look up")
    return wanted


def find_many(
    source: SourceArguments, many: ManyArguments, engine: EngineOptions, topic: str | None, kind: str | None
) -> NoReturn:
    """Write a row for each text and message, in the order of the log, then one for each text that names none; end."""
    texts = lines_of(many.file)
    many.check(source)
    with many.written() as rows:
        with stopping() as should_stop, source.open(engine) as opened, SearchProgress() as progress:
            found = opened.look_up(texts, topic=topic, kind=kind, should_stop=should_stop)
            for piece in found.pieces():
                rows.write(map(many.row, piece))
                progress.show(found.progress)
            absence = "" if len(found.missing) < len(set(texts)) else absence_of(opened, topic)
        if should_stop():
            say("stopped")
            sys.exit(STOPPED)
        rows.write({"query": text, "found": False} for text in found.missing)
    if absence:
        say(absence)
    _report(len(set(texts)), found)
    sys.exit(NOT_FOUND if found.missing else FOUND)


class PlainRows:
    """JSON objects, one a line, or maps of msgpack one after the other."""

    def __init__(self, stream: IO[bytes], encode: Callable[[Mapping[str, Any]], bytes], *, closes: bool) -> None:
        """``closes``: the stream is a file of ours."""
        self._stream, self._encode = stream, encode
        self._closes = closes

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows."""
        self._stream.writelines(map(self._encode, rows))

    def close(self) -> None:
        """Flush, and close a file of ours."""
        self._stream.flush()
        if self._closes:
            self._stream.close()

    def drop(self) -> None:
        """Close a stream that is not complete."""
        with contextlib.suppress(OSError):
            self._stream.close()


def _encoder(output_format: str) -> Callable[[Mapping[str, Any]], bytes]:
    if output_format == "json":
        return lambda row: msgspec.json.encode(row) + b"\n"
    import msgpack

    pack: Callable[[Mapping[str, Any]], bytes] = msgpack.packb
    return pack


def _report(count: int, found: "LookUp") -> None:
    for note in found.notes:
        say(note)
    missing = found.missing
    summary = f"{count - len(missing):,} of {count:,} found"
    if missing:
        more = f" and {len(missing) - MOST_NAMED:,} more" if len(missing) > MOST_NAMED else ""
        summary += f"; missing: {', '.join(missing[:MOST_NAMED])}{more}"
    say(summary)
