"""The line for a shell that makes a whole store of a damaged one and lets it take the damaged one's place."""

import os
import shlex
from pathlib import Path

from protocol.errors import RocketLensError
from storage.doctor.opened_store import OpenedStore
from storage.files.own_directories import HeldDirectory
from storage.layout.store_layout import COMMIT_LOG


def rescue_line(store: OpenedStore) -> str:
    """One line: rescue the store beside it, and exchange the two, unless the store is a mount point.

    A rescue of a damaged log ends with another code than 0, so what it made is looked for instead. Where the owner of
    the store could put something else in its place between two steps, and is another user, the line runs as the owner.
    """
    root = store.layout.root.absolute()
    status = root.stat()
    is_other, as_owner = status.st_uid != os.geteuid(), not _is_safe(root)
    new, old = shlex.quote(str(_free_name(root, "-rescued"))), shlex.quote(str(root))
    line = f"{store.command('rescue')} --out {new}"
    if os.path.ismount(root):
        return line
    steps = [f"test -d {new}/{COMMIT_LOG}"]
    if is_other and not as_owner:
        steps.append(f"chown -Rh --reference={old} {new}")
    steps += [f"mv -T {old} {shlex.quote(str(_free_name(root, '-damaged')))}", f"mv -T {new} {old}"]
    line = f"{line}; {' && '.join(steps)}"
    if not is_other or not as_owner:
        return line
    return f"setpriv --reuid={status.st_uid} --regid={status.st_gid} --clear-groups sh -c {shlex.quote(line)}"


def _is_safe(root: Path) -> bool:
    """Whether nobody else can put another directory in the place of one."""
    try:
        with HeldDirectory.open(root) as held:
            return held.exposure is None
    except (OSError, RocketLensError):
        return False


def _free_name(root: Path, ending: str) -> Path:
    """A directory beside the store that is not there yet."""
    number = 1
    while True:
        path = root.with_name(f"{root.name}{ending}" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(path):
            return path
        number += 1
