"""Kernels on memory: scan a segment, hash keys, walk a chain, build slots; compiled when RocketLens is built.

They know few objects, so that the server and the Spark jobs share them; each has a plain-Python oracle in
`tests/support/oracles.py`.
"""

from typing import Final

DOOR: Final = (
    "dispatching",
    "file_map",
    "index_entries",
    "indexes",
    "lookups",
    "message_rows",
    "messages",
    "moving",
    "plain_units",
    "pulls",
    "records",
    "region",
    "select_records",
    "sql92",
    "store_view",
    "texts",
)
