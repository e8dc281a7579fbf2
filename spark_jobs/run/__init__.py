"""How tasks are run: Spark's session, JVM and workers, and the directory where tasks leave what they made."""

from typing import Final

DOOR: Final = (
    "arrival",
    "attempt",
    "blocks",
    "class_archive",
    "kept_rows",
    "launch",
    "local_work",
    "progress",
    "report",
    "session",
    "spark_calls",
    "work_directory",
)
