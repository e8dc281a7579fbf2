"""What runs have left where output goes, and no manifest names: listed, and removed if that is asked for.

A run may be under way whose attempts nothing names yet, so only what is older than an age counts. Nothing but what
jobs themselves write there is looked at: attempts and uploads behind a URL, unfinished work and parts in a directory.
"""

import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from protocol.errors import ConfigError
from spark_jobs.places.file_systems import has_scheme, local_path
from spark_jobs.places.output_place import ListedObject, OutputPlace
from spark_jobs.places.place_names import ATTEMPTS, JOURNAL, LOCK, MANIFEST, PART, WORK
from spark_jobs.places.placed_run import Committed, read_manifest
from storage.files.own_directories import HeldDirectory, open_regular
from storage.layout.store_layout import COMMIT_LOG, CONFIG, CONSUME_QUEUE

_STORE: Final = frozenset({COMMIT_LOG, CONSUME_QUEUE, CONFIG})


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """An object, or an upload of an object that was never finished; `written` is in s since 1970."""

    name: str
    bytes: int
    written: float
    upload: str = ""


class Leftovers(msgspec.Struct, kw_only=True, rename="camel"):
    """Leftovers at a place: orphans, how many are `younger`, and the manifest that names what counts, if any."""

    place: str
    older_than: float
    orphans: list[Orphan]
    younger: int
    committed: Committed | None
    deleted: bool = False

    @property
    def bytes(self) -> int:
        """The size of all orphans."""
        return sum(each.bytes for each in self.orphans)


def clean(where: str, storage: str, older_than: float, now: float, *, delete: bool) -> Leftovers:
    """Find the orphans at a URL or a directory, and delete them if asked to.

    Raises ConfigError for a store, and where a job is working; StoreError where something cannot be read or removed.
    """
    url = where if has_scheme(where) else f"file://{Path(where).absolute()}"
    place = OutputPlace(url, storage)
    there = place.names()
    if _STORE & set(there):
        raise ConfigError(f"{where} is a store: only the output of jobs is cleaned up")
    local = Path(local_path(url)) if url.startswith("file:") else None
    if local is not None and not local.is_dir():
        raise ConfigError(f"{where} is no directory")
    held = None if local is None else HeldDirectory.open(local)
    if held is not None and WORK in there:
        _refuse_work(where, held)
    found = list(_ours(place, there, local))
    # Read behind the listing: what a run has committed in between is named.
    committed = read_manifest(place)
    named = {each.name for each in committed.parts} if committed is not None else set()
    unnamed = [(name, upload, stored) for name, upload, stored in found if name not in named or upload]
    old = [
        Orphan(name=name, bytes=stored.size, written=stored.written or 0.0, upload=upload)
        for name, upload, stored in unnamed
        if stored.written is not None and now - stored.written >= older_than
    ]
    left = Leftovers(
        place=where, older_than=older_than, orphans=old, younger=len(unnamed) - len(old), committed=committed
    )
    if delete:
        place.remove(each.name for each in old if not each.upload)
        place.abort((each.name, each.upload) for each in old if each.upload)
        if held is not None and not place.objects(WORK):
            shutil.rmtree(held.path / WORK, ignore_errors=True)
        left.deleted = True
    return left


def _ours(place: OutputPlace, there: list[str], local: Path | None) -> Iterator[tuple[str, str, ListedObject]]:
    """Everything that jobs have written but the manifest, with the ids of uploads."""
    for directory in (ATTEMPTS, WORK) if local is not None else (ATTEMPTS,):
        if directory in there:
            yield from ((name, "", stored) for name, stored in place.objects(directory).items())
    if local is not None:
        for name in filter(PART.fullmatch, there):
            status = (local / name).stat()
            yield name, "", ListedObject(status.st_size, status.st_mtime)
    yield from ((name, upload, stored) for (name, upload), stored in place.uploads(ATTEMPTS).items())
    yield from ((name, upload, stored) for (name, upload), stored in place.uploads(MANIFEST).items())


def _refuse_work(where: str, held: HeldDirectory) -> None:
    """Raise ConfigError where a job is working, or has a publishing to end; PlantedFile for a link of somebody else."""
    try:
        with held.place_of(f"{WORK}/{LOCK}") as (directory, last):
            if JOURNAL in os.listdir(f"/proc/self/fd/{directory}"):
                journal = held.name / WORK / JOURNAL
                raise ConfigError(f"{where}: {journal} belongs to an unfinished publishing: finish it first")
            descriptor = open_regular(last, os.O_RDWR, directory=directory)
    except OSError:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ConfigError(f"{where}: a job is running there") from error
    finally:
        os.close(descriptor)
