"""The table of a request, by its format."""

from pathlib import Path
from typing import Final

from protocol.errors import ConfigError
from spark_jobs.places.file_systems import has_scheme
from spark_jobs.tables._compact_files import RunAll
from spark_jobs.tables._files_table import FilesTable
from spark_jobs.tables._iceberg_state import GlancedTable, catalog_file
from spark_jobs.tables._table import Table
from spark_jobs.tables.table_names import FILE_FORMATS, ICEBERG
from spark_jobs.tables.table_request import TableRequest

_NOT_IN_URLS: Final = "%#?"
"""What one library takes as it is written, and another one does not, so that a table would lie at two places."""


def open_table(request: TableRequest, run_all: RunAll) -> Table:
    """The table; nothing is read or made. `run_all` runs tasks that put files together.

    Raises ConfigError where there can be none.
    """
    url = request.table if has_scheme(request.table) else f"file://{Path(request.table).absolute()}"
    storage = request.out_storage or (request.storage if has_scheme(request.table) else "")
    if request.format in FILE_FORMATS:
        columns = [name for name in request.shape.columns if name not in request.partition_by]
        return FilesTable(url, storage, run_all, columns, request.compression)
    if wrong := next((each for each in _NOT_IN_URLS if each in url), None):
        raise ConfigError(
            f"--to {request.table}: {wrong} has a meaning of its own in URLs, by which Iceberg and Delta name their "
            "files: choose a place without it"
        )
    if request.format == ICEBERG:

        def open_iceberg() -> Table:
            from spark_jobs.tables._iceberg_table import IcebergTable  # pyiceberg takes most of a second to load

            return IcebergTable(url, storage, run_all, request.compression, request.catalog, request.name)

        file = catalog_file(url, request.catalog)
        if file is None:
            return open_iceberg()
        return GlancedTable(url, file, request.catalog.get("catalog", ""), request.name, open_iceberg)
    from spark_jobs.tables._delta_table import DeltaTable  # as above

    return DeltaTable(url, storage, run_all, request.compression)
