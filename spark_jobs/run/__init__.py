"""How tasks are run: Spark's session, JVM and workers, and the directory where tasks leave what they made."""

from typing import Final

DOOR: Final = (
    "arrival",
    "attempt",
    "blocks",
    "engine",
    "engine_names",
    "kept_rows",
    "local_engine",
    "progress",
    "report",
    "session",
    "work_directory",
)
