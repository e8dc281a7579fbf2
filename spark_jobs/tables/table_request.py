"""The options of a run that appends to a table, and the details of its report."""

from protocol.errors import ConfigError
from spark_jobs.export.export_request import MessageRequest
from spark_jobs.run.engine_names import ENGINES
from spark_jobs.run.report import Damage, Details
from spark_jobs.tables._table import TableShape
from spark_jobs.tables.table_names import PARTITIONS, TABLE_FORMATS
from storage.columns.names import KINDS, check_names


class TableRequest(MessageRequest, frozen=True, kw_only=True):
    """Options of a run; `table` is a directory or a URL.

    `catalog` are the properties of an Iceberg catalog, `name` is the table's in it. `compact_bytes` are the bytes of a
    file that small ones are put together to, 0 where they stay; `drop_before` is a day or `7d`, as
    :func:`spark_jobs.tables.days.parse_day` reads it. `begin_moves` says that `begin` was given as a time that is
    another one in each run (`-1h`): that of the first run counts.
    """

    table: str
    partition_by: tuple[str, ...] = ()
    since_last: bool = False
    catalog: dict[str, str] = {}  # noqa: RUF012 - a msgspec struct
    name: str = ""
    compact_bytes: int = 0
    drop_before: str = ""
    begin_moves: bool = False

    def __post_init__(self) -> None:
        """Raise ConfigError for an unknown column, format, partition or engine."""
        check_names(self.columns)
        unknown = [name for name in self.partition_by if name not in PARTITIONS]
        if unknown or len(set(self.partition_by)) != len(self.partition_by):
            raise ConfigError(
                f"partition_by {','.join(self.partition_by)}: expected {', '.join(PARTITIONS)}, each once"
            )
        for name, value, known in (("format", self.format, TABLE_FORMATS), ("engine", self.engine, ENGINES)):
            if value not in known:
                raise ConfigError(f"{name} {value}: expected one of {', '.join(known)}")

    @property
    def shape(self) -> TableShape:
        """What the rows are that a run of these options writes."""
        given = {name: getattr(self, name) for name in TableShape.__struct_fields__}
        more = {"columns": self.columns or tuple(KINDS), "unpack": self.unpack is not False}
        return TableShape(**given | more)


class TableDetails(Details, kw_only=True):
    """What a run says of the table: the bytes [start, stop) of the log that it read, by physical offset.

    `gap` are those that had expired before; `files` and `file_bytes` what was appended, `engine` by what. `is_empty`:
    nothing was new, and nothing was committed. `removed_files` are those that were dropped or put together. `behind`
    is what is damaged behind `stop`: no part of what was read, but the log may not end there.
    """

    format: str
    start: int
    stop: int
    files: int
    file_bytes: int
    engine: str
    is_empty: bool
    gap: tuple[int, int] | None = None
    removed_files: int = 0
    behind: tuple[Damage, ...] = ()

    @property
    def exit_code(self) -> int:
        """4 where the log ends in damage."""
        return 4 if self.behind else 0
