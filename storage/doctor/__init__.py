"""What is wrong with a store, found within seconds, each finding with its place.

Each kind of check is a module of its own, however short.

The examination reads what recovery and look-ups depend on, and samples the rest; `spark_jobs.verify.verify` reads
everything.
"""

from typing import Final

DOOR: Final = ("coverage", "examine", "finding", "words")
