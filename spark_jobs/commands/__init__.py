"""The command line of the bulk jobs: options, progress, report.

Late imports: what runs a job, and with it pyspark, is imported when the job starts; a usage error does not wait for it.
"""

from typing import Final

DOOR: Final = (
    "command_options",
    "command_run",
    "show_diagnosis",
    "show_report",
    "time_options",
)
