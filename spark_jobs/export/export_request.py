"""The options of an export and of what else writes messages as rows, and the details of its report."""

import msgspec

from protocol.errors import ConfigError
from spark_jobs.export.export_formats import EXACT, EXCEL
from spark_jobs.export.export_place import COMPRESSIONS
from spark_jobs.run.engine import EngineOptions
from spark_jobs.run.report import Details
from spark_jobs.run.work_directory import JobIdentity
from storage.columns.body_content import BodyContent
from storage.columns.wanted import Wanted
from storage.filter.sql92 import parse


class MessageRequest(EngineOptions, frozen=True, kw_only=True):
    """Options of a job that writes messages as rows. `begin` and `end` bound store times in ms, both included.

    `store` is a directory or a URL, `storage` and `out_storage` are the options of the file systems of the store and
    of what is written as JSON; without the latter they are the same. `compression` is Parquet's codec. Without
    `columns` all are written, those of `masked` with a mask. Bodies are written as
    :class:`storage.columns.body_content.BodyContent` makes them, unless `unpack` is False and there is no `charset`:
    then as consumers get them. None for `unpack` is what is usual: True, or what a table has.
    """

    store: str
    format: str
    compression: str = COMPRESSIONS[0]
    topics: tuple[str, ...] = ()
    begin: int | None = None
    end: int | None = None
    tag: str | None = None
    where: str | None = None
    columns: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    unpack: bool | None = None
    charset: str | None = None
    commit_log_directories: tuple[str, ...] = ()
    storage: str = ""
    out_storage: str = ""


class ExportRequest(MessageRequest, frozen=True, kw_only=True):
    """Options of an export; `out` is a directory or a URL.

    CSV is written for a spreadsheet with `excel`, and its texts as they are with `keep_formulas`.
    """

    out: str
    fresh: bool = False
    excel: bool = False
    keep_formulas: bool = False

    @property
    def style(self) -> str:
        """How the format's files are written: Parquet's codec, or the style of CSV."""
        styles = {EXCEL: self.excel, EXACT: self.keep_formulas}
        return next((style for style, is_wanted in styles.items() if is_wanted), self.compression)

    @property
    def wanted(self) -> Wanted:
        """The messages; raises FilterSyntaxError, and ConfigError for times that no message can have."""
        if self.begin is not None and self.end is not None and self.begin > self.end:
            raise ConfigError(f"--since {self.begin} is after --until {self.end}")
        if self.where is not None:
            parse(self.where)
        return Wanted.asked(self.topics, self.begin, self.end, self.tag, self.where)

    @property
    def content(self) -> BodyContent | None:
        """What becomes of bodies; raises ConfigError for an unknown charset."""
        return BodyContent.asked(self.charset, unpack=self.unpack is not False)

    def identity(self) -> JobIdentity:
        """The options that the output depends on."""
        fields: JobIdentity = msgspec.to_builtins(self)
        for name in ("out", "fresh", "engine", "master", "settings", "storage", "out_storage"):
            del fields[name]
        return fields | {"unpack": self.unpack is not False}


class ExportDetails(Details, kw_only=True):
    """What an export says of its files: how many `parts` of a format, their bytes, the time of all tasks together.

    `found`: whether there was any message to export.
    """

    format: str
    parts: int
    part_bytes: int
    part_seconds: float
    found: bool

    @property
    def exit_code(self) -> int:
        """1 if no message matched."""
        return 0 if self.found else 1
