"""Lines for a store of which a part lies elsewhere: on another disk, behind a link, or where that is mounted.

There no rebuild puts anything in the place of the old: it would replace the link. So it writes beside the store, and
what it made is moved to where the link leads, beside which the old is kept.
"""

import os
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from storage.doctor._opened_store import OpenedStore
from storage.doctor._rescue_line import as_owner, free_name, lets_own
from storage.doctor.finding import IN_PLACE, QUEUES, Finding
from storage.files.mount_points import is_mount_point
from storage.layout.backup_names import BACKUP
from storage.layout.store_layout import BATCH_CONSUME_QUEUE, CHECKPOINT, CONSUME_QUEUE, INDEX

COMMANDS: Final = (*IN_PLACE, "compact index")
NOW: Final = "$(date -u +%Y%m%d%H%M%S)"


def into_links(store: OpenedStore, findings: Iterable[Finding]) -> list[Finding]:
    """Exchange each advice to build in place what lies elsewhere by a line that brings it there, or by a sentence."""
    lines = {store.command(name): name for name in COMMANDS}

    def changed(remedy: str) -> str:
        before, _, last = remedy.rpartition(" && ")
        if last not in lines:
            return remedy
        root = store.layout.root.absolute()
        parts = {part: str(root / part) not in before for part in _made_by(lines[last])}
        elsewhere = [root / part for part, stays in parts.items() if stays and _is_elsewhere(root / part)]
        if not elsewhere:
            return remedy
        fixed = [path for path in elsewhere if is_mount_point(path.resolve())]
        if fixed:
            return _by_hand(fixed[0], last)
        return " && ".join([*([before] if before else []), _moved_in(store, last, parts)])

    return [replace(each, remedy=changed(each.remedy)) for each in findings]


def _made_by(command: str) -> tuple[str, ...]:
    """The parts of a store that a command replaces."""
    queues, index = (CONSUME_QUEUE, BATCH_CONSUME_QUEUE), (INDEX, CHECKPOINT)
    return queues if command == QUEUES else (*queues, *index) if command.startswith("rebuild all") else index


def _is_elsewhere(path: Path) -> bool:
    return path.is_symlink() or (path.exists() and is_mount_point(path))


def _moved_in(store: OpenedStore, command: str, parts: Mapping[str, bool]) -> str:
    """One line: build beside the store, and exchange what was made for the old, wherever that lies.

    `parts` are what is made, and whether the old is still there when the line is typed so far.
    """
    root = store.layout.root.absolute()
    out = free_name(root, "-rebuilt")
    made = " -o ".join(f"-e {shlex.quote(str(out / part))}" for part in parts)
    steps = [f"test {made}"]
    if lets_own(root):
        steps.append(f"chown -Rh --reference={shlex.quote(str(root))} {shlex.quote(str(out))}")
    for part, stays in parts.items():
        new, place = shlex.quote(str(out / part)), (root / part).resolve() if stays else root / part
        old = shlex.quote(str(place))
        kept = f"mv -T {old} {old}.{BACKUP}-{NOW} && " if stays and os.path.lexists(place) else ""
        steps.append(f"{{ test ! -e {new} || {{ {kept}mv -T {new} {old}; }}; }}")
    steps.append(f"rmdir --ignore-fail-on-non-empty {shlex.quote(str(out))}")
    return as_owner(root, f"{command} --out {shlex.quote(str(out))}; {' && '.join(steps)}")


def _by_hand(path: Path, command: str) -> str:
    what = f"a link to {path.resolve()}, a mount point" if path.is_symlink() else "a mount point"
    return f"no command puts it there: {path} is {what}, which cannot be renamed; write with {command} --out DIR, " \
           "and exchange what is in it by hand"  # fmt: skip
