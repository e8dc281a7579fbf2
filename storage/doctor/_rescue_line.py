"""Lines for a shell that move files: a whole store into the place of a damaged one, or out of a store what is no part
of it.
"""

import os
import shlex
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from protocol.errors import RocketLensError
from storage.doctor._opened_store import OpenedStore
from storage.doctor.finding import ALL, ALL_ANEW, IN_PLACE, QUEUES, Finding
from storage.files.mount_points import is_mount_point
from storage.files.own_directories import HeldDirectory
from storage.layout.closed_parts import as_account
from storage.layout.store_layout import COMMIT_LOG

MOVES: Final = ("mkdir -p ", "cp -p ", "rm ", "setpriv ")
"""How lines begin that move files in a store or out of it."""
CHANGES: Final = (*MOVES, "rocketlens rescue ")
WHILE_LIVE: Final = "no command helps while the broker runs: stop it, and ask the doctor again before it is started"


def rescue_line(store: OpenedStore) -> str:
    """One line: rescue the store beside it, and exchange the two, unless the store is a mount point.

    A rescue of a damaged log ends with another code than 0, so what it made is looked for instead. Where the owner of
    the store could put something else in its place between two steps, and is another user, the line runs as the owner.
    """
    root = store.layout.root.absolute()
    new, old = shlex.quote(str(free_name(root, "-rescued"))), shlex.quote(str(root))
    line = f"{store.command('rescue')} --out {new}"
    if is_mount_point(root):
        return line
    steps = [f"test -d {new}/{COMMIT_LOG}"]
    if lets_own(root):
        steps.append(f"chown -Rh --reference={old} {new}")
    kept = shlex.quote(str(free_name(root, "-damaged")))
    steps += [f"mv -T {old} {kept}", f"mv -T {new} {old}"]
    steps.append(f"echo {shlex.quote(f'done; to undo that: mv -T {old} {new} && mv -T {kept} {old}')}")
    return as_owner(root, f"{line}; {' && '.join(steps)}")


def set_aside_line(store: OpenedStore, path: Path) -> str:
    """One line: move out of the store what a broker must not find in it, to a directory beside the store.

    It is not deleted, since nobody knows what it is.
    """
    root = store.layout.root.absolute()
    inside = path.relative_to(store.layout.root) if path.is_relative_to(store.layout.root) else Path(path.name)
    place = free_name(root.with_name(f"{root.name}-set-aside") / inside, "")
    source = root / inside if path.is_relative_to(store.layout.root) else path.absolute()
    return as_owner(
        root, f"mkdir -p {shlex.quote(str(place.parent))} && {shlex.join(['mv', '-T', str(source), str(place)])}"
    )


def removal_line(store: OpenedStore, path: Path) -> str:
    """One line: remove a file that holds nothing."""
    return as_owner(store.layout.root.absolute(), shlex.join(["rm", str(path.absolute())]))


def after_checkpoint(store: OpenedStore, command: str) -> str:
    """One line: remove the checkpoint, or set aside a directory in its place; then run what makes a new one."""
    path = store.layout.checkpoint
    is_directory = path.is_dir() and not path.is_symlink()
    return f"{set_aside_line(store, path) if is_directory else removal_line(store, path)} && {command}"


def way_cleared(store: OpenedStore, findings: Iterable[Finding]) -> list[Finding]:
    """Let no line touch what another one has made: a directory that is made anew has one line.

    A file in the place of that directory is moved away first. Whatever else would be moved out of it or removed needs
    no line of its own: it is not made again, and in its place there may be a file that is whole.
    """
    listed, layout = list(findings), store.layout
    queues, index = (layout.consume_queue, layout.batch_consume_queue), (layout.index,)
    for name in IN_PLACE:
        trees = (queues if name in (QUEUES, ALL, ALL_ANEW) else ()) + (index if name != QUEUES else ())
        command = store.command(name)
        lines = {command, after_checkpoint(store, command)} & {each.remedy for each in listed}
        if not lines:
            continue
        in_the_way = (path for path in trees if os.path.lexists(path) and not path.is_dir())
        line = " && ".join([*(set_aside_line(store, path) for path in in_the_way), max(lines, key=len)])
        listed = [
            replace(each, remedy=line) if each.remedy in lines or _takes_out_of(store, each, trees) else each
            for each in listed
        ]
    return listed


def typed_by_whom(store: OpenedStore, findings: Iterable[Finding]) -> list[Finding]:
    """Let each line that changes anything name the account that may, and none be typed while a broker runs."""
    in_place = [store.command(name) for name in IN_PLACE]

    def typed(line: str) -> str:
        is_simple = line in in_place
        if not (is_simple or line.startswith(CHANGES) or any(map(line.startswith, in_place))):
            return line
        if store.state.is_live:
            return WHILE_LIVE
        root = store.layout.root.absolute()
        return as_account(_account(root, beside=not is_simple), line, is_simple=is_simple)

    return [replace(each, remedy=typed(each.remedy)) for each in findings]


def _account(root: Path, *, beside: bool = True) -> int:
    """The user who may change a store, and with `beside` what lies beside it: root, or else its owner."""
    us, owner = os.geteuid(), root.stat().st_uid
    parent = root.parent.stat()
    is_open = bool(parent.st_mode & stat.S_IWOTH) and not parent.st_mode & stat.S_ISVTX
    return us if not us else owner if not beside or is_open or parent.st_uid == owner else 0


def _takes_out_of(store: OpenedStore, finding: Finding, trees: Sequence[Path]) -> bool:
    """Whether a finding's remedy moves or removes what it is about, which is in one of some directories or is one."""
    path = Path(finding.path)
    is_inside = any(path.is_relative_to(tree) for tree in trees)
    return is_inside and finding.remedy in (set_aside_line(store, path), removal_line(store, path))


def as_owner(root: Path, line: str) -> str:
    """A line as the owner of a store has to run it, where we are root, and that user could exchange its parts."""
    status = root.stat()
    if os.geteuid() or not status.st_uid or _is_safe(root):
        return line
    return f"setpriv --reuid={status.st_uid} --regid={status.st_gid} --clear-groups sh -c {shlex.quote(line)}"


def lets_own(root: Path) -> bool:
    """Whether what a line makes has to be given to the store's owner, and nobody can exchange it meanwhile."""
    return root.stat().st_uid != _account(root) and _is_safe(root)


def _is_safe(root: Path) -> bool:
    """Whether nobody else can put another directory in the place of one."""
    try:
        with HeldDirectory.open(root) as held:
            return held.exposure is None
    except (OSError, RocketLensError):
        return False


def free_name(root: Path, ending: str) -> Path:
    """A directory beside the store that is not there yet."""
    number = 1
    while True:
        path = root.with_name(f"{root.name}{ending}" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(path):
            return path
        number += 1
