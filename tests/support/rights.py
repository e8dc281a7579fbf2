"""Being a user whom the rights of files bind, which root is not."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

SOMEBODY = 10001


@contextlib.contextmanager
def as_somebody(path: Path) -> Iterator[None]:
    """Run a block as a user who may go into a directory, as far as its own rights let him; only root becomes another.

    It is the whole process that does, with all its threads.
    """
    if os.geteuid():
        yield
        return
    for each in (*path.parents, path):
        if each != Path("/") and each.stat().st_uid == 0:
            each.chmod(each.stat().st_mode | 0o055)
    os.seteuid(SOMEBODY)
    try:
        yield
    finally:
        os.seteuid(0)
