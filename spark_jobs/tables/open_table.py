"""The table of a request, by its format."""

from pathlib import Path

from protocol.errors import ConfigError
from spark_jobs.places.file_systems import has_scheme
from spark_jobs.tables.files_table import FilesTable, RunAll
from spark_jobs.tables.table import Table
from spark_jobs.tables.table_names import FILE_FORMATS
from spark_jobs.tables.table_request import TableRequest


def open_table(request: TableRequest, run_all: RunAll) -> Table:
    """The table; nothing is read or made. `run_all` runs tasks that put files together.

    Raises ConfigError where there can be none.
    """
    url = request.table if has_scheme(request.table) else f"file://{Path(request.table).absolute()}"
    storage = request.out_storage or (request.storage if has_scheme(request.table) else "")
    if request.format in FILE_FORMATS:
        columns = [name for name in request.shape.columns if name not in request.partition_by]
        return FilesTable(url, storage, run_all, columns, request.compression)
    raise ConfigError(f"--format {request.format}: no table of this format can be made here")
