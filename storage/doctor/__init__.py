"""Find what is wrong with a store within seconds; each finding names its place.

The examination reads what recovery and look-ups depend on, and samples the rest; `spark_jobs.verify.verify` reads
everything. Each kind of check is a module of its own, however short.
"""

from typing import Final

DOOR: Final = ("coverage", "examine", "finding", "words")
