"""What is wrong with a store, found within seconds: one module a kind of check, each finding with its place.

The examination reads what recovery and look-ups depend on, and samples the rest; `spark_jobs.verify.verify` reads
everything.
"""

from typing import Final

DOOR: Final = ("coverage", "examine", "finding", "words")
