"""Lines for a shell that move files: a whole store into the place of a damaged one, or out of a store what is no part
of it.
"""

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from msgspec.structs import replace

from protocol.errors import RocketLensError
from storage.doctor.finding import Finding
from storage.doctor.opened_store import OpenedStore
from storage.files.mount_points import is_mount_point
from storage.files.own_directories import HeldDirectory
from storage.layout.store_layout import COMMIT_LOG


def rescue_line(store: OpenedStore) -> str:
    """One line: rescue the store beside it, and exchange the two, unless the store is a mount point.

    A rescue of a damaged log ends with another code than 0, so what it made is looked for instead. Where the owner of
    the store could put something else in its place between two steps, and is another user, the line runs as the owner.
    """
    root = store.layout.root.absolute()
    status = root.stat()
    is_other = status.st_uid != os.geteuid()
    new, old = shlex.quote(str(_free_name(root, "-rescued"))), shlex.quote(str(root))
    line = f"{store.command('rescue')} --out {new}"
    if is_mount_point(root):
        return line
    steps = [f"test -d {new}/{COMMIT_LOG}"]
    if is_other and _is_safe(root):
        steps.append(f"chown -Rh --reference={old} {new}")
    steps += [f"mv -T {old} {shlex.quote(str(_free_name(root, '-damaged')))}", f"mv -T {new} {old}"]
    return _as_owner(root, f"{line}; {' && '.join(steps)}")


def set_aside_line(store: OpenedStore, path: Path) -> str:
    """One line: move out of the store what a broker must not find in it, to a directory beside the store.

    It is not deleted, since nobody knows what it is.
    """
    root = store.layout.root.absolute()
    inside = path.relative_to(store.layout.root) if path.is_relative_to(store.layout.root) else Path(path.name)
    place = _free_name(root.with_name(f"{root.name}-set-aside") / inside, "")
    source = root / inside if path.is_relative_to(store.layout.root) else path.absolute()
    return _as_owner(
        root, f"mkdir -p {shlex.quote(str(place.parent))} && {shlex.join(['mv', '-T', str(source), str(place)])}"
    )


def way_cleared(store: OpenedStore, findings: Iterable[Finding]) -> list[Finding]:
    """Have a rebuild of what lies in a directory preceded by moving away a file that is in the directory's place."""
    listed, layout = list(findings), store.layout
    for name, path in (
        ("queues", layout.consume_queue),
        ("queues", layout.batch_consume_queue),
        ("index", layout.index),
    ):
        if not os.path.lexists(path) or path.is_dir():
            continue
        commands = [store.command(f"rebuild {part}") for part in (name, "all")]
        line = set_aside_line(store, path)
        listed = [
            replace(each, remedy=f"{line} && {each.remedy}") if each.remedy in commands else each for each in listed
        ]
    return listed


def _as_owner(root: Path, line: str) -> str:
    """A line as the owner of a store has to run it, where that is another user who could exchange its parts."""
    status = root.stat()
    if status.st_uid == os.geteuid() or _is_safe(root):
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
