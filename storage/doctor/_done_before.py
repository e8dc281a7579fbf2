"""Leave out advice to do what has just been done: what a rebuild left as it is, another one leaves as well.

A rebuild in place leaves backups whose names say when it was. As long as nothing was written since, it would make the
same files again. That is not so where messages of the log were left out of queues or index: by choice, or since the
log ended for the rebuild where a broker's start would cut it, as long as `abort` was there.
"""

import os
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from storage.doctor._opened_store import OpenedStore
from storage.doctor.finding import INDEX as REBUILD_INDEX
from storage.doctor.finding import QUEUES as REBUILD_QUEUES
from storage.doctor.finding import Finding, Severity
from storage.files.hollow_files import is_undated
from storage.layout.backup_names import replaced_at
from storage.layout.store_layout import CONSUME_QUEUE, INDEX

MADE_BY: Final = {REBUILD_QUEUES: CONSUME_QUEUE, REBUILD_INDEX: INDEX}
"""What each command replaces in a store."""

OF_THE_LOG: Final = ("liveness", "index-reach", "queue-reach")
"""Checks that name messages which the log has: a rebuild of all of it finds them, but not the queues of a topic that
nothing else knows (a note): it left them out if no directory can have such a name."""

TOLERATED_SECONDS: Final = 1.0
"""Names of backups are whole seconds."""


def without_repeated_advice(store: OpenedStore, findings: Iterable[Finding]) -> list[Finding]:
    """Exchange the remedy of findings that a rebuild has just left; all others stay as they are."""
    done = {
        store.command(command): moment
        for command, name in MADE_BY.items()
        if (moment := replaced_at(store.layout.root, name)) is not None and not _is_written_since(store, moment)
    }
    return [
        replace(finding, remedy=_nothing_more(finding.remedy, moment))
        if (finding.check not in OF_THE_LOG or finding.severity is Severity.INFO)
        and (moment := done.get(finding.remedy)) is not None
        and not _is_newer(Path(finding.path), moment)
        else finding
        for finding in findings
    ]


def _nothing_more(command: str, moment: datetime) -> str:
    return (
        f"`{command}` was run at {moment:%Y-%m-%d %H:%M:%S} UTC and left this, so it does not help: what is missing is "
        "not in the log; copy it from a slave or a backup"
    )


def _is_written_since(store: OpenedStore, moment: datetime) -> bool:
    """Whether a broker has run, or written to the log; a broker writes its checkpoint once a second."""
    last = [store.commit_log.segments[-1].file.path] if store.commit_log.segments else []
    return any(_is_newer(path, moment) for path in (store.layout.checkpoint, store.layout.root / "abort", *last))


def _is_newer(path: Path, moment: datetime) -> bool:
    """Whether a file, or a directory or a file in it, was written after a moment, or it is not known when."""
    try:
        within = [path / name for name in os.listdir(path)] if path.is_dir() else []
        changed = max(os.stat(each).st_mtime for each in (path, *within))
        if any(map(is_undated, (path, *within))):
            return True
    except OSError:
        return False
    return changed - moment.timestamp() > TOLERATED_SECONDS
