"""Names that nobody else has chosen, for what is written before it takes its final name.

The same work may be under way twice: Spark starts a second attempt of a task whose first one still runs, and a command
may be started twice. Process ids distinguish such attempts on one machine only; in pods of a cluster they are equal.
So unfinished files have random names.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TOKEN_BYTES: Final = 8
_ATTEMPT: Final = re.compile(rf".+?\.[0-9a-f]{{{2 * TOKEN_BYTES}}}(?=\.|$)")


def attempt_name(name: str) -> str:
    """A name with a dot and a random token behind it: of one attempt to make what `name` says."""
    return f"{name}.{secrets.token_hex(TOKEN_BYTES)}"


def attempt_of(name: str) -> str | None:
    """The attempt whose name a file's name is, or begins with; None where it is no attempt's."""
    found = _ATTEMPT.match(name)
    return found[0] if found else None


@contextlib.contextmanager
def written_beside(path: Path, directory: Path | None = None) -> Iterator[Path]:
    """A new name to write a file to, which takes the place of `path` when the block ends, and goes on any error.

    It is beside `path`, or in another `directory` of the same file system. The caller syncs it.
    """
    beside = (directory or path.parent) / attempt_name(path.name)
    try:
        yield beside
        os.replace(beside, path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise
