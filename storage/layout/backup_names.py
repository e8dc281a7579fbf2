"""The names of backups that a rebuild, a compaction or a fetch leaves in a store beside what it made.

    NAME.bak-TIME   what was replaced
    NAME.new-TIME   what is on its way to its place, or was when a publishing was killed

NAME is a directory or file of a store, TIME a moment as yyyyMMddHHmmss in UTC, the same for all that was published
together.
"""

import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

BACKUP: Final = "bak"
INCOMING: Final = "new"
TIME: Final = re.compile("[0-9]{14}")
KEPT: Final = re.compile(rf"([a-z_]+)\.({BACKUP}|{INCOMING})-({TIME.pattern})")


def replaced_at(root: Path, name: str) -> datetime | None:
    """Read off the newest backup when a directory or file of a store was last replaced; None: never, or unknown.

    The backup lies beside what it is of, which a link may have elsewhere, and by another name.
    """
    place = (root / name).resolve()
    try:
        names = os.listdir(place.parent)
    except OSError:  # reported where the directory is needed
        return None
    before = f"{place.name}.{BACKUP}-"
    times = [each[len(before) :] for each in names if each.startswith(before)]
    try:
        return datetime.strptime(max(filter(TIME.fullmatch, times), default=""), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:  # no backup, or digits that are no time
        return None
