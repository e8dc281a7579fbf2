"""Read a table of Iceberg or Delta by DuckDB and its extensions, as a program of its own.

`python tests/support/duckdb_lakes.py QUERY OUT EXTENSION…` writes what the query finds to a file of Arrow. EXTENSION is
a file, loaded in this order. PYTHONPATH says which DuckDB that is: the newest whose extensions are packages. It must
load nothing from anywhere else, and an extension that DuckDB's makers have not signed is refused.
"""

import sys

import duckdb
import pyarrow as pa


def main(query: str, out: str, *extensions: str) -> None:
    config = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    with duckdb.connect(config=config) as connection:
        for each in extensions:
            connection.load_extension(each)
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.sql(query).to_arrow_table()
    with pa.OSFile(out, "wb") as sink, pa.ipc.new_file(sink, found.schema) as writer:
        writer.write_table(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
