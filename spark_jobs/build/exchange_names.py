"""How blocks come from the tasks that scan to those that build, by the names that `--exchange` takes.

Apart, since options and requests name them: neither needs what they stand for.
"""

from typing import Final

FILES: Final = "files"
"""By files in the work directory, which all machines see."""

SHUFFLE: Final = "shuffle"
"""By Spark's own shuffle."""

EXCHANGES: Final = (FILES, SHUFFLE)
