"""The names of what jobs leave where their output goes, and in their work directories.

They lie apart because commands need them before anything is started or loaded.
"""

import re
from typing import Final

MANIFEST: Final = "_manifest.json"
"""Spark and Arrow skip names that start with `_`: reading the directory reads the parts."""

ATTEMPTS: Final = "_attempts"
"""Behind a URL, what attempts of tasks have written."""

FORMAT_NAMES: Final = ("parquet", "ndjson", "jsonl", "csv", "msgpack")
PART: Final = re.compile(rf"part-[0-9]{{20}}(-[0-9a-f]{{16}})?\.({'|'.join(FORMAT_NAMES)})")
"""A part of an export into a directory; the 16 digits stand for the queue of a tier."""

WORK: Final = ".rocketlens-work"
"""The work directory of a job, where none is named."""

JOURNAL: Final = "journal.msgpack"
"""In a work directory: a publishing that is under way, beside the directory of its run."""

COPIES: Final = "rocketlens-copy-"
"""The names of directories with copies of what lies behind a URL begin so, in a work directory behind a dot."""

LOCK: Final = "lock"
"""In a work directory: the file that the driver which works there has locked."""
